"""`lowmark run`: the Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.shared_options import CONFIG, ConfigOption

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
            help="Begin a new checkpoint although results of an earlier one are there. What it has told is not written "
            "again; where nobody can tell what that was, the start is refused, with the names of the queries.",
        ),
    ] = False,
    repeat_rows: Annotated[
        bool,
        typer.Option(
            "--repeat-rows",
            help="With --new-generation: begin all the same, and write the rows of those queries again: all that "
            "follow from what Kafka still has.",
        ),
    ] = False,
) -> None:
    """Run the Spark job that merges partials into final windows and writes them exactly once.

    One job runs all queries of the configuration. It goes on where it stopped; end it with Ctrl-C.

    Examples:

    \b
      lowmark run -c /etc/lowmark.toml
      lowmark run talkers --master spark://host:7077
      lowmark run --new-generation                  # the checkpoint is lost; nothing is written twice
      lowmark run --new-generation --repeat-rows    # … but of the queries that the refusal has named
    """
    if repeat_rows and not new_generation:
        raise typer.BadParameter("it goes with --new-generation", param_hint="--repeat-rows")
    from lowmark.app.config.file import load_config
    from lowmark.app.console import telling
    from lowmark.app.job.process import NewGeneration, run_job
    from lowmark.app.logs import set_up_logs

    settings = load_config(Path(config))
    set_up_logs(verbose=False)
    with telling() as tell:
        status = run_job(
            settings,
            queries=queries or None,
            master=master,
            until_last=until_last,
            new_generation=NewGeneration(repeat_rows) if new_generation else None,
            progress=tell,
        )
    raise typer.Exit(status)
