"""Figs. 7-5 to 7-7: the join that knows no order (OA) against joins that keep one, and joint against individual
punctuation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.baselines.ordered_joins import InputBufferedJoin, OutputBufferedJoin
from bench.common.join_runs import NS, Flows, Pace, rows_of, run_chain, with_join
from bench.common.reports import Figure, spread, write_csv
from highlevel.interface import MarkOut, Operator, Out, State, Words
from highlevel.join import JoinOperator
from highlevel.row_marks import RowMark
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Join, Node
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.words import column_of
from tests.acceptance.paced import paced, rows_out

__all__ = ["measure_bands", "measure_delay"]

OA, OPOB, OPIB = "OA-Join", "OPOB-Join", "OPIB-Join"
_MAKE: Mapping[str, Callable[[Join], Operator]] = {OA: JoinOperator, OPOB: OutputBufferedJoin, OPIB: InputBufferedJoin}

_Q7_2 = (
    "SELECT count(*) [RANGE 5 seconds, WA M1.ts] FROM M1 [RANGE {n} seconds, WA ts], M2 [RANGE {n} seconds, WA ts] "
    "WHERE M1.srcIP = M2.destIP AND M1.destIP = M2.srcIP AND M1.srcPort = M2.destPort AND M1.destPort = M2.srcPort"
)
_Q7_1 = (
    "CREATE STREAM handshakes AS SELECT S0.ts AS syn_ts, S1.ts AS ack_ts "
    "FROM S0 [RANGE {n} seconds, WA ts], S1 [RANGE {n} seconds, WA ts] "
    "WHERE S0.srcIP = S1.destIP AND S0.destIP = S1.srcIP AND S0.srcPort = S1.destPort AND S0.destPort = S1.srcPort; "
    "SELECT syn_ts, ack_ts, count(*) FROM handshakes GROUP BY syn_ts, ack_ts"
)


@dataclass(frozen=True, slots=True)
class _Cost:
    way: str
    band: int
    most_held: int
    latency: float  # median, seconds of CPU
    seconds: float  # of CPU, median


def measure_bands(
    results: Path, figure: str, *, rival: str, bands: Sequence[int], seconds: int, rate: int, flows: int, repeat: int
) -> list[_Cost]:
    """Q7-2 with windows of n seconds on both inputs. Answers are compared first."""
    stream = Flows(flows)
    streams: dict[str, Callable[[int, Schema], Words]] = {
        "M1": lambda second, schema: stream.second("M1", second, rate, schema),
        "M2": lambda second, schema: stream.second("M2", second, rate, schema, back=True),
    }
    costs = []
    for band in bands:
        plan = compile_query(_Q7_2.format(n=band), streams={"M1": 1, "M2": 1}, buckets=1)
        paces: dict[str, list[Pace]] = {OA: [], rival: []}
        for way in paces:
            run_chain(plan, _MAKE[way], streams, 1)  # compiles what is not compiled yet
        for _ in range(repeat):
            for way, taken in paces.items():
                taken.append(run_chain(plan, _MAKE[way], streams, seconds))
        _check(paces, band)
        ours, theirs = (_cost(way, band, taken) for way, taken in paces.items())
        costs += [ours, theirs]
        print(
            f"band {band} s: {rival} holds {theirs.most_held / ours.most_held:5.2f} times the memory "
            f"({theirs.most_held / 2**20:.1f} MiB against {ours.most_held / 2**20:.1f}), latency "
            f"{theirs.latency / ours.latency:5.1f} times ({1e3 * theirs.latency:.0f} ms against "
            f"{1e3 * ours.latency:.0f}), time {theirs.seconds / ours.seconds:.2f} times",
            flush=True,
        )
    _report(results, figure, costs, rival)
    return costs


def _check(paces: Mapping[str, Sequence[Pace]], band: int) -> None:
    answers = {
        way: sorted(row.tobytes() for pace in taken[:1] for _, rows in pace.rows for row in rows)
        for way, taken in paces.items()
    }
    if len(set(map(tuple, answers.values()))) > 1 or not answers[OA]:
        raise RuntimeError(f"band {band} s: the answers differ, or there is none")


def _cost(way: str, band: int, taken: Sequence[Pace]) -> _Cost:
    latency = statistics.median(spent for pace in taken for spent in pace.latencies)
    seconds = statistics.median(pace.seconds for pace in taken)
    return _Cost(way, band, max(pace.most_held for pace in taken), latency, seconds)


def _report(results: Path, figure: str, costs: Sequence[_Cost], rival: str) -> None:
    header = ("way", "band_s", "most_held_bytes", "latency_ms", "cpu_s")
    write_csv(
        results, figure, header, [(c.way, c.band, c.most_held, 1e3 * c.latency, c.seconds) for c in costs]
    )  # fmt: skip
    parts: dict[str, tuple[str, Callable[[_Cost], float]]] = {
        "": ("MiB held at the most", lambda c: c.most_held / 2**20)
    }
    bands = list(dict.fromkeys(cost.band for cost in costs))
    if rival == OPOB:
        parts |= {
            "_latency": ("latency, ms of CPU (median)", lambda c: 1e3 * c.latency),
            "_time": ("CPU seconds", lambda c: c.seconds),
        }
    number = figure.removeprefix("fig_").replace("_", "-")
    for name, (label, value) in parts.items():
        taken = {(cost.way, cost.band): value(cost) for cost in costs}
        times = spread(taken[rival, band] / taken[OA, band] for band in bands)
        ours = f"{rival} takes {times} times what {OA} does over bands of {spread(bands)} s, in {label}"
        title = f"Q7-2: {OA} and {rival} over the band (after fig. {number})"
        with Figure(results, figure + name, title, ours) as axes:
            for way in (OA, rival):
                of = [cost for cost in costs if cost.way == way]
                axes.plot([cost.band for cost in of], [value(cost) for cost in of], "o-", label=way)
            axes.set_xlabel("band, seconds")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.legend()


class _Individually:
    """A join that promises each time by itself, and nothing of both together."""

    def __init__(self, plan: Join) -> None:
        self._inner = JoinOperator(plan)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        self._inner.on_batch(port, rows, state, out)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        self._inner.on_promise(port, promise, state, _Single(out))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        self._inner.on_mark(port, mark, state, out)

    def work(self, state: State, out: Out, budget: int) -> int:
        return self._inner.work(state, out, budget)


class _Single:
    """Hands on what is no joint promise."""

    def __init__(self, out: Out) -> None:
        self.rows, self.closed, self.late, self.flaw = out.rows, out.closed, out.late, out.flaw
        self.mark, self.shed = out.mark, out.shed
        self._out = out

    def promise(self, port: int, promise: Promise) -> None:
        if promise.last or len(promise.bounds) == 1:
            self._out.promise(port, promise)


_DELAYED: Sequence[tuple[str, Callable[[Join], Operator], int]] = (
    ("joint", JoinOperator, 1),
    ("joint, 2 buckets", JoinOperator, 2),
    ("individual", _Individually, 1),
)
"""Ways to punctuate, with the number of buckets: of two, groups lie in others than the rows of the join."""


def measure_delay(results: Path, *, bands: Sequence[int], seconds: int, rate: int) -> list[tuple[str, int, float]]:
    """Q7-1: stream time from the later packet of a handshake to the promise that lets its group out, the median."""
    found = []
    for band in bands:
        delays = {way: _delay(make, buckets, band, seconds, rate) for way, make, buckets in _DELAYED}
        found += [(way, band, delay) for way, delay in delays.items()]
        one, two, individual = delays.values()
        print(
            f"windows of {band} s: a group waits {one:.2f} s with joint punctuation, {two:.2f} s through an exchange "
            f"between two buckets, {individual:.2f} s with individual punctuation: {individual / one:.1f} times",
            flush=True,
        )
    write_csv(results, "fig_7_5", ("punctuation", "window_s", "median_delay_s"), found)
    last = {way: delay for way, _, delay in found}
    ours = ", ".join(f"{delay:.3g} s by {way} punctuation" for way, delay in last.items())
    title = "Q7-1: delay by joint and by individual punctuation (after fig. 7-5)"
    with Figure(results, "fig_7_5", title, f"a group waits, at windows of {bands[-1]} s, {ours}") as axes:
        for (way, *_), mark in zip(_DELAYED, ("o-", "x:", "o-"), strict=True):
            axes.plot(bands, [delay for of, _, delay in found if of == way], mark, label=way)
        axes.set_xlabel("windows of the join, seconds")
        axes.set_ylabel("median delay of a group, seconds of the stream")
        axes.set_ylim(bottom=0)
        axes.legend()
    return found


def _handshakes(rate: int, back: bool, second: int, schema: Schema) -> Words:
    """So many a second, each answered within 300 ms."""
    random = np.random.default_rng((7, second))
    syn = second * NS + np.sort(random.integers(0, 7 * NS // 10, rate))
    times = syn + random.integers(0, 3 * NS // 10, rate) if back else syn
    host = second * rate + np.arange(rate)
    near, far = ("destIP", "srcIP") if back else ("srcIP", "destIP")
    near_port, far_port = ("destPort", "srcPort") if back else ("srcPort", "destPort")
    values = {"pane": times // NS, "tuples": np.ones(rate, np.int64), "ts": times, near: host, far: np.full(rate, 1)}
    return rows_of(schema, values | {near_port: np.full(rate, 40_000), far_port: np.full(rate, 443)})


def _delay(make: Callable[[Join], Operator], buckets: int, band: int, seconds: int, rate: int) -> float:
    """Of the groups of the stream's first seconds: what the end of the stream lets out is no delay."""
    plan = compile_query(_Q7_1.format(n=band), streams={"S0": 1, "S1": 1}, buckets=buckets)

    def feed(node: Node, stream: str, second: int) -> Words:
        return _handshakes(rate, stream == "S1", second, node.reduction.schema)

    delays, handshakes = [], 0
    for second, rows in rows_out(paced(plan, feed, range(seconds + band + 1), build=partial(with_join, make))):
        syn, ack, count = (column_of(rows.schema, rows.rows, name)[0] for name in ("syn_ts", "ack_ts", "count"))
        later = np.maximum(syn, ack)
        handshakes += int(count[later < seconds * NS].sum())
        delays.append((second * NS - later[later < seconds * NS]) / NS)
    if handshakes != seconds * rate:
        raise RuntimeError(f"{handshakes} of {seconds * rate} handshakes came out")
    return float(np.median(np.concatenate(delays)))
