"""The interface of an operator: pure code between ports, with its state in pieces (DESIGN: the high level).

Operators know no Spark, no Kafka, no clock and no randomness: the same records in the same order on the same state give
the same output. Rows pass as matrices of words (`lowmark.wire.rows.schema`): one row of uint64 per tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from highlevel.row_marks import RowMark
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["ONLY", "MarkOut", "Operator", "Out", "Space", "State", "Words"]

Words = npt.NDArray[np.uint64]
"""Rows in word form, C-contiguous, `schema.words` wide."""

ONLY = 0
"""The key of the only piece in a space."""

P = TypeVar("P")


@dataclass(frozen=True)
class Space(Generic[P]):
    """A kind of state piece of one operator: its name, unique in the operator, and how a piece is written and read.
    Names of what the graph keeps of a step begin with `graph.`; no operator uses such a name.

    Pieces of a growing space can be written in parts: `merge` makes one piece of them, given the oldest first, and may
    change them. Either the operator adds parts (`State.part`, `State.add`), or the space has `news`: the additions to a
    piece since it was read or `news` was last called; None if the piece has changed in another way.

    A change of the format is a new `version`; `before` then reads the format of the version before."""

    name: str
    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]
    merge: Callable[[Sequence[P]], P] | None = None
    news: Callable[[P], P | None] | None = None
    version: int = 1
    before: Callable[[bytes], P] | None = None

    def merged(self, parts: Sequence[P]) -> P:
        assert self.merge is not None, f"pieces of {self.name} do not grow"
        return self.merge(parts)


class State(Protocol):
    """State of one (stage, bucket). The caller may change a piece that `get` returns; only `put` stores the change."""

    def get(self, space: Space[P], key: int) -> P | None: ...
    def put(self, space: Space[P], key: int, piece: P) -> None: ...
    def part(self, space: Space[P], key: int) -> P | None:
        """The part of a growing piece that takes additions. None: there is none, so the operator begins one."""
        ...

    def add(self, space: Space[P], key: int, part: P) -> None:
        """Store the part that `part` returned, changed, or the one begun where it returned None. Reads and writes
        nothing else of the piece."""
        ...

    def drop(self, space: Space[P], key: int) -> None: ...
    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        """Keys in ascending order, only those smaller than `below`; loads no piece."""
        ...


class MarkOut(Protocol):
    """Where the marks on an operator's output go."""

    def mark(self, port: int, mark: RowMark) -> None:
        """Mark rows of the output as lossy or partial."""
        ...


class Out(MarkOut, Protocol):
    """Where an operator's output goes. Rows come before the promise and the closing that cover them."""

    def rows(self, port: int, rows: Words) -> None: ...
    def promise(self, port: int, promise: Promise) -> None: ...
    def closed(self, port: int, windows: range, tuples: int) -> None:
        """These windows are final: their rows are out. `tuples` of the input were merged into them."""
        ...

    def late(self, port: int, rows: Words) -> None: ...
    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        """These rows of an input were given up by policy. They are counted, and the windows that they would have
        reached are lossy for this reason. The rows begin with their pane."""
        ...

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        """A value in this window cannot be computed: it shows null, and the window is lossy for this reason.
        `overflow`: an intermediate or final value left int64. `tie`: the first or last tuples have equal times and
        different values. `numbering` concerns no window: the step restarts its count here.

        A step whose rows lie in no window reports `mark` instead."""
        ...


class Operator(Protocol):
    """Built from a frozen plan node. Has one or more inputs and outputs."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        """Take rows. The runs between two promises may come as one."""
        ...

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        """Close what the port's new frontier proves complete. Called once for each advance."""
        ...

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        """Map a mark on rows of the port to the output rows that it concerns. This changes no state, and may come
        before the rows or after them. A step that makes windows gets marks on its windows (`WINDOW`)."""
        ...

    def work(self, state: State, out: Out, budget: int) -> int:
        """Do up to `budget` units of deferred work; returns the units left. The operator defines its unit. Before a
        commit the call is repeated until 0 units are left (`highlevel.scheduler`)."""
        ...
