"""Figs. 6-11 and 6-12: latency against accuracy of WID with punctuations, and of buffering with slack, consistent and
generous, for the two kinds of disorder of 6.1.5.

Band disorder: a tuple comes up to so much later than its time says (the eighth packet of a flow, by the flow's start).
Block-sorted: when a block of time is over a router puts out its flows, in the order of its hash table, spread over the
time of the next block. Latency is how long after the end of a window its result is out, by the clock of arrival. A
punctuation is told as soon as no tuple before it can come, as by a source that knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.baselines.buffering import BufferingOperator
from bench.common.aggregate_runs import aggregate_of, rows_of
from bench.common.reports import Figure, write_csv
from highlevel.interface import Operator, Words
from highlevel.operators.aggregate import AggregateOperator
from highlevel.row_marks import RowMark
from highlevel.state import MemoryState
from lowmark.query.expr.evaluate import Ints
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.words import column_of

__all__ = ["BAND", "BLOCKS", "Case", "measure_disorder"]

_SEED = 8
_TOGETHER = 10
"""Tuples that are fed at a time: the resolution of what is measured."""


Answers = dict[int, tuple[float, float]]
"""When a result came, in seconds, and what it is; by the end of its window, in ns."""


@dataclass(frozen=True, slots=True)
class Case:
    """Times in ms. `most`: the disorder of the input at the most."""

    name: str
    disorder: str
    call: str
    size: int
    slide: int
    pane: int
    most: int
    rate: float  # tuples a second
    slacks: tuple[int, ...]
    length: int  # of the stream
    unit: str  # what the error is


BAND = Case(
    "fig_6_11", "band", "avg(len)", 64_000, 6_400, 10, 3_200, 100.0, (0, 320, 640, 1_280, 2_560, 3_200), 640_000,
    "mean error, %",
)  # fmt: skip
BLOCKS = Case(
    "fig_6_12", "block-sorted", "count(*)", 600_000, 60_000, 100, 490_000, 10.0,
    (0, 54_400, 109_100, 218_200, 327_300, 434_200, 490_900, 600_000), 4_900_000, "wrong answers, %",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    way: str
    slack: int | None
    latency: float  # mean, in seconds
    error: float  # percent
    dropped: int


@dataclass(slots=True)
class _Results:
    """An `Out` that notes when which result came: by the end of its window, the clock and the value."""

    plan: Aggregate
    clock: float = 0.0
    found: Answers = field(default_factory=dict)

    def rows(self, port: int, rows: Words) -> None:
        ends, _ = column_of(self.plan.output, rows, "window_end")
        values, _ = column_of(self.plan.output, rows, self.plan.output.names[-1])
        for end, value in zip(ends.tolist(), values.tolist(), strict=True):
            self.found[end] = (self.clock, value)

    def promise(self, port: int, promise: Promise) -> None:
        pass

    def closed(self, port: int, windows: range, tuples: int) -> None:
        pass

    def late(self, port: int, rows: Words) -> None:
        raise RuntimeError("a punctuation was told too early")

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        raise RuntimeError(reason.value)

    def mark(self, port: int, mark: RowMark) -> None:
        raise RuntimeError(f"{mark}")

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        raise RuntimeError(f"window {window}: {reason.value}")


def measure_disorder(results: Path, case: Case, *, length: int | None = None) -> None:
    """`length` of the stream in ms, by default the case's."""
    window = Window(
        WindowKind.SLIDING, case.size // case.pane, case.slide // case.pane, Axis("ts", Kind.TIME, case.pane * 10**6)
    )
    plan = aggregate_of(case.call, window, Strategy.WID)
    times, arrivals = _times(case, length or case.length)
    rows = rows_of(plan, times // case.pane, np.zeros(len(times), np.int64))
    if rows.shape[1] > 6:
        rows[:, 6] = np.random.default_rng(_SEED).pareto(1.5, len(rows)).clip(0, 30) * 45 + 40
    truth = _run(case, plan, AggregateOperator(plan), rows, times, arrivals, True)
    ways: list[tuple[str, int | None, Answers, int]] = [("WID, punctuations", None, truth, 0)]
    for generous in (False, True):
        for slack in case.slacks:
            operator = BufferingOperator(plan, slack // case.pane, generous=generous)
            seen = _run(case, plan, operator, rows, times, arrivals, False)
            ways.append((f"buffering, {'generous' if generous else 'consistent'} slack", slack, seen, operator.dropped))
    # Windows that all have a result of, but the first ones, which began before the stream did.
    ends = [end for end in truth if end >= case.size * 10**6 and all(end in seen for _, _, seen, _ in ways)]
    found = [_judged(way, slack, seen, truth, ends, case, dropped) for way, slack, seen, dropped in ways]
    _report(results, case, found)


def _times(case: Case, length: int) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Of the tuples, in their order of arrival, in ms; and when they arrive, in seconds."""
    random = np.random.default_rng(_SEED)
    count = round(length / 1000 * case.rate)
    times = np.sort(random.integers(0, length, count))
    if case.disorder == "band":
        arrivals = times + random.exponential(case.most / 5, count).clip(0, case.most)
    else:
        arrivals = (times // case.most + 1 + random.random(count)) * case.most
    order = np.argsort(arrivals, kind="stable")
    return times[order], arrivals[order] / 1000


def _run(
    case: Case, plan: Aggregate, operator: Operator, rows: Words, times: Ints, arrivals: npt.NDArray[np.float64],
    punctuated: bool,
) -> Answers:  # fmt: skip
    state, out = MemoryState(), _Results(plan)
    least_to_come = np.minimum.accumulate(times[::-1])[::-1]
    for start in range(0, len(rows) - _TOGETHER, _TOGETHER):
        end = start + _TOGETHER
        out.clock = float(arrivals[end - 1])
        operator.on_batch(0, rows[start:end], state, out)
        if punctuated:
            operator.on_promise(0, Promise((Bound(PANE, int(least_to_come[end]) // case.pane),)), state, out)
    return out.found


def _judged(
    way: str, slack: int | None, seen: Answers, truth: Answers, ends: list[int], case: Case, dropped: int
) -> _Found:
    late = [seen[end][0] - end / 1e9 for end in ends]
    values: npt.NDArray[np.float64] = np.array([(seen[end][1], truth[end][1]) for end in ends], np.float64)
    if case.disorder == "band":
        error = float(np.mean(np.abs(values[:, 0] - values[:, 1]) / values[:, 1]))
    else:
        error = float(np.mean(values[:, 0] != values[:, 1]))
    return _Found(way, slack, float(np.mean(late)), 100 * error, dropped)


def _report(results: Path, case: Case, found: list[_Found]) -> None:
    write_csv(
        results, case.name, ("way", "slack_s", "latency_s", case.unit.replace(", %", "_percent"), "dropped"),
        [(f.way, "" if f.slack is None else f.slack / 1000, f.latency, f.error, f.dropped) for f in found],
    )  # fmt: skip
    for item in found:
        slack = "" if item.slack is None else f" of {item.slack / 1000:g} s"
        print(
            f"{item.way}{slack}: latency {item.latency:.2f} s, {case.unit[:-3]} {item.error:.4g} %, "
            f"{item.dropped:,} tuples dropped"
        )
    title = f"{case.disorder} disorder, RANGE {case.size // 1000} s, SLIDE {case.slide / 1000:g} s"
    title += f" (after {case.name.replace('fig_', 'fig. ').replace('_', '-')})"
    least = {item.way: item for item in sorted(found, key=lambda item: (-item.error, -item.latency))}
    each = (
        f"{way} {item.latency:.3g} s and {item.error:.3g} %"
        + ("" if item.slack is None else f" (slack of {item.slack / 1000:g} s)")
        for way, item in least.items()
    )
    ours = f"latency and {case.unit[:-3]} where that is least: {'; '.join(each)}"
    with Figure(results, case.name, title, ours) as axes:
        for way, mark in zip(dict.fromkeys(item.way for item in found), ("k*", "o-", "s-"), strict=True):
            of = [item for item in found if item.way == way]
            axes.plot([item.latency for item in of], [item.error for item in of], mark, label=way)
        axes.set_xlabel("latency of results, seconds behind the end of their windows")
        axes.set_ylabel(case.unit)
        axes.legend()
