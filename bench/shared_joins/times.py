"""Figs. 5 to 9 of Hammad 2003: response times of the queries that share a join, by largest window only (LWO), smallest
window first (SWF) and query throughput (MQT), on a virtual clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul
from pathlib import Path

import numpy as np

from bench.common.join_runs import NS, rows_of
from bench.common.reports import Figure, write_csv
from bench.common.response_times import Burst, Collected, Costs, bursts_of, fitted, pareto_times
from highlevel.interface import ONLY, Words
from highlevel.join.kept_rows import Kept
from highlevel.join.shared import SharedJoinOperator
from highlevel.join.shared.buffer import SharedBuffer
from highlevel.join.shared.waiting import WaitingRows, waiting_space
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.nodes import Join
from lowmark.query.plan.shared_joins import SCHEDULES, SharedJoin
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise

__all__ = [
    "DISTRIBUTIONS",
    "Setting",
    "costs_here",
    "joins_of",
    "measure_bursts",
    "measure_distributions",
    "measure_queries",
    "rows_at",
    "run",
]

DISTRIBUTIONS: Mapping[str, tuple[int, ...]] = {
    "uniform": (1, 100, 200, 300, 400, 500, 600),
    "mostly-small": (1, 5, 15, 30, 60, 300, 600),
    "mostly-large": (1, 60, 300, 420, 510, 570, 600),
    "small-large": (1, 5, 15, 300, 510, 570, 600),
}
"""Table 1: seconds of the windows."""

_KEYS = 500
"""Of equally many rows each: two rows are equal with probability 0.002, as in section 5."""

_SQL = (
    "SELECT A.ts, B.ts AS later FROM A [RANGE {n} seconds, WA ts], B [RANGE {n} seconds, WA ts] WHERE A.srcIP = B.srcIP"
)
_TOLD = 30 * NS
"""Between two promises."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Of one run. `load`: the share of time that the join is at work; the costs of work are scaled to reach it."""

    windows: tuple[int, ...]
    readers: tuple[int, ...]
    burst: float
    rate: int
    tuples: int
    load: float
    seed: int = 11


@dataclass(frozen=True, slots=True)
class Times:
    """Response times in seconds, by window, and what is kept."""

    mean: tuple[float, ...]
    most: tuple[float, ...]
    overall: float  # the mean over queries of their means
    by_row: float  # the mean over all rows of all queries
    waiting: int  # rows, at the most
    held: int  # results held back, at the most
    kept: int  # rows


def joins_of(windows: Sequence[int]) -> tuple[Join, ...]:
    plans = [compile_query(_SQL.format(n=seconds), buckets=1).steps[0].plan for seconds in windows]
    return tuple(plan for plan in plans if isinstance(plan, Join))


def rows_at(join: Join, port: int, times: Ints, random: np.random.Generator, keys: int = _KEYS) -> Words:
    """Rows of a port at these times, each of one of so many keys."""
    schema = join.inputs[port].schema
    values = {"pane": times // NS, "tuples": np.ones(len(times), np.int64), "ts": times,
              "srcIP": random.integers(0, keys, len(times))}  # fmt: skip
    return rows_of(schema, {name: values[name] for name in schema.names})


def _filled(plan: SharedJoin, setting: Setting, random: np.random.Generator) -> MemoryState:
    """The state after the longest window has passed, with nothing waiting: what came is kept and was served."""
    state, largest = MemoryState(), plan.largest
    count = setting.rate * setting.windows[-1]
    for port in (0, 1):
        times = np.sort(random.integers(0, setting.windows[-1] * NS, count))
        buffer = SharedBuffer(largest, port, Kept(largest).width)
        buffer.add(rows_at(largest, port, times, random), 2 * np.arange(count) + port, state)
    joins = len(plan.joins)
    state.put(waiting_space(joins), ONLY, WaitingRows(joins, arrivals=2 * count))
    return state


