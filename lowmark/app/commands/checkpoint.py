"""`lowmark checkpoint`: shows what a job's checkpoint holds, and whether a job could go on from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowmark.app.commands.group import CommandGroup
from lowmark.app.commands.options.shared import CONFIG, ConfigOption

if TYPE_CHECKING:  # --help must load little
    from lowmark.app.job.start import JobStart

__all__ = ["checkpoint"]

checkpoint = typer.Typer(
    cls=CommandGroup,
    name="checkpoint",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

QueriesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUERY", help="Of the job that runs only these queries.", show_default=False),
]


@checkpoint.callback()
def of_a_job() -> None:
    """Show or check the checkpoint of a job. Locks and changes nothing: the job may be running.

    Examples:

    \b
      lowmark checkpoint show
      lowmark checkpoint check -c /etc/lowmark/lowmark.toml
    """


@checkpoint.command()
def show(queries: QueriesArgument = None, config: ConfigOption = CONFIG) -> None:
    """Show the checkpoint of a job: its id, runs, batches, the token in Kafka, its stages, and the state of each query.
    A table on a terminal; in a pipe a JSON object for the job and one for each query.

    Examples:

    \b
      lowmark checkpoint show
      lowmark checkpoint show | jq .state
    """
    from rich.console import Console
    from rich.table import Table

    from lowmark.app.job.checkpoint_view import describe

    job, rows = describe(_start(config, queries))
    if not sys.stdout.isatty():
        for row in (job, *rows):
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    console, table = Console(), Table(header_style="bold")
    for name, value in job.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        console.print(f"{name}: {shown}", markup=False, highlight=False)
    for name in ("query", "plan", "generation", "state", "quarantined"):
        table.add_column(name)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)


@checkpoint.command()
def check(queries: QueriesArgument = None, config: ConfigOption = CONFIG) -> None:
    """Check that the checkpoint of a job can be read, and that no file that Spark needs is cut off.

    Exit codes: 0 when it is whole; 2 when it is not, or is not there. `lowmark check` says whether the job would start.

    Examples:

    \b
      lowmark checkpoint check -c /etc/lowmark/lowmark.toml
    """
    from highlevel.spark.errors import CheckpointRefused
    from lowmark.app.job.checkpoint_view import damage

    start = _start(config, queries)
    if (found := damage(start)) is not None:
        raise CheckpointRefused(found)
    typer.echo(f"the checkpoint of job {start.name} is whole: {start.place}")


def _start(config: Path, queries: list[str] | None) -> JobStart:
    from lowmark.app.config.file import load_config
    from lowmark.app.config.queries import plan_queries
    from lowmark.app.job.names import job_name
    from lowmark.app.job.start import JobStart

    settings = load_config(config)
    names = queries or None
    return JobStart(settings, plan_queries(settings, names), job_name(settings.job.name, names))
