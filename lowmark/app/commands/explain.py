"""`lowmark explain`: how a query runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.query import query_text
from lowmark.query.late import Late

__all__ = ["explain"]


def explain(
    sql: Annotated[str | None, typer.Argument(metavar="[SQL]", show_default=False, help="The query's text.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE.sql", help="Read the query from a file.")
    ] = None,
    buckets: Annotated[int, typer.Option(metavar="N", min=1, help="Partitions that are wanted.")] = 8,
    late: Annotated[
        Late, typer.Option(help="What becomes of late tuples. What cannot be corrected is refused, with the reason.")
    ] = Late.COUNT,
    kernel: Annotated[bool, typer.Option("--kernel", help="Also show the generated low-level kernel.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show both halves of a query's plan: what the capture process does with packets and what the job does with
    partials, with panes, granule, buckets, the growth of state and the JSON schema of the results.

    Examples:

    \b
      lowmark explain "SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP"
      lowmark explain -f query.sql --kernel
    """
    text, name = query_text(sql, file)
    from lowmark.query.compile import compile_query
    from lowmark.query.explain import describe, render

    plan = compile_query(text, name=name, buckets=buckets, late=late)
    if json_:
        typer.echo(json.dumps(describe(plan), indent=2))
    else:
        typer.echo(render(plan))
    if kernel:
        from lowlevel.kernel.assemble import kernel_source

        typer.echo(kernel_source(plan.stage.nodes))
