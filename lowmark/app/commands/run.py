"""`lowmark run`: runs the Spark job."""

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
            help="Run only these queries, as a job with its own checkpoint.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master. Default: the configuration's.", show_default=False)
    ] = None,
    until_last: Annotated[
        bool, typer.Option("--until-last", help="End when every source has ended and its windows are written.")
    ] = False,
    new_generation: Annotated[
        bool,
        typer.Option(
            "--new-generation",
            help="Begin a new checkpoint although an earlier one has left results. Those results are not written "
            "again. If lowmark cannot tell what they were, it refuses the start and names the queries.",
        ),
    ] = False,
    repeat_rows: Annotated[
        bool,
        typer.Option(
            "--repeat-rows",
            help="With --new-generation: begin all the same, and write again all rows of those queries that follow "
            "from what Kafka still holds.",
        ),
    ] = False,
) -> None:
    """Run the Spark job that merges partials into final windows and writes them exactly once.

    One job runs all queries of the configuration. It resumes where it stopped. End it with Ctrl-C.

    Examples:

    \b
      lowmark run -c /etc/lowmark/lowmark.toml
      lowmark run talkers --master spark://host:7077
      lowmark run --new-generation                  # the checkpoint is lost; nothing is written twice
      lowmark run --new-generation --repeat-rows    # … except rows of the queries that the refusal named
    """
    if repeat_rows and not new_generation:
        raise typer.BadParameter("it works only with --new-generation", param_hint="--repeat-rows")
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
