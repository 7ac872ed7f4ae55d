"""`lowmark topics`: the topics that a configuration needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options import CONFIG, ConfigOption

__all__ = ["topics"]


def topics(
    config: ConfigOption = CONFIG,
    create: Annotated[bool, typer.Option("--create", help="Create those that are missing.")] = False,
) -> None:
    """List the topics that the configuration needs, and whether they are there as they should be.

    `lowmark capture` and `lowmark run` create what is missing by themselves; on a cluster where they have no right to,
    somebody who has runs this once.

    Examples:

    \b
      lowmark topics
      lowmark topics --create -c /etc/lowmark.toml
    """
    from rich.console import Console
    from rich.table import Table

    from lowmark.app.config import load_config
    from lowmark.app.planning import plan_queries, topics_of
    from lowmark.wire.kafka import admin, ensure_topics, verify_topics

    settings = load_config(Path(config))
    wanted = topics_of(settings, plan_queries(settings))
    client = admin(settings.kafka)
    problems = (ensure_topics if create else verify_topics)(client, wanted)
    table = Table(header_style="bold")
    table.add_column("topic", no_wrap=True)
    table.add_column("partitions", justify="right")
    table.add_column("state")
    for topic in wanted:
        found = [problem for problem in problems if problem.topic == topic.name]
        state = "; ".join(f"{problem.what} is {problem.there}, wanted is {problem.wanted}" for problem in found)
        table.add_row(topic.name, str(topic.partitions), f"[red]{state}[/]" if found else "[green]ok[/]")
    Console().print(table)
    raise typer.Exit(1 if problems else 0)
