"""`lowmark sources`: lists the sources and their state, and asks the job to change whom windows wait for."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowmark.app.commands.group import CommandGroup
from lowmark.app.commands.options.shared import CONFIG, ConfigOption

if TYPE_CHECKING:
    from lowmark.app.config.file import Config
    from lowmark.wire.records.rosters import Action

__all__ = ["sources"]

sources = typer.Typer(
    cls=CommandGroup,
    name="sources",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Name of the source, as `lowmark sources` shows it.")
]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="NAME", help="The job to ask. Default: the configuration's.", show_default=False),
]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@sources.callback()
def show(context: typer.Context, config: ConfigOption = CONFIG) -> None:
    """List the registered sources: stream, epoch, time of registration, how far behind they are, whether a job lists
    them (waits for them and counts them), and whether it has excluded them. Also lists sources that are configured but
    have not registered.

    Writes a table on a terminal, JSON lines in a pipe. With a command, it asks the job to change a stream's sources.

    Examples:

    \b
      lowmark sources -c /etc/lowmark/lowmark.toml
      lowmark sources exclude tap2        # windows do not wait for tap2 any more
      lowmark sources return tap2         # windows wait for tap2 again
      lowmark sources retire old-host     # old-host leaves its stream
    """
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console

    from lowmark.app.config.file import load_config
    from lowmark.app.job.roster import listed_and_excluded
    from lowmark.app.kafka.source_registry import seen_sources
    from lowmark.app.watch.row_view import show_rows
    from lowmark.wire.rows import values

    settings = load_config(Path(config))
    listed, excluded = listed_and_excluded(settings)
    now_ns = time.time_ns()
    rows: list[dict[str, object]] = []
    for seen in seen_sources(settings.kafka, settings.prefix):
        known = seen.promised_ns is not None and not seen.ended
        stream, source = seen.registration.stream, seen.registration.source
        rows.append(
            {
                "stream": stream,
                "source": source,
                "kind": seen.registration.kind.value,
                "epoch": seen.epoch,
                "registered": values.time(seen.registered_ns),
                "state": "ended" if seen.ended else "stopped" if seen.stopped else "active",
                "lag_s": round((now_ns - (seen.promised_ns or 0)) / 1e9, 3) if known else None,
                "disorder": seen.registration.disorder,
                "process": seen.registration.process,
                "listed": listed(source, stream),
                "excluded": (stream, source) in excluded,
            }
        )
    missing: list[dict[str, object]] = [
        {
            "stream": stream,
            "source": source,
            "state": "not seen",
            "listed": listed(source, stream),
            "excluded": (stream, source) in excluded,
        }
        for stream in settings.streams
        for source in settings.named_sources(stream)
        if source not in {row["source"] for row in rows}
    ]
    if not sys.stdout.isatty():
        for row in [*rows, *missing]:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    names = (
        "stream", "source", "kind", "epoch", "registered", "state", "lag_s", "listed", "excluded", "disorder",
        "process",
    )  # fmt: skip
    shown = [[_shown(row.get(name)) for name in names] for row in [*rows, *missing]]
    show_rows(Console(), names, shown, ("epoch", "lag_s"))


@sources.command()
def exclude(
    context: typer.Context, source: SourceArgument, config: ConfigOption = CONFIG, job: JobOption = None
) -> None:  # fmt: skip
    """Stop waiting for a source until `return`. Windows close without it; they say `lossy: excluded` and name it.

    Example:

    \b
      lowmark sources exclude tap2
    """
    from lowmark.wire.records.rosters import Action

    _ask(context, Path(config), job, source, Action.EXCLUDE)


@sources.command("return")
def take_back(
    context: typer.Context, source: SourceArgument, config: ConfigOption = CONFIG, job: JobOption = None
) -> None:  # fmt: skip
    """Wait for an excluded source again.

    Example:

    \b
      lowmark sources return tap2
    """
    from lowmark.wire.records.rosters import Action

    _ask(context, Path(config), job, source, Action.RETURN)


@sources.command()
def add(
    context: typer.Context, source: SourceArgument, config: ConfigOption = CONFIG, job: JobOption = None
) -> None:  # fmt: skip
    """Add a registered live source to its stream, from the next window boundary that no bucket has reached. The source
    stays until it is retired, whatever the configuration lists.

    Example:

    \b
      lowmark sources add capture-9
    """
    from lowmark.wire.records.rosters import Action

    _ask(context, Path(config), job, source, Action.ADD)


@sources.command()
def retire(
    context: typer.Context, source: SourceArgument, config: ConfigOption = CONFIG, job: JobOption = None
) -> None:  # fmt: skip
    """Take a source out of its stream, from the next window boundary that no bucket has reached. Windows before that
    boundary wait for it at most 10 s more. The last source of a stream cannot be retired.

    Example:

    \b
      lowmark sources retire old-host
    """
    from lowmark.wire.records.rosters import Action

    _ask(context, Path(config), job, source, Action.RETIRE)


@sources.command("renumber")
def renumber_epochs(context: typer.Context, config: ConfigOption = CONFIG) -> None:
    """Make epochs begin above all earlier ones, after the topic `sources` was deleted and created again.

    Example:

    \b
      lowmark sources renumber
    """
    from lowmark.app.kafka.epochs import renumber

    settings = _settings(context, Path(config))
    before, after = renumber(settings.kafka, settings.prefix)
    typer.echo(f"the next epoch is {after}, and was {before}" if after != before else f"the next epoch is {after}")


def _ask(context: typer.Context, config: Path, job: str | None, source: str, action: Action) -> None:
    from lowmark.app.job.source_requests import ask

    settings = _settings(context, config)
    typer.echo(ask(settings, job or settings.job.name, source, action))


def _settings(context: typer.Context, config: Path) -> Config:
    """Also takes the file from `sources -c FILE COMMAND`."""
    from lowmark.app.config.file import load_config

    before = None if context.parent is None else context.parent.params.get("config")
    return load_config(config if config != CONFIG or before is None else Path(before))
