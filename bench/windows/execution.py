"""Fig. 6-10: the execution time of a window over rows by WID (each row goes into every window that holds it) and by
buffering, over its SLIDE; and by what a plan takes where no strategy is asked for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.baselines.buffering import BufferingOperator
from bench.common.reports import Figure, write_csv
from highlevel.build import build
from highlevel.graph import Graph
from highlevel.interface import MarkOut, Operator, Out, State, Words
from highlevel.limits import GroupLimit
from highlevel.row_marks import RowMark
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate, QueryPlan, StepPlan
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["contenders", "measure_execution"]

_RANGE = 4000
_SLIDES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000)
_A_SECOND = 4000
_SEED = 8

Build = Callable[[StepPlan, GroupLimit], Operator]


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Of CPU, the median of some runs."""

    slide: int
    scan: float  # tuples put in order and numbered, and no more
    wid: float
    auto: float
    buffering: float


class _Nothing:
    """In the place of the aggregate: what is left is the cost of scanning the stream."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        pass

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        pass

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, mark)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


def measure_execution(results: Path, *, tuples: int, repeat: int, slides: Sequence[int] = _SLIDES) -> None:
    """The operators of one query's chain in this process, fed with what a node sends; answers are compared first."""
    stream = _stream(tuples)
    seconds = []
    for slide in slides:
        ways = contenders(slide)
        ours, *others = (_run(*way, stream)[1] for label, way in ways.items() if label != "scan")
        if not all(np.array_equal(ours, answer) for answer in others):
            raise RuntimeError(f"SLIDE {slide}: the answers differ")
        taken = {label: statistics.median(_run(*way, stream)[0] for _ in range(repeat)) for label, way in ways.items()}
        item = _Seconds(slide, taken["scan"], taken["WID"], taken["auto"], taken["buffering"])
        seconds.append(item)
        print(
            f"SLIDE {slide:5} rows: WID {item.wid:7.4f} s, auto {item.auto:7.4f} s, buffering {item.buffering:7.4f} s, "
            f"{item.buffering / item.wid:5.1f} times WID; scanning alone {item.scan:.4f} s",
            flush=True,
        )
    _report(results, seconds, tuples)


def contenders(slide: int) -> dict[str, tuple[QueryPlan, Build]]:
    """By label, a plan and what builds its operators. `scan` is the chain without an aggregate."""
    text = f"SELECT max(len) [RANGE {_RANGE} rows, SLIDE {slide} rows, WA row_num] FROM Main"
    chosen = compile_query(text)
    return {
        "WID": (compile_query(text, strategy=Strategy.WID), build),
        "auto": (chosen, build),
        "buffering": (chosen, _buffering),
        "scan": (chosen, _scanning),
    }


def _stream(tuples: int) -> Words:
    """Rows (null mask, pane, tuples, len) as the node of the query sends them, in order."""
    rows = np.zeros((tuples, 4), np.uint64)
    rows[:, 1] = np.arange(tuples) // _A_SECOND
    rows[:, 2] = 1
    rows[:, 3] = np.random.default_rng(_SEED).integers(40, 1514, tuples)
    return rows


def _buffering(plan: StepPlan, limit: GroupLimit) -> Operator:
    return BufferingOperator(plan) if isinstance(plan, Aggregate) else build(plan, limit)


def _scanning(plan: StepPlan, limit: GroupLimit) -> Operator:
    return _Nothing() if isinstance(plan, Aggregate) else build(plan, limit)


def _run(plan: QueryPlan, builder: Build, stream: Words) -> tuple[float, Words]:
    """CPU seconds, and the rows of the answer."""
    (node,) = plan.stage.nodes
    if node.reduction.schema.words != stream.shape[1]:
        raise RuntimeError(f"the node sends {node.reduction.schema.names}")
    graph = Graph((plan,), builder, MemoryState())
    parts = [stream[start : start + _A_SECOND] for start in range(0, len(stream), _A_SECOND)]
    rows: list[Words] = []
    began = time.process_time()
    for second, part in enumerate(parts, 1):
        graph.feed(node.name, part)
        graph.promise(node.name, second)
        graph.work()
        rows += graph.answers[plan.name].take_events().rows
    graph.promise(node.name, FOREVER)
    graph.work()
    rows += graph.answers[plan.name].take_events().rows
    taken = time.process_time() - began
    return taken, np.concatenate(rows) if rows else np.empty((0, 0), np.uint64)


def _report(results: Path, seconds: list[_Seconds], tuples: int) -> None:
    write_csv(
        results, "fig_6_10",
        ("slide_rows", "scan_cpu_s", "wid_cpu_s", "auto_cpu_s", "buffering_cpu_s", "buffering_to_wid"),
        [
            (item.slide, item.scan, item.wid, item.auto, item.buffering, item.buffering / item.wid)
            for item in seconds
        ],
    )  # fmt: skip
    slides = [item.slide for item in seconds]
    ratios = ", ".join(f"{item.buffering / item.wid:.1f} at SLIDE {item.slide:,}" for item in seconds)
    ours = f"buffering takes so many times the CPU time of WID: {ratios}"
    title = f"max, RANGE {_RANGE} rows: {tuples:,} tuples (after fig. 6-10)"
    with Figure(results, "fig_6_10", title, ours) as axes:
        axes.loglog(slides, [item.buffering for item in seconds], "s-", label="buffering")
        axes.loglog(slides, [item.wid for item in seconds], "o-", label="WID")
        axes.loglog(slides, [item.auto for item in seconds], "^-", label="what lowmark chooses")
        axes.loglog(slides, [item.scan for item in seconds], ":", label="scanning the stream")
        axes.set_xlabel("SLIDE, rows")
        axes.set_ylabel("CPU seconds")
        axes.legend()
    least = min(seconds, key=lambda item: item.buffering / item.wid)
    print(f"buffering takes {least.buffering / least.wid:.1f} times as long as WID at the least (SLIDE {least.slide})")
