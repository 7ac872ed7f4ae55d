"""Fig. 6-19: memory, latency and time of eager aggregation (WID), lazy aggregation and AdaptWID, over skewed data.

Q6-7 is a tumbling sum over one link, over the data sets of table 6-2, and, as its sentence has it where its SELECT has
one second, a sum over ten; Q6-8 a sliding count over three links, one of which lags behind. They run at operator level
on tuples, in panes of 20 ms. Then Q6-8 as the product runs it, on partials of panes of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from bench.baselines.buffering import LazyOperator
from bench.common.aggregate_runs import Feeding, Taken, aggregate_of, feed, rows_of
from bench.common.reports import Figure, spread, write_csv
from highlevel.interface import Operator, Words
from highlevel.operators.aggregate import AggregateOperator
from lowmark.query.expr.evaluate import Ints
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER

__all__ = ["SKEWS", "measure_skew"]

SKEWS = (0, 2, 5, 10, 20)
"""Seconds that the Control link lags behind the two others."""

_SMALL = {"DS1": 0.01, "DS2": 0.03, "DS3": 0.05, "DS4": 0.07, "DS5": 0.09}
"""Of table 6-2: the share of the data that is in groups of one record; 0.2 are in groups of 15, the rest of 300."""

_FINE = 50
"""Panes of a second."""

_WAYS = {"eager": Strategy.WID, "lazy": None, "AdaptWID": Strategy.ADAPT}
"""None: tuples are buffered."""

_SEED = 8


@dataclass(frozen=True, slots=True)
class _Run:
    """Of some runs, the median of latency and time; what is kept is the same in all."""

    query: str
    at: str | int  # the data set, or the skew
    way: str
    most_bytes: int
    latency_ms: float
    seconds: float  # of CPU
    tuples: int

    @property
    def row(self) -> tuple[object, ...]:
        return (self.query, self.at, self.way, self.most_bytes, self.latency_ms, self.seconds, self.tuples)


_PANELS: tuple[tuple[str, str, str, Callable[[_Run], float]], ...] = (
    ("", "the most state that is kept (after fig. 6-19a)", "KiB", lambda run: run.most_bytes / 2**10),
    ("_latency", "from a promise to the rows it lets out (after fig. 6-19b)", "CPU ms", lambda run: run.latency_ms),
    ("_time", "the time of the run (after fig. 6-19c)", "CPU seconds", lambda run: run.seconds),
)


def measure_skew(results: Path, *, seconds: int, rate: int, repeat: int, skews: Sequence[int] = SKEWS) -> None:
    """`rate`: tuples a second of Q6-7's link, and of the two main links of Q6-8 together."""
    runs = [
        *_single(seconds, rate, repeat, 1),
        *_single(seconds, rate, repeat, 10),
        *_sliding(seconds, rate, repeat, skews, _FINE),
        *_sliding(seconds, rate, repeat, skews, 1),
    ]
    write_csv(
        results, "fig_6_19", ("query", "at", "way", "most_state_bytes", "latency_ms", "cpu_s", "rows_in"),
        [run.row for run in runs],
    )  # fmt: skip
    for query, label, name in (
        ("Q6-7", "data set: more and more small groups", "fig_6_19_q6_7"),
        ("Q6-7 over 10 s", "data set: more and more small groups", "fig_6_19_q6_7_sliding"),
        ("Q6-8", "skew of the Control link, seconds", "fig_6_19_q6_8"),
        ("Q6-8 on panes of 1 s", "skew of the Control link, seconds", "fig_6_19_panes"),
    ):
        of = [run for run in runs if run.query == query]
        pairs = [
            (adapt, eager) for adapt in of for eager in of
            if (adapt.way, eager.way) == ("AdaptWID", "eager") and adapt.at == eager.at
        ]  # fmt: skip
        for suffix, title, unit, value in _PANELS:
            ours = f"{spread(value(adapt) / value(eager) for adapt, eager in pairs)} times eager aggregation's"
            with Figure(results, name + suffix, f"{query}: {title}", f"that of AdaptWID is {ours}") as axes:
                for way in dict.fromkeys(run.way for run in of):
                    points = [run for run in of if run.way == way]
                    axes.plot([str(point.at) for point in points], [*map(value, points)], "o-", label=way)
                axes.set_xlabel(label)
                axes.set_ylabel(unit)
                axes.set_ylim(bottom=0)
                axes.legend()


