"""`lowmark topics`: lists, creates and deletes the topics of a configuration."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowmark.app.commands.options.shared import CONFIG, ConfigOption

if TYPE_CHECKING:  # --help must load little
    from confluent_kafka.admin import AdminClient

    from lowmark.app.config.file import Config
    from lowmark.wire.kafka.clients import TopicProblem
    from lowmark.wire.kafka.topics import TopicSettings

__all__ = ["topics"]

_OK, _NOT_NEEDED = "ok", "not needed"


def topics(
    config: ConfigOption = CONFIG,
    create: Annotated[bool, typer.Option("--create", help="Create the topics that are missing.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete topics that the configuration no longer needs, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --delete: do not ask.")] = False,
) -> None:
    """List the topics that the configuration needs, with whether each has the right settings, and the topics of queries
    and stages that the configuration no longer has. Writes a table on a terminal, JSON lines in a pipe.

    `lowmark capture` and `lowmark run` create missing topics themselves. If they have no right to create topics, a user
    who has it runs `lowmark topics --create` once.

    --delete deletes topics and all their records, result rows included. It deletes only topics of this installation (by
    prefix and name). It keeps topics to which a live source sends, and topics that were written to in the last ten
    minutes, for example by the job of another configuration. End such jobs first: without their topics, their queries
    fail.

    Examples:

    \b
      lowmark topics
      lowmark topics --create -c /etc/lowmark/lowmark.toml
      lowmark topics --delete
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lowmark.app.config.file import load_config
    from lowmark.app.config.queries import plan_queries, topics_of
    from lowmark.app.kafka.orphaned_topics import orphaned
    from lowmark.wire.kafka.clients import admin, ensure_topics, verify_topics

    if delete and create:
        raise typer.BadParameter("give either --create or --delete", param_hint="'--delete'")
    settings = load_config(Path(config))
    wanted = topics_of(settings, plan_queries(settings))
    client = admin(settings.kafka)
    if delete:
        raise typer.Exit(_delete(settings, client, wanted, yes))
    problems = (ensure_topics if create else verify_topics)(client, wanted)
    there = client.list_topics(timeout=10).topics
    rows = [
        {"topic": topic.name, "partitions": topic.partitions, "state": _state(topic.name, problems)} for topic in wanted
    ] + [
        {"topic": orphan.name, "partitions": len(there[orphan.name].partitions), "state": _NOT_NEEDED}
        for orphan in orphaned(there, settings.prefix, wanted)
    ]
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo(json.dumps(row))
        raise typer.Exit(1 if problems else 0)
    table = Table(header_style="bold")
    table.add_column("topic", no_wrap=True)
    table.add_column("partitions", justify="right")
    table.add_column("state")
    for row in rows:
        colour = {_OK: "green", _NOT_NEEDED: "yellow"}.get(str(row["state"]), "red")
        table.add_row(str(row["topic"]), str(row["partitions"]), f"[{colour}]{escape(str(row['state']))}[/]")
    Console().print(table)
    raise typer.Exit(1 if problems else 0)


def _state(topic: str, problems: Sequence[TopicProblem]) -> str:
    found = [problem for problem in problems if problem.topic == topic]
    return "; ".join(f"{each.what} is {each.there}, wanted is {each.wanted}" for each in found) or _OK


def _delete(config: Config, client: AdminClient, wanted: Sequence[TopicSettings], yes: bool) -> int:
    """Returns the exit code."""
    from lowmark.app.kafka.orphaned_topics import orphans
    from lowmark.wire.kafka.clients import delete_topics

    found = orphans(config, client, wanted, time.time_ns() // 1_000_000)
    for orphan in found:
        if orphan.used is not None:
            typer.echo(f"left alone: {orphan.name}: {orphan.used}")
    names = {orphan.name: orphan.partitions for orphan in found if orphan.used is None}
    if not names:
        typer.echo("there is nothing to delete")
        return 0
    for name, partitions in names.items():
        typer.echo(f"to be deleted: {name}, {partitions} partition{'s' * (partitions > 1)}")
    if not yes:
        typer.confirm("Delete these topics and all that they hold?", abort=True)
        used = {orphan.name: orphan.used for orphan in orphans(config, client, wanted, time.time_ns() // 1_000_000)}
        for name in [name for name in names if used.get(name)]:  # used since the question was asked
            typer.echo(f"left alone: {name}: {used[name]}")
            del names[name]
    refused = delete_topics(client, list(names)) if names else {}
    for name, why in refused.items():
        typer.echo(f"not deleted: {name}: {why}")
    typer.echo(f"{len(names) - len(refused)} deleted")
    return 1 if refused else 0
