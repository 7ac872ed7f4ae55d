"""`lowmark run`: runs the Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options.shared import CONFIG, ConfigOption, ReloadOption

__all__ = ["run"]


def run(
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
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
            help="Begin a new checkpoint although an earlier one has written results. The job does not write those "
            "results again. If lowmark cannot know which rows were written, it refuses to start and names the queries.",
        ),
    ] = False,
    repeat_rows: Annotated[
        bool,
        typer.Option(
            "--repeat-rows",
            help="Begin all the same, and write again all rows of the queries that the refusal named, as far as they "
            "follow from what Kafka still holds.",
        ),
    ] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(
            "--release",
            metavar="QUERY",
            help="End the quarantine of this query (repeatable). It begins where its stage has come to.",
            show_default=False,
        ),
    ] = None,
    reload_on_change: ReloadOption = False,
) -> None:
    """Run the Spark job that merges partials into final windows and writes them exactly once.

    One job runs all queries of the configuration. It resumes where it stopped. Queries that have been added, dropped or
    changed since then take effect; the others go on as they are. End it with Ctrl-C.

    Examples:

    \b
      lowmark run -c /etc/lowmark/lowmark.toml
      lowmark run talkers --master spark://host:7077
      lowmark run --release talkers                 # the reason of its quarantine is gone
      lowmark run --new-generation                  # the checkpoint is lost; nothing is written twice
      lowmark run --new-generation --repeat-rows    # … except rows of the queries that the refusal named
    """
    if release and new_generation:
        raise typer.BadParameter("a new generation releases all queries", param_hint="--release")
    from lowmark.app.config.changes import ConfigChanges
    from lowmark.app.config.file import load_config
    from lowmark.app.console import telling
    from lowmark.app.job.process import Beginning, run_job
    from lowmark.app.logs import set_up_logs

    changes = ConfigChanges(Path(config)) if reload_on_change else None
    settings = load_config(Path(config))
    set_up_logs(verbose=False)
    with telling() as tell:
        status = run_job(
            settings,
            queries=queries or None,
            master=master,
            until_last=until_last,
            beginning=Beginning(new_generation, repeat_rows, frozenset(release or ())),
            progress=tell,
            changes=changes,
        )
    raise typer.Exit(status)
