"""`lowmark run`: the Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options import CONFIG, ConfigOption

__all__ = ["run"]


def run(
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUERY]...",
            help="Run these queries only, as a job with a checkpoint of its own.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master; without, the configuration's.", show_default=False)
    ] = None,
    until_last: Annotated[
        bool, typer.Option("--until-last", help="End when every source has ended and its windows are out.")
    ] = False,
    new_generation: Annotated[
        bool,
        typer.Option(
            "--new-generation",
            help="Begin a new checkpoint although results of an earlier one are there. Windows that it has completed "
            "are not written again.",
        ),
    ] = False,
) -> None:
    """Run the Spark job that merges partials into final windows and writes them exactly once.

    One job runs all queries of the configuration. It goes on where it stopped; end it with Ctrl-C.

    Examples:

    \b
      lowmark run -c /etc/lowmark.toml
      lowmark run talkers --master spark://host:7077
    """
    from lowmark.app.config import load_config
    from lowmark.app.console import telling
    from lowmark.app.job import run_job
    from lowmark.app.logs import set_up_logs

    settings = load_config(Path(config))
    set_up_logs(verbose=False)
    with telling() as tell:
        status = run_job(
            settings,
            queries=queries or None,
            master=master,
            until_last=until_last,
            new_generation=new_generation,
            progress=tell,
        )
    raise typer.Exit(status)
