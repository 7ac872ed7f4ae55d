"""Figs. 5 to 10 of Hammad 2005: response times of a join whose rows come out in order of time, by Sync-Filter,
Filter-Order and the adaptive choice, on a virtual clock.

A stream is in order, the two together are not. A row meets its partners at c for each row of the other stream in its
window (C = c·|w|·λ, 4.1); c stands for a number of concurrent queries, each of which takes what a row looked at takes
here. The equations count the time of the fast stream's rows alone, and so do figures 7 and 8. A row's response time
ends when no more rows of the output can have its time, and all that have are out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from bench.common.join_runs import NS, rows_of
from bench.common.reports import Figure, write_csv
from bench.common.response_times import Burst, Collected, bursts_of, exponential_times
from bench.shared_joins.times import costs_here
from highlevel.interface import Words
from highlevel.join.in_order import InOrderJoinOperator
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.joins import InOrder, Release
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise

__all__ = ["measure_analysis", "measure_queries", "measure_slow_stream"]

_SQL = (
    "SELECT A.ts, B.ts AS later FROM A [RANGE {n} seconds, WA ts], B [RANGE {n} seconds, WA ts] WHERE A.srcIP = B.srcIP"
)
_KEYS = 500
_UNIT = 10**6
"""ns: the streams tell how far they have come to the millisecond."""

_SLOW_ROWS = 15
"""Rows of the slow stream in a run, at least."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`c`: seconds for each pair of rows; rates are rows a second of the slow stream and of the fast one. `both`: rows
    of the slow stream take their time, too."""

    c: float
    slow: float
    fast: float = 10.0
    window: int = 60
    seconds: int = 300
    gain: float = 0.3  # α
    both: bool = True

    @property
    def load(self) -> float:
        return self.c * self.window * self.slow * self.fast

    def predicted(self, release: Release) -> float:
        """Equations 3 and 5."""
        n = self.fast / self.slow
        waits = 1 / self.slow - (n - 1) / (2 * self.fast)
        works = (n + 1) / 2 * self.c * self.window * self.slow
        filters = release is Release.FILTER or (release is Release.ADAPTIVE and self.load >= self.gain)
        return waits if filters else waits + works


@dataclass(frozen=True, slots=True)
class Times:
    mean: float  # seconds
    switches: int
    held: int  # rows of the output that are held, at the most


def measure_analysis(results: Path) -> None:
    """Figs. 5 and 6: by equations 3 and 5 alone, over c and over the rate of the slow stream, with windows of a day."""
    day = 86_400
    limit = 1 / (10 * day)  # equation 1
    by_c = [Setting(c, 1, 10, day) for c in (*(1e-8 * 2**step for step in range(7)), 0.99 * limit)]
    _draw_analysis(results, "hammad_2005_fig_5", "c, seconds", {setting.c: setting for setting in by_c})
    rates = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1)
    by_rate = {rate: Setting(1e-4, rate, 1, day) for rate in rates}
    _draw_analysis(results, "hammad_2005_fig_6", "rows a second of the slow stream", by_rate)


def _draw_analysis(results: Path, name: str, label: str, settings: Mapping[float, Setting]) -> None:
    ways = (Release.SYNC, Release.FILTER)
    times = {way: [setting.predicted(way) for setting in settings.values()] for way in ways}
    gains = [1 - b / a for a, b in zip(times[Release.SYNC], times[Release.FILTER], strict=True)]
    write_csv(
        results, name, ("x", "sync_s", "filter_s", "improvement"),
        list(zip(settings, times[Release.SYNC], times[Release.FILTER], gains, strict=True)),
    )  # fmt: skip
    ours = f"Filter-Order is sooner by {gains[0]:.2g} to {max(gains):.2g}"
    with Figure(results, name, f"Response time by equations 3 and 5 (after fig. {name[-1]})", ours) as axes:
        for way in ways:
            axes.plot(list(settings), times[way], "o-", label=_NAMES[way])
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend()


def measure_queries(results: Path, *, costs: Sequence[float], seconds: int) -> None:
    """Figs. 7 and 8: over the time that a pair takes, for a growing number of concurrent queries. Then with the time of
    the slow stream's rows, as far as the join keeps up with both streams."""
    look = costs_here(100).look
    found, whole = {}, {}
    for c in costs:
        setting = Setting(c, 1, seconds=seconds, both=False)
        found[c] = _each(f"c = {c * 1e3:g} ms ({c / look:,.0f} queries here)", setting)
        if 2 * setting.load < 1:
            whole[c] = _each(f"c = {c * 1e3:g} ms, rows of both streams take time", replace(setting, both=True))
    _write(results, "hammad_2005_fig_7", "c_s", found)
    _write(results, "hammad_2005_both_streams", "c_s", whole)
    _draw(results, ("hammad_2005_fig_7", "hammad_2005_fig_8"), "c, seconds", found)


def measure_slow_stream(results: Path, *, rates: Sequence[float], seconds: int) -> None:
    """Figs. 9 and 10: over the rate of the slow stream, at c = 0.5 ms."""
    found = {}
    for rate in rates:
        lasting = max(seconds, round(_SLOW_ROWS / rate))
        found[rate] = _each(f"{rate:g} rows/s of the slow stream", Setting(0.5e-3, rate, seconds=lasting))
    _write(results, "hammad_2005_fig_9", "slow_rows_per_s", found)
    _draw(results, ("hammad_2005_fig_9", "hammad_2005_fig_10"), "rows a second of the slow stream", found)


