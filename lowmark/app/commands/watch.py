"""`lowmark watch`: a query's results as they become final."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options import CONFIG, ConfigOption

__all__ = ["watch"]


def watch(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]",
            help="Name of the query in the configuration. With --progress it may be left out: all of them.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest results that Kafka still has.")
    ] = False,
    windows: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many windows.", show_default=False)
    ] = None,
    json_: Annotated[
        bool | None,
        typer.Option(
            "--json/--table",
            help="Rows as JSON lines on standard output (completions on standard error), or a table for each complete "
            "window. The default is a table on a terminal, else JSON.",
            show_default=False,
        ),
    ] = None,
    progress: Annotated[
        bool,
        typer.Option(
            "--progress", help="Instead of results: how far each query is, and what its open windows wait for."
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --progress: tell how things stand, and end.")] = False,
) -> None:
    """Follow a query's result topic: final rows, and for each window whether it is complete and exact. With --progress:
    why a window does not close.

    Reads committed records only. End it with Ctrl-C.

    Examples:

    \b
      lowmark watch talkers
      lowmark watch talkers --from-beginning --json | jq .srcIP
      lowmark watch --progress
    """
    if query is None and not progress:
        raise typer.BadParameter("name a query, or ask for the --progress of all of them")
    if once and not progress:
        raise typer.BadParameter("--once goes with --progress")
    from lowmark.app.config import load_config
    from lowmark.app.watch import watch as run

    settings = load_config(Path(config))
    as_json = not sys.stdout.isatty() if json_ is None else json_
    if progress:
        from lowmark.app.watchprogress import watch_progress

        watch_progress(settings, None if query is None else [query], once=once, as_json=as_json)
        return
    assert query is not None
    run(settings.kafka, settings.prefix, query, beginning=from_beginning, windows=windows, as_json=as_json)
