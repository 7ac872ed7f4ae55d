"""`lowmark check`: whether a configuration would run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options.shared import CONFIG, ConfigOption
from lowmark.app.kafka.rights import Role

__all__ = ["check"]


def check(
    config: ConfigOption = CONFIG,
    role: Annotated[
        list[Role] | None,
        typer.Option(
            "--for",
            metavar="capture|run",
            help="Check the Kafka rights that this command needs (repeatable). Default: both.",
        ),
    ] = None,
) -> None:
    """Check configuration, queries, kernels, broker, rights, topics, what a job needs on this host (Java, jars, a
    checkpoint folder), and whether the job of all queries would start on its checkpoint.

    Starts and changes nothing. It compiles the kernels, which takes seconds, and keeps them for captures on this
    machine.

    Exit codes: 0 when all is well; 1 when the environment is not ready; 2 when the configuration is wrong.

    Examples:

    \b
      lowmark check -c /etc/lowmark/lowmark.toml
      lowmark check --for capture        # on a capture host, whose user has only these rights
    """
    from rich.console import Console
    from rich.markup import escape

    from lowmark.app.config.checks import run_checks
    from lowmark.app.console import error_console

    console, notes = Console(highlight=False, soft_wrap=True), error_console()
    failed = 0
    for result in run_checks(Path(config), role or tuple(Role), partial(notes.print, markup=False)):
        mark = "[green]ok[/]  " if result.problem is None else "[red]fail[/]"
        console.print(f"{mark} {escape(result.what)}")
        if result.problem is not None:
            console.print(f"     {result.problem}", markup=False)
            failed = failed or result.exit_code
    raise typer.Exit(failed)
