"""`lowmark watch`: shows a query's results as they become final."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options.shared import CONFIG, ConfigOption

__all__ = ["watch"]


def watch(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="Name of the query in the configuration. Without it, --progress shows all queries.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest results that Kafka still holds.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Show the windows that begin at this time (2024-05-01T12:00:00Z) or later, of the results that Kafka "
            "still holds. For windows over rows: a row number.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End when all windows that end at this time or earlier are complete, or when nothing more can come. "
            "Without --since: begin with the oldest results.",
            show_default=False,
        ),
    ] = None,
    windows: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after N windows.", show_default=False)
    ] = None,
    json_: Annotated[
        bool | None,
        typer.Option(
            "--json/--table",
            help="Write rows as JSON lines to standard output and completions to standard error, or write a table for "
            "each complete window. Default: a table on a terminal, JSON elsewhere.",
            show_default=False,
        ),
    ] = None,
    progress: Annotated[
        bool,
        typer.Option(
            "--progress", help="Instead of results, show how far each query is and what its open windows wait for."
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --progress: show the state once, and end.")] = False,
) -> None:
    """Follow a query's result topic: show final rows, and whether each complete window is exact. With --progress: show
    why a window does not close.

    Reads committed records only. Before the job's first start, it waits for the query's topic. Ends with Ctrl-C, or
    by itself with --until or --windows. If it ends by itself, the exit code is 4 when a window that it has shown is
    lossy.

    Examples:

    \b
      lowmark watch talkers
      lowmark watch talkers --from-beginning --json | jq .srcIP
      lowmark watch talkers --since 2024-05-01T12:00:00Z --until 2024-05-01T13:00:00Z
      lowmark watch --progress
    """
    if query is None and not progress:
        raise typer.BadParameter("name a query, or use --progress to see all of them")
    if once and not progress:
        raise typer.BadParameter("--once works only with --progress")
    if progress and (since is not None or until is not None):
        raise typer.BadParameter(
            "--since and --until select results; --progress shows the present state and takes neither"
        )
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
