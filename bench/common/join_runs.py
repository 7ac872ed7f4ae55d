"""Streams of flows for the measurements of joins, and chains whose join and whose memory can be chosen and seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from highlevel.build import build
from highlevel.events import Closing
from highlevel.graph import Graph
from highlevel.interface import Operator, Space, Words
from highlevel.limits import GroupLimit
from highlevel.state import MemoryState
from lowmark.query.expr.evaluate import Ints
from lowmark.query.plan.nodes import Join, QueryPlan, StepPlan
from lowmark.wire.records.partials import PANE
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.values import FOREVER

__all__ = ["NS", "Flows", "HeldState", "Pace", "rows_of", "run_chain", "with_join"]

NS = 10**9

P = TypeVar("P")


@runtime_checkable
class _Holds(Protocol):
    @property
    def held(self) -> int: ...


class HeldState(MemoryState):
    """State in memory whose size can be asked for: of rows and buffers the memory that they hold, of all else the bytes
    as they would be stored."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, Callable[[], int]] = {}

    def put(self, space: Space[P], key: int, piece: P) -> None:
        self._sizes.setdefault(space.name, partial(self._size, space))
        super().put(space, key, piece)

    @property
    def held(self) -> int:
        return sum(size() for size in self._sizes.values())

    def _size(self, space: Space[P]) -> int:
        pieces = (self.get(space, key) for key in self.keys(space))
        return sum(piece.held if isinstance(piece, _Holds) else len(space.encode(piece)) for piece in pieces if piece)


@dataclass(frozen=True, slots=True)
class Flows:
    """Packets of so many flows, all alike, at a steady rate and in order."""

    flows: int
    seed: int = 7
    tick: int = 1  # ns: times are multiples of it

    def drawn(self, stream: str, second: int, rate: int) -> tuple[Ints, Ints]:
        """Times in ns and flows of the packets of one second of a stream."""
        random = np.random.default_rng((self.seed, sum(stream.encode()), second))
        times = second * NS + np.sort(random.integers(0, NS, rate)) // self.tick * self.tick
        return times, random.integers(0, self.flows, rate)

    def second(self, stream: str, second: int, rate: int, schema: Schema, *, back: bool = False) -> Words:
        """The packets of one second of a stream; `back`: in the other direction."""
        times, flow = self.drawn(stream, second, rate)
        ends = ("srcIP", "srcPort"), ("destIP", "destPort")
        (near, near_port), (far, far_port) = ends[::-1] if back else ends
        flags = np.full(rate, 18 if back else 2)
        return rows_of(
            schema,
            {"pane": times // NS, "tuples": np.ones(rate, np.int64), "ts": times, "tcp_flags": flags, near: flow,
             near_port: 1024 + flow % 60_000, far: flow + self.flows, far_port: np.full(rate, 443)},
        )  # fmt: skip


def rows_of(schema: Schema, values: Mapping[str, Ints]) -> Words:
    """Of these columns, in which addresses are numbers of IPv4 ones."""
    rows = np.zeros((len(values[PANE]), schema.words), np.uint64)
    for column in schema:
        words = values[column.name].astype(np.uint64)
        at = schema.offset(column.name)
        if column.kind is Kind.IP:
            rows[:, at] = 4
            rows[:, at + 2] = words
        else:
            rows[:, at] = words
    return rows


@dataclass(slots=True)
class Pace:
    """Of one run. `closings`: the windows closed, with the second in which that was; seconds are of CPU."""

    seconds: float = 0.0
    most_held: int = 0
    latencies: list[float] = field(default_factory=list)  # of each promise that closed a window
    rows: list[tuple[int, Words]] = field(default_factory=list)  # with the second at whose end they came out
    closings: list[Closing] = field(default_factory=list)


def with_join(make: Callable[[Join], Operator], plan: StepPlan, limit: GroupLimit) -> Operator:
    return make(plan) if isinstance(plan, Join) else build(plan, limit)


def run_chain(
    plan: QueryPlan, make: Callable[[Join], Operator], streams: Mapping[str, Callable[[int, Schema], Words]],
    seconds: int,
) -> Pace:  # fmt: skip
    """Feed all streams second by second, each second's packets before its promise, and measure after each."""
    state, pace = HeldState(), Pace()
    graph = Graph((plan,), partial(with_join, make), state)
    for second in range(seconds + 1):
        last = second == seconds
        parts = [
            (node.name, streams[stream](second, node.reduction.schema))
            for node in plan.stage.nodes
            for stream in node.streams
            if not last
        ]
        began = time.process_time()
        for name, rows in parts:
            graph.feed(name, rows)
        graph.work()
        pace.seconds += time.process_time() - began
        pace.most_held = max(pace.most_held, state.held)
        began = time.process_time()
        for node in plan.stage.nodes:
            graph.promise(node.name, FOREVER if last else second + 1)
        graph.work()
        spent = time.process_time() - began
        pace.seconds += spent
        pace.rows += [(second + 1, rows) for rows in graph.answers[plan.name].take_events().rows]
        closings = [closing for step in graph.steps for closing in step.take_told().closings]
        pace.closings += closings
        if closings and not last:
            pace.latencies.append(spent)
    return pace