def _single(seconds: int, rate: int, repeat: int, size: int) -> Iterator[_Run]:
    """Large and medium groups go on from second to second; small ones are new each time. `size`: of a window, in
    seconds."""
    window = Window(WindowKind.SLIDING, size * _FINE, _FINE, Axis("ts", Kind.TIME, 10**9 // _FINE))
    query = "Q6-7" if size == 1 else f"Q6-7 over {size} s"
    for name, small in _SMALL.items():
        random = np.random.default_rng(_SEED)
        parts = [(_panes(second, rate, random), _groups(second, rate, small, random)) for second in range(seconds)]
        yield from _compared(query, name, "sum(len)", window, _WAYS, repeat, partial(_in_order, parts))


def _sliding(seconds: int, rate: int, repeat: int, skews: Sequence[int], fine: int) -> Iterator[_Run]:
    """The links' tuples come as their clocks go, and Control's second comes `skew` after theirs. Small groups are 5 %
    of the data, as in DS3. `fine`: panes of a second."""
    window = Window(WindowKind.SLIDING, 10 * fine, fine, Axis("ts", Kind.TIME, 10**9 // fine))
    query = "Q6-8" if fine > 1 else "Q6-8 on panes of 1 s"
    ways = _WAYS if fine > 1 else {**_WAYS, "paned": Strategy.PANED}
    for skew in skews:
        random = np.random.default_rng(_SEED)
        parts = [
            (_panes(second, rate, random) * fine // _FINE, _groups(second, rate, _SMALL["DS3"], random))
            for second in range(seconds)
        ]
        control = [(np.array([second * fine]), np.array([_CONTROL])) for second in range(seconds)]
        yield from _compared(
            query, skew, "count(*)", window, ways, repeat,
            partial(_lagging, parts, control, skew, fine),
        )  # fmt: skip


Parts = Sequence[tuple[Ints, Ints]]
_CONTROL = 1 << 30
"""The one group of the Control link, which is almost empty."""


def _compared(
    query: str, at: str | int, call: str, window: Window, ways: Mapping[str, Strategy | None], repeat: int,
    stream: Callable[[Aggregate], Iterator[Feeding]],
) -> Iterator[_Run]:  # fmt: skip
    operators: dict[str, Callable[[], Operator]] = {
        way: partial(AggregateOperator, aggregate_of(call, window, strategy))
        if strategy
        else partial(LazyOperator, aggregate_of(call, window, Strategy.AUTO))
        for way, strategy in ways.items()
    }
    feedings = list(stream(aggregate_of(call, window, Strategy.AUTO)))
    # What is kept is asked for in runs of their own, which also load all that is loaded when it is first used.
    kept = {way: feed(operator(), feedings, measure=True) for way, operator in operators.items()}
    if len(rows := {taken.rows for taken in kept.values()}) > 1:
        raise RuntimeError(f"{query} at {at}: answers differ, {rows} rows")
    timed: dict[str, list[Taken]] = {way: [] for way in ways}
    for way, operator in [*operators.items()] * repeat:
        timed[way].append(feed(operator(), feedings))
    found = []
    for way, runs in timed.items():
        latency, total = median(run.latency for run in runs), median(run.total for run in runs)
        found.append(_Run(query, at, way, kept[way].most_bytes, 1e3 * latency, total, kept[way].tuples))
    eager = next(run for run in found if run.way == "eager")
    for run in found:
        print(
            f"{run.query}, {run.at:>3} {run.way:8}: {run.most_bytes / 2**10:7.1f} KiB "
            f"({run.most_bytes / eager.most_bytes:.2f} of eager), latency {run.latency_ms:7.2f} ms "
            f"({run.latency_ms / eager.latency_ms:.2f}), {run.seconds:.3f} s ({run.seconds / eager.seconds:.2f})",
            flush=True,
        )
    yield from found


def _panes(second: int, rate: int, random: np.random.Generator) -> Ints:
    """Fine ones, ascending."""
    return second * _FINE + np.sort(random.integers(0, _FINE, rate))


def _groups(second: int, rate: int, small: float, random: np.random.Generator) -> Ints:
    """Of each tuple of a second."""
    ones = round(rate * small)
    medium, large = max(1, round(rate * 0.2 / 15)), max(1, round(rate * (0.8 - small) / 300))
    of_medium = random.integers(0, medium, round(rate * 0.2))
    of_large = medium + random.integers(0, large, rate - ones - len(of_medium))
    new = (1 << 20) + second * rate + np.arange(ones)
    return random.permutation(np.concatenate((new, of_medium, of_large)))


def _in_order(parts: Parts, plan: Aggregate) -> Iterator[Feeding]:
    for second, (panes, groups) in enumerate(parts, 1):
        yield Feeding(rows_of(plan, panes, groups), second * _FINE)
    yield _end(plan)


def _lagging(parts: Parts, control: Parts, skew: int, fine: int, plan: Aggregate) -> Iterator[Feeding]:
    for second in range(len(parts) + skew):
        late = second - skew
        came = [part[of] for part, of in ((parts, second), (control, late)) if 0 <= of < len(part)]
        panes, groups = (np.concatenate(column) for column in zip(*came, strict=True))
        rows = rows_of(plan, panes, groups) if fine > 1 else _partials(plan, panes, groups)
        yield Feeding(rows, (late + 1) * fine if late >= 0 else None)
    yield _end(plan)


def _partials(plan: Aggregate, panes: Ints, groups: Ints) -> Words:
    """Of a count, as the low level sends them: one a group and pane."""
    (panes, groups), tuples = np.unique((panes, groups), axis=1, return_counts=True)
    rows = rows_of(plan, panes, groups)
    rows[:, 2] = tuples
    return rows


def _end(plan: Aggregate) -> Feeding:
    nothing = np.empty(0, np.int64)
    return Feeding(rows_of(plan, nothing, nothing), FOREVER)
