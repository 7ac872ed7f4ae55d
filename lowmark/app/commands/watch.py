"""`lowmark watch`: a query's results as they become final."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options import CONFIG, ConfigOption

__all__ = ["watch"]


def watch(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Name of the query in the configuration.")],
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
) -> None:
    """Follow a query's result topic: final rows, and for each window whether it is complete and exact.

    Reads committed records only. End it with Ctrl-C.

    Examples:

    \b
      lowmark watch talkers
      lowmark watch talkers --from-beginning --json | jq .srcIP
    """
    from lowmark.app.config import load_config
    from lowmark.app.watch import watch as run

    settings = load_config(Path(config))
    as_json = not sys.stdout.isatty() if json_ is None else json_
    run(settings.kafka, settings.prefix, query, beginning=from_beginning, windows=windows, as_json=as_json)
