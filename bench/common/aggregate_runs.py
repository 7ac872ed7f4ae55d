"""One aggregate at operator level: its plan by strategy, rows fed to it, and what it keeps and takes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from bench.common.row_count import RowCount
from highlevel.interface import Operator, Space, Words
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.options import Strategy
from lowmark.query.plan.nodes import Aggregate
from lowmark.query.windows.window import Window
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["CountingState", "Feeding", "Sink", "Taken", "aggregate_of", "feed", "rows_of"]

P = TypeVar("P")


def aggregate_of(call: str, window: Window, strategy: Strategy) -> Aggregate:
    """The plan of `call` over `window` by source address, on rows of the low level: (null mask, pane, tuples, srcIP's
    three words, the call's column)."""
    text = f"SELECT srcIP, {call} [RANGE 1 minute] FROM Main GROUP BY srcIP"
    plan = compile_query(text).steps[0].plan
    if not isinstance(plan, Aggregate):
        raise TypeError(f"{text} begins with {plan}")
    return replace(plan, window=window, strategy=strategy)


def rows_of(plan: Aggregate, panes: Ints, groups: Ints) -> Words:
    """A tuple a row, of the group of each, with a value that follows from its place."""
    rows = np.zeros((len(panes), plan.input.words), np.uint64)
    rows[:, 1] = panes.view(np.uint64)
    rows[:, 2] = 1
    rows[:, 3] = 4
    rows[:, 5] = groups.astype(np.uint64)
    if rows.shape[1] > 6:
        rows[:, 6] = 40 + np.arange(len(panes)) * 7919 % 1461
    return rows


class CountingState(MemoryState):
    """State in memory whose size can be asked for: bytes as they would be stored."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, Callable[[], int]] = {}

    def put(self, space: Space[P], key: int, piece: P) -> None:
        self._sizes.setdefault(space.name, lambda: self._size(space))
        super().put(space, key, piece)

    @property
    def bytes(self) -> int:
        return sum(size() for size in self._sizes.values())

    def _size(self, space: Space[P]) -> int:
        pieces = (self.get(space, key) for key in self.keys(space))
        return sum(len(space.encode(piece)) for piece in pieces if piece is not None)


@dataclass(slots=True)
class Taken:
    """By one run. Times are of CPU, in seconds."""

    total: float = 0.0
    latencies: list[float] = field(default_factory=list)  # of each promise that let windows out
    most_bytes: int = 0
    rows: int = 0
    tuples: int = 0
    outputs: list[Words] = field(default_factory=list)

    @property
    def latency(self) -> float:
        return float(np.mean(self.latencies)) if self.latencies else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Feeding:
    """Rows that come together, and the first pane that has not ended behind them (None: no promise comes)."""

    rows: Words
    ended: int | None


class Sink(RowCount):
    """Counts windows, and keeps rows if asked to."""

    def __init__(self, keep: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.outputs: list[Words] = []
        self.windows = 0

    def rows(self, port: int, rows: Words) -> None:
        super().rows(port, rows)
        if self.keep:
            self.outputs.append(rows)

    def closed(self, port: int, windows: range, tuples: int) -> None:
        self.windows += len(windows)


def feed(operator: Operator, feedings: Iterable[Feeding], *, measure: bool = False, keep: bool = False) -> Taken:
    """`measure`: the bytes of the state too, before each promise that lets windows out; that takes no part in times."""
    state, sink, taken = CountingState(), Sink(keep), Taken()
    for item in feedings:
        began = time.process_time()
        operator.on_batch(0, item.rows, state, sink)
        taken.total += time.process_time() - began
        taken.tuples += len(item.rows)
        if item.ended is None:
            continue
        if measure:
            taken.most_bytes = max(taken.most_bytes, state.bytes)
        before = sink.windows
        began = time.process_time()
        last = item.ended == FOREVER
        operator.on_promise(0, Promise((Bound(PANE, item.ended),), last), state, sink)
        spent = time.process_time() - began
        taken.total += spent
        if sink.windows > before and not last:
            taken.latencies.append(spent)
    taken.rows, taken.outputs = sink.count, sink.outputs
    return taken