_NAMES = {Release.SYNC: "Sync-Filter", Release.FILTER: "Filter-Order", Release.ADAPTIVE: "Adaptive"}
_Found = Mapping[Release, Times]


def _each(name: str, setting: Setting) -> _Found:
    found = {release: run(setting, release) for release in Release}
    sync = found[Release.SYNC].mean
    shown = "; ".join(
        f"{_NAMES[release]} {times.mean:.3g} s ({1 - times.mean / sync:+.0%}), {times.held:,} rows held"
        for release, times in found.items()
    )
    expected = 1 - setting.predicted(Release.FILTER) / setting.predicted(Release.SYNC)
    print(
        f"{name}: {shown}; {found[Release.ADAPTIVE].switches} switches; equation 7 says {expected:.0%}", flush=True
    )  # fmt: skip
    return found


def run(setting: Setting, release: Release, seed: int = 3) -> Times:
    """Serve rows one by one on the virtual clock."""
    plan = replace(_join(setting.window), in_order=InOrder(release, setting.c * 1e9, setting.gain))
    random = np.random.default_rng(seed)
    arrivals: list[Burst] = []
    for port, rate in enumerate((setting.slow, setting.fast)):
        times = exponential_times(random, NS, max(1, round(rate * setting.seconds)), rate)
        arrivals += bursts_of(times, port, lambda at, port=port: _rows(plan, port, at, random))  # type: ignore[misc]
    coming = deque(sorted(arrivals, key=lambda burst: burst.at))
    last = min(max(burst.at for burst in coming if burst.port == port) for port in (0, 1))
    state, operator, out = MemoryState(), InOrderJoinOperator(plan), Collected()
    now, left, held, total, served = 0.0, 0, 0, 0.0, 0
    open_: list[int] = []  # the times of rows that are not done with
    unjoined: list[tuple[int, int]] = []
    joined: tuple[list[int], list[int]] = ([], [])  # times by port
    while (coming and coming[0].at <= last) or left:
        if not left:
            now = max(now, coming[0].at)
        while coming and coming[0].at <= min(now, last):
            burst = coming.popleft()
            operator.on_batch(burst.port, burst.rows, state, out)
            operator.on_promise(burst.port, Promise((Bound(PANE, burst.at // _UNIT),)), state, out)
            heappush(open_, burst.at)
            heappush(unjoined, (burst.at, burst.port))
        if operator.work(state, out, 0):  # the oldest row meets those in its window
            at, port = heappop(unjoined)
            others = joined[1 - port]
            reach = setting.window * NS
            if setting.both or port:
                now += setting.c * NS * (bisect_left(others, at + reach) - bisect_left(others, at - reach))
            insort(joined[port], at)
        left = operator.work(state, out, 1)
        pieces = (state.get(operator.held, key) for key in state.keys(operator.held))
        held = max(held, sum(len(piece) for piece in pieces if piece))
        passed = operator.passed(state)
        while open_ and open_[0] < passed:
            total += now - heappop(open_)
            served += 1
        if not left and not (coming and coming[0].at <= last):
            break
    return Times(total / served / NS, operator.switches(state), held)


def _join(window: int) -> Join:
    plan = compile_query(_SQL.format(n=window), buckets=1).steps[0].plan
    assert isinstance(plan, Join)
    return replace(plan, inputs=tuple(replace(port, unit=_UNIT) for port in plan.inputs))


def _rows(join: Join, port: int, times: Ints, random: np.random.Generator) -> Words:
    schema = join.inputs[port].schema
    values = {"pane": times // _UNIT, "tuples": np.ones(len(times), np.int64), "ts": times,
              "srcIP": random.integers(0, _KEYS, len(times))}  # fmt: skip
    return rows_of(schema, {name: values[name] for name in schema.names})


def _write(results: Path, name: str, label: str, found: Mapping[float, _Found]) -> None:
    rows = [
        (at, release.value, times.mean, 1 - times.mean / each[Release.SYNC].mean, times.switches, times.held)
        for at, each in found.items()
        for release, times in each.items()
    ]
    write_csv(results, name, (label, "release", "mean_s", "sooner_than_sync", "switches", "most_held"), rows)


def _draw(results: Path, names: tuple[str, str], label: str, found: Mapping[float, _Found]) -> None:
    def gain(each: _Found, release: Release) -> float:
        return 1 - each[release].mean / each[Release.SYNC].mean

    ours = ", ".join(
        f"at {at:g} Filter-Order {gain(each, Release.FILTER):+.0%}, Adaptive {gain(each, Release.ADAPTIVE):+.0%}"
        for at, each in found.items()
    )
    for name, relative in zip(names, (False, True), strict=True):
        number = name.rpartition("_")[2]
        title = f"Response time{' relative to Sync-Filter' if relative else ''} (after fig. {number})"
        with Figure(results, name, title, f"sooner than Sync-Filter {ours}") as axes:
            for release in Release:
                base = [each[Release.SYNC].mean if relative else 1.0 for each in found.values()]
                means = [each[release].mean / by for each, by in zip(found.values(), base, strict=True)]
                axes.plot(list(found), means, "o-", label=_NAMES[release])
            axes.set_xscale("log")
            axes.set_xlabel(label)
            axes.set_ylabel("relative" if relative else "seconds")
            axes.set_ylim(bottom=0)
            axes.legend()