def _arrivals(plan: SharedJoin, setting: Setting, random: np.random.Generator) -> list[Burst]:
    start = setting.windows[-1] * NS
    found = []
    for port in (0, 1):
        times = pareto_times(random, start, setting.tuples // 2, setting.rate, setting.burst)
        found += bursts_of(times, port, lambda at, port=port: rows_at(plan.largest, port, at, random))  # type: ignore[misc]
    return sorted(found, key=lambda burst: burst.at)


def costs_here(rate: int) -> Costs:
    """What scans, rows looked at and rows emitted take on this machine, in long runs over full windows."""
    random = np.random.default_rng(5)
    runs = []
    for windows, tuples in (((1,), 20_000), ((1, 2, 3, 4, 5, 6, 7), 8_000), ((60,), 8_000), ((200, 400, 600), 1_000)):
        plan = SharedJoin(joins_of(windows), (1,) * len(windows), Scheduling.LWO)
        setting = Setting(windows, plan.readers, 1, rate, tuples, 1)
        rows = rows_at(plan.largest, 0, np.full(tuples, windows[-1] * NS), random)
        states = [_filled(plan, setting, random) for _ in range(2)]
        _served(plan, rows, states[0])  # warms up
        runs.append(partial(_served, plan, rows, states[1]))
    return fitted(runs)


def _served(plan: SharedJoin, rows: Words, state: MemoryState) -> tuple[int, int, int]:
    """Scans, rows looked at and rows emitted for rows that come at once."""
    operator, out = SharedJoinOperator(plan), Collected()
    operator.on_batch(0, rows, state, out)
    scans = operator.waiting(state).scans
    while operator.work(state, out, 1 << 16):
        out.take()
    return scans, operator.waiting(state).examined, out.count


def run(setting: Setting, scheduling: Scheduling, costs: Costs) -> Times:
    """Serve the rows of a setting one scan at a time, on the virtual clock."""
    plan = SharedJoin(joins_of(setting.windows), setting.readers, scheduling)
    random = np.random.default_rng(setting.seed)
    state, operator, out = _filled(plan, setting, random), SharedJoinOperator(plan), Collected()
    arrivals = _arrivals(plan, setting, random)
    costs = costs.scaled(setting.load / load(setting, costs))
    clock = _Clock(plan, scheduling)
    now, told, left, most, held = float(arrivals[0].at), arrivals[0].at, 0, 0, 0
    coming = deque(arrivals)
    while left or coming:
        if not left:
            now = max(now, coming[0].at)
        while coming and coming[0].at <= now:
            burst = coming.popleft()
            operator.on_batch(burst.port, burst.rows, state, out)
        if coming and coming[0].at >= told + _TOLD:
            told = coming[0].at
            for port in (0, 1):
                operator.on_promise(port, Promise((Bound(PANE, told // NS),)), state, out)
        waiting = operator.waiting(state)
        most, held = max(most, len(waiting)), max(held, len(waiting.outer))
        looked, emitted = waiting.examined, out.count
        left = operator.work(state, out, 1)
        spent = costs.of(1, operator.waiting(state).examined - looked, out.count - emitted) * NS
        clock.note(now, spent, out.take())
        now += spent
    kept = sum(
        len(piece)
        for port in (0, 1)
        for key in state.keys(operator.rows_of(port))
        if (piece := state.get(operator.rows_of(port), key))
    )
    return clock.times(setting.readers, most, held, kept)


def load(setting: Setting, costs: Costs) -> float:
    """The share of time in which the join is at work. A row looks at the rows of its key in the largest window that
    came before it; each is emitted for every window that holds it."""
    partners = [seconds * setting.rate / _KEYS for seconds in setting.windows]
    return 2 * setting.rate * costs.of(len(partners), partners[-1], sum(partners))


class _Clock:
    """Collects the response times of results: from the arrival of the later row to the moment when it leaves."""

    def __init__(self, plan: SharedJoin, scheduling: Scheduling) -> None:
        self._at = [[join.output.offset(name) for name in ("A.ts", "B.ts")] for join in plan.joins]
        self._as_found = scheduling is not Scheduling.SWF
        self._sums, self._counts, self._most = ([0.0] * len(plan.joins) for _ in range(3))

    def note(self, began: float, spent: float, matrices: Sequence[tuple[int, Words]]) -> None:
        for output, rows in matrices:
            came = rows[:, self._at[output]].view(np.int64).max(axis=1)
            left = np.full(len(rows), began + spent)
            if self._as_found:
                # Rows of the one that is served leave while the scan goes on; those behind them were held back.
                own = np.flatnonzero(came == came[0])
                left[own] = began + spent * (np.arange(len(own)) + 1) / len(own)
            times = (left - came) / NS
            self._sums[output] += float(times.sum())
            self._counts[output] += len(times)
            self._most[output] = max(self._most[output], float(times.max()))

    def times(self, readers: Sequence[int], waiting: int, held: int, kept: int) -> Times:
        mean = [total / max(count, 1) for total, count in zip(self._sums, self._counts, strict=True)]
        overall = sum(map(mul, mean, readers)) / sum(readers)
        by_row = sum(map(mul, self._sums, readers)) / sum(map(mul, self._counts, readers))
        return Times(tuple(mean), tuple(self._most), overall, by_row, waiting, held, kept)


def measure_distributions(results: Path, *, rate: int, tuples: int, load: float) -> None:
    """Figs. 5 and 6: each distribution of windows, one query a window, rows that come one by one."""
    costs = _told_costs(rate)
    found = {
        name: _each(name, Setting(windows, (1,) * len(windows), 1, rate, tuples, load), costs)
        for name, windows in DISTRIBUTIONS.items()
    }
    _write(results, "hammad_2003_fig_5", "distribution", found)
    _draw_means(results, "hammad_2003_fig_5", "distribution of windows", found)
    for name in ("uniform", "mostly-small"):
        title = f"Windows {name}: response time by window (after fig. 6)"
        _draw_windows(results, f"hammad_2003_fig_6_{name}", title, DISTRIBUTIONS[name], found[name])


def measure_bursts(results: Path, *, bursts: Sequence[int], rate: int, tuples: int, load: float) -> None:
    """Figs. 7 and 8: small-large windows, over the mean size of bursts."""
    costs = _told_costs(rate)
    windows = DISTRIBUTIONS["small-large"]
    found = {
        f"{burst}": _each(f"bursts of {burst}", Setting(windows, (1,) * 7, burst, rate, tuples, load), costs)
        for burst in bursts
    }
    _write(results, "hammad_2003_fig_7", "burst", found)
    _draw_means(results, "hammad_2003_fig_7", "mean rows of a burst", found)
    last = f"{bursts[-1]}"
    title = f"Bursts of {last}: response time by window (after fig. 8)"
    _draw_windows(results, "hammad_2003_fig_8", title, windows, found[last])


def measure_queries(results: Path, *, queries: int, rate: int, tuples: int, load: float) -> None:
    """Fig. 9: small-large windows; four of five queries have the same one."""
    costs = _told_costs(rate)
    windows = DISTRIBUTIONS["small-large"]
    found = {}
    for most in range(len(windows)):
        rest = queries - round(0.8 * queries)
        others = len(windows) - 1
        readers = [rest // others + (n < rest % others) for n in range(others)]
        readers.insert(most, queries - rest)
        found[f"w{most + 1}"] = _each(
            f"80% at w{most + 1}", Setting(windows, tuple(readers), 1, rate, tuples, load), costs
        )
    _write(results, "hammad_2003_fig_9", "most_queries", found)
    _draw_means(results, "hammad_2003_fig_9", "window of 80% of the queries", found)


_Found = Mapping[Scheduling, Times]


def _told_costs(rate: int) -> Costs:
    costs = costs_here(rate)
    print(
        f"here a scan takes {costs.scan * 1e9:.0f} ns, a row looked at {costs.look * 1e9:.0f}, "
        f"a row emitted {costs.emit * 1e9:.0f}",
        flush=True,
    )
    return costs


def _each(name: str, setting: Setting, costs: Costs) -> _Found:
    found = {scheduling: run(setting, scheduling, costs) for scheduling in SCHEDULES}
    mqt = found[Scheduling.MQT]
    shown = "; ".join(
        f"{scheduling.name} {times.overall:.3g} s by query, {times.by_row:.3g} s by row, the largest window "
        f"{times.mean[-1]:.3g} s, {times.waiting:,} rows wait, {times.held:,} results are held back"
        for scheduling, times in found.items()
    )
    print(f"{name}: {shown}; {_gains(found)}; {mqt.kept:,} rows kept", flush=True)
    return found


def _gains(found: _Found) -> str:
    """By how much MQT is sooner, by query and by row."""
    mqt = found[Scheduling.MQT]
    return ", ".join(
        f"MQT {1 - mqt.overall / of.overall:+.0%} by query and {1 - mqt.by_row / of.by_row:+.0%} by row on {rival.name}"
        for rival, of in found.items()
        if rival is not Scheduling.MQT
    )


def _write(results: Path, name: str, label: str, found: Mapping[str, _Found]) -> None:
    rows = [
        (case, scheduling.value, number + 1, times.mean[number], times.most[number], times.overall, times.by_row,
         times.waiting, times.held, times.kept)
        for case, each in found.items()
        for scheduling, times in each.items()
        for number in range(len(times.mean))
    ]  # fmt: skip
    header = (
        label, "schedule", "window", "mean_s", "most_s", "mean_over_queries_s", "mean_over_rows_s", "most_waiting",
        "most_held_back", "kept",
    )  # fmt: skip
    write_csv(results, name, header, rows)


def _draw_means(results: Path, name: str, label: str, found: Mapping[str, _Found]) -> None:
    ours = "; ".join(f"{case}: {_gains(each)}" for case, each in found.items())
    with Figure(results, name, f"Mean response time of the queries (after fig. {name[-1]})", ours) as axes:
        places = np.arange(len(found))
        for number, scheduling in enumerate(SCHEDULES):
            means = [each[scheduling].overall for each in found.values()]
            axes.bar(places + 0.27 * (number - 1), means, 0.27, label=scheduling.name)
        axes.set_xticks(places, list(found))
        axes.set_xlabel(label)
        axes.set_ylabel("seconds")
        axes.legend()


def _draw_windows(results: Path, name: str, title: str, windows: Sequence[int], found: _Found) -> None:
    ours = "for the largest window " + ", ".join(
        f"{scheduling.name} takes {times.mean[-1]:.3g} s, at most {times.most[-1]:.3g}"
        for scheduling, times in found.items()
    )
    with Figure(results, name, title, ours) as axes:
        for scheduling, times in found.items():
            (line,) = axes.plot(range(1, len(windows) + 1), times.mean, "o-", label=scheduling.name)
            axes.plot(range(1, len(windows) + 1), times.most, ":", color=line.get_color())
        axes.set_xticks(range(1, len(windows) + 1), [f"{seconds} s" for seconds in windows])
        axes.set_yscale("log")
        axes.set_xlabel("window (dotted: the longest)")
        axes.set_ylabel("seconds")
        axes.legend()
