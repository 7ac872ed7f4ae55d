"""`lowmark explain`: shows how a query runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowmark.app.commands.options.expected import Groups, Rates, Selectivities, expected_of, known_names
from lowmark.app.commands.options.joins import (
    JoinBuffer,
    JoinDisk,
    JoinLimit,
    JoinMemory,
    PairNs,
    Scrambling,
    joins_of,
)
from lowmark.app.commands.options.limits import ExpireIdle, LimitGroups, limits_of
from lowmark.app.commands.query import query_text
from lowmark.app.console import error_console
from lowmark.query.options import DEFAULT_JOINS, DEFAULT_LIMITS, Late, Strategy, Vocabulary

if TYPE_CHECKING:
    from ingest.disorder.declarations import Disorder
    from lowmark.app.local.scan import Declared, Scanned
    from lowmark.query.plan.nodes import QueryPlan

__all__ = ["explain"]


def explain(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", show_default=False, help="The query's text.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE.sql", help="Read the query from a file.")
    ] = None,
    buckets: Annotated[int, typer.Option(metavar="N", min=1, help="Number of buckets (partitions).")] = 8,
    late: Annotated[
        Late,
        typer.Option(
            help="What to do with late packets, as for query. correct is refused, with the reason, where it cannot be."
        ),
    ] = Late.COUNT,
    rate: Rates = None,
    selectivity: Selectivities = None,
    groups: Groups = None,
    limit_groups: LimitGroups = DEFAULT_LIMITS.groups,
    expire_idle: ExpireIdle = None,
    join_memory: JoinMemory = DEFAULT_JOINS.memory,
    join_buffer: JoinBuffer = None,
    join_limit: JoinLimit = None,
    join_disk: JoinDisk = DEFAULT_JOINS.disk_mib,
    scrambling: Scrambling = None,
    pair_ns: PairNs = DEFAULT_JOINS.pair_ns,
    strategy: Annotated[
        Strategy, typer.Option(help="How groups of open windows are kept, as for query.")
    ] = Strategy.AUTO,
    disorder: Annotated[
        str | None,
        typer.Option(
            metavar="DISORDER",
            help="Also show the effect of this `disorder` of a stream or source: 'within 50 ms', 'measured 99.9%', …",
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            metavar="[NAME=]FILE",
            help="Also show how many packets of a capture arrive later than --disorder allows, and the bound that "
            "`measured` reaches. Without --disorder: show which `disorder` makes none of them late. FILE is as for "
            "query.",
        ),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.sql",
            help="Also show whether the query shares a node and partials with this query of the same job, or could.",
        ),
    ] = None,
    names: Annotated[
        Vocabulary, typer.Option(help="Names of the result's columns, as for query.", case_sensitive=False)
    ] = Vocabulary.LOWMARK,
    kernel: Annotated[bool, typer.Option("--kernel", help="Also show the generated low-level kernel.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Show both halves of a query's plan: what the capture process does with packets, and what the job does with
    partials. Also shows panes, granule, buckets, growth of state and the JSON schema of the results.

    Examples:

    \b
      lowmark explain "SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP"
      lowmark explain -f query.sql --kernel
      lowmark explain -f query.sql -r monday.pcap --disorder 'measured 99%'
      lowmark explain -f join.sql --rate M1=100000/s --rate M2=20000/s --selectivity M1,M2=0.00001
    """
    text, name = query_text(sql, file)
    declared = None if disorder is None else _declared(disorder)
    expected = expected_of(rate, selectivity, groups)
    limits = limits_of(limit_groups, expire_idle)
    joins = joins_of(join_memory, join_buffer, join_limit, join_disk, scrambling, pair_ns)
    from lowmark.query.compile import compile_query
    from lowmark.query.explain.report import describe, render
    from lowmark.query.explain.sharing import describe_beside, render_beside
    from lowmark.query.result_names import NameClash, result_names

    with known_names():
        plan = compile_query(
            text, name=name, buckets=buckets, late=late, expected=expected, strategy=strategy,
            limits=limits, joins=joins, ends=True,
        )  # fmt: skip
    try:
        shown = result_names(plan, names)
    except NameClash as error:
        raise typer.BadParameter(str(error), param_hint="'--names'") from None
    texts = [query_text(None, path) for path in beside or ()]
    others = [compile_query(other, name=called, buckets=buckets) for other, called in texts]
    disorder_meaning = None if declared is None else _meaning(declared)
    captures = _seen(read, plan, declared) if read else []
    if json_:
        facts = describe(plan, shown) | ({} if disorder_meaning is None else {"disorder": disorder_meaning})
        facts |= {"captures": [one.facts for one in captures]} if captures else {}
        typer.echo(json.dumps(facts | ({"beside": describe_beside(plan, others)} if others else {}), indent=2))
    else:
        typer.echo(render(plan, shown))
        if others:
            typer.echo(render_beside(plan, others))
        if disorder_meaning is not None:
            typer.echo(f"disorder    {disorder_meaning}")
        for one in captures:
            typer.echo(f"capture     {one}")
    if kernel:
        from lowlevel.kernel.codegen.assemble import kernel_source

        typer.echo(kernel_source(plan.stage.nodes))
    for one in captures:
        for said in one.untimed.said:
            error_console().print(f"{one.name}: {said}", markup=False)
        for damage in one.damages:
            error_console().print(f"{damage.kind}: {damage}", markup=False)
    if any(one.damages for one in captures):
        raise typer.Exit(3)


def _declared(disorder: str) -> Disorder:
    from ingest.disorder.declarations import DisorderError, parse_disorder

    try:
        return parse_disorder(disorder)
    except DisorderError as error:
        raise typer.BadParameter(str(error), param_hint="'--disorder'") from None


def _meaning(declared: Disorder) -> str:
    from ingest.disorder.low_watermarks import meaning

    return f"{declared}: {meaning(declared)}"


def _seen(read: list[str], plan: QueryPlan, declared: Disorder | None) -> list[Scanned] | list[Declared]:
    """The findings for each capture."""
    from lowmark.app.local.bindings import bind
    from lowmark.app.local.scan import declared_of, scan_capture

    streams = tuple(dict.fromkeys(stream for node in plan.stage.nodes for stream in node.streams))
    paths = dict.fromkeys(binding.path for binding in bind(read, (), streams, error_console().print))
    if declared is None:
        return [scan_capture(path) for path in paths]
    return [declared_of(path, declared) for path in paths]
