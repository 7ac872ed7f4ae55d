"""`lowmark query`: runs a request; writes rows to the output, progress and audit to standard error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import typer
from rich.text import Text

from ingest.disorder.declarations import parse_disorder
from ingest.live.interfaces import ANY, ANY_PROMISCUOUS
from lowlevel.config import Flush, FlushOrder, LowLevelConfig, LowLevelConfigError, table_size
from lowmark.app.capture.table_memory import check_tables
from lowmark.app.console import Teller, counted, error_console, telling
from lowmark.app.local.bindings import bind, fanned_out
from lowmark.app.local.formats import Format
from lowmark.app.local.late_lines import TellLate
from lowmark.app.local.output import open_output
from lowmark.app.local.runner import LocalRun
from lowmark.query.compile import compile_query
from lowmark.query.explain.notes import gaps
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.options import Joins, Late, Limits, Strategy, Vocabulary
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.result_names import NameClash, result_names

__all__ = ["QueryRequest", "answer"]

_DAMAGED, _LOSSY = 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    sql: str
    name: str
    read: tuple[str, ...]
    follow: bool
    interfaces: tuple[str, ...]
    fanout: int
    promiscuous: bool
    kernel_filter: bool
    disorder: str | None
    flush: Flush
    flush_every: int
    flush_panes: int
    order: FlushOrder
    late: Late
    strategy: Strategy
    expected: Expected
    limits: Limits
    joins: Joins
    table: str
    format: Format | None
    names: Vocabulary
    output: Path | None
    quiet: bool


def answer(request: QueryRequest) -> int:
    """Returns the exit code. Raises errors that `exit_codes` can show."""
    _check_interface_options(request)
    disorder = None if request.disorder is None else parse_disorder(request.disorder)
    streams, notes = _streams(_planned(request, None)), list[str]()
    bindings = fanned_out(bind(request.read, request.interfaces, streams, notes.append), request.fanout)
    if request.promiscuous and any(binding.live and binding.path == ANY for binding in bindings):
        raise typer.BadParameter(ANY_PROMISCUOUS, param_hint="'--promiscuous'")
    counts = {binding.stream: 0 for binding in bindings}
    for binding in bindings:
        counts[binding.stream] += 1
    plan = _planned(request, counts)
    names = _names(plan, request.names)
    config = _config(request)
    nodes = [node for binding in bindings for node in plan.stage.nodes if binding.stream in node.streams]
    check_tables(nodes, config, f"--table {request.table}")
    with telling(request.quiet) as tell:
        run = LocalRun(
            plan, bindings, disorder=disorder, config=config, follow=request.follow,
            promiscuous=request.promiscuous,
            kernel_filter=request.kernel_filter, tell=tell.note, on_late=TellLate(request.late, names),
        )  # fmt: skip
        run.audit.notes += notes
        for text in gaps(plan.steps):
            tell.note(Text.assemble(("note:", "yellow"), " ", text))
        try:
            with tell.while_compiling():
                run.start()
                with _stopped_by_signals(run):
                    if run.unending:
                        paths = dict.fromkeys(binding.path for binding in bindings)
                        tell(f"reading {', '.join(paths)}; Ctrl-C ends it")
                    _write(request, plan, names, run, tell)
        finally:
            run.close()
    if not request.quiet:
        run.audit.show(error_console())
    if run.audit.damage:
        return _DAMAGED
    return _LOSSY if run.audit.reasons else 0


def _check_interface_options(request: QueryRequest) -> None:
    given = {
        "--fanout": request.fanout > 1, "--promiscuous": request.promiscuous, "--kernel-filter": request.kernel_filter
    }  # fmt: skip
    idle = [option for option, is_given in given.items() if is_given]
    if idle and not request.interfaces:
        raise typer.BadParameter(
            f"{', '.join(idle)} {'applies' if len(idle) == 1 else 'apply'} to interfaces (-i), and no -i is given",
            param_hint=f"'{idle[0]}'",
        )
    if request.follow and not request.read:
        raise typer.BadParameter(
            "it applies to files (-r), and no -r is given; an interface never ends anyway", param_hint="'--follow'"
        )


def _planned(request: QueryRequest, streams: Mapping[str, int] | None) -> QueryPlan:
    """`streams`: the number of sources of each stream; None: not known yet."""
    return compile_query(
        request.sql, name=request.name, streams=streams, buckets=1, late=request.late, expected=request.expected,
        strategy=request.strategy, stored=False, limits=request.limits, joins=request.joins, ends=True,
    )  # fmt: skip


def _config(request: QueryRequest) -> LowLevelConfig:
    try:
        slots, memory = table_size(request.table)
        table = LowLevelConfig(slots=slots or 1, memory=request.table if memory else "", order=request.order)
    except LowLevelConfigError as error:
        raise LowLevelConfigError(f"--table {request.table}: {error}") from None
    if request.flush_every and request.flush is not Flush.SLOW:
        raise typer.BadParameter(
            f"it works only with --flush slow, and --flush is {request.flush.value}", param_hint="'--flush-every'"
        )
    return replace(table, flush=request.flush, flush_every=request.flush_every, flush_panes=request.flush_panes)


@contextmanager
def _stopped_by_signals(run: LocalRun) -> Iterator[None]:
    """Ctrl-C or SIGTERM stops the input, for runs that do not end by themselves; a second Ctrl-C interrupts as
    usual."""
    if not run.unending:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _streams(plan: QueryPlan) -> tuple[str, ...]:
    """The streams that the query reads, each once."""
    return tuple(dict.fromkeys(stream for node in plan.stage.nodes for stream in node.streams))


def _names(plan: QueryPlan, names: Vocabulary) -> Mapping[str, str]:
    try:
        return result_names(plan, names)
    except NameClash as error:
        raise typer.BadParameter(str(error), param_hint="'--names'") from None


def _write(request: QueryRequest, plan: QueryPlan, names: Mapping[str, str], run: LocalRun, tell: Teller) -> None:
    format_ = request.format or (Format.TABLE if request.output is None and sys.stdout.isatty() else Format.JSONL)
    sink = open_output(format_, request.output, plan.output, names)
    seen = request.output is None and sys.stdout.isatty()
    try:
        for rows in run.results(lambda: _progress(run, tell)):
            with tell.aside() if seen else nullcontext():
                sink.write(rows)
    finally:
        sink.close()


def _progress(run: LocalRun, tell: Teller) -> None:
    total = run.total_bytes
    if run.unending:
        tell.passing(f"{counted(run.received, 'frame')}, {counted(run.audit.rows, 'row')}; Ctrl-C ends it")
    elif total:
        tell.passing(
            f"reading: {100 * run.read_bytes / total:.0f}% of {total / 1e6:,.0f} MB, {counted(run.audit.rows, 'row')}"
        )
