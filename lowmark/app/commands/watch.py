"""`lowmark watch`: a query's results as they become final."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.shared_options import CONFIG, ConfigOption

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
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin with the windows that begin at this time (2024-05-01T12:00:00Z), of results that Kafka still "
            "has. Over rows: the number of a row.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End when all windows that end up to this time are complete, or nothing more can come. Without "
            "--since: from the oldest results on.",
            show_default=False,
        ),
    ] = None,
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

    Reads committed records only. End it with Ctrl-C, or say where it ends (--until, --windows): then its exit code is 4
    when a window that it has shown is lossy.

    Examples:

    \b
      lowmark watch talkers
      lowmark watch talkers --from-beginning --json | jq .srcIP
      lowmark watch talkers --since 2024-05-01T12:00:00Z --until 2024-05-01T13:00:00Z
      lowmark watch --progress
    """
    if query is None and not progress:
        raise typer.BadParameter("name a query, or ask for the --progress of all of them")
    if once and not progress:
        raise typer.BadParameter("--once goes with --progress")
    if progress and (since is not None or until is not None):
        raise typer.BadParameter("--since and --until are of results, and --progress tells how things stand")
    from lowmark.app.config.file import load_config
    from lowmark.app.watch.follow import watch as run
    from lowmark.app.watch.time_range import WatchRange, edge_of

    settings = load_config(Path(config))
    as_json = not sys.stdout.isatty() if json_ is None else json_
    if progress:
        from lowmark.app.progress.show import watch_progress

        watch_progress(settings, None if query is None else [query], once=once, as_json=as_json)
        return
    assert query is not None
    between = WatchRange(
        None if since is None else edge_of(since, "--since"), None if until is None else edge_of(until, "--until")
    )
    code = run(
        settings, query, beginning=from_beginning or bool(between), windows=windows, between=between, as_json=as_json
    )
    raise typer.Exit(code)
