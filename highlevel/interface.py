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

__all__ = ["MarkOut", "Operator", "Out", "Space", "State", "Words"]

Words = npt.NDArray[np.uint64]
"""Rows in word form, C-contiguous, `schema.words` wide."""

P = TypeVar("P")


@dataclass(frozen=True)
class Space(Generic[P]):
    """A kind of state piece of one operator: its name, unique in the operator, and how a piece is written and read.
    Names of what the graph keeps of a step begin with `graph.`; no operator uses such a name."""

    name: str
    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]


class State(Protocol):
    """State of one (stage, bucket). The caller may change a piece that `get` returns; only `put` stores the change."""

    def get(self, space: Space[P], key: int) -> P | None: ...
    def put(self, space: Space[P], key: int, piece: P) -> None: ...
    def drop(self, space: Space[P], key: int) -> None: ...
    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        """Keys in ascending order, only those smaller than `below`; loads no piece."""
        ...


class MarkOut(Protocol):
    """Where the marks on an operator's output go."""

    def mark(self, port: int, mark: RowMark) -> None:
        """Something is known against these rows of the output."""
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
        `overflow`: an intermediate or final value left int64; `tie`: the first or the last tuples, all at one time,
        have different values. `numbering` concerns no window: the step restarts its count here.

        A step whose rows lie in no window reports `mark` instead."""
        ...


class Operator(Protocol):
    """Built from a frozen plan node. Has one or more inputs and outputs."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        """Take rows. The runs between two promises may come as one."""
        ...

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        """The port's frontier has moved: close what is now proved complete. Called once for each advance."""
        ...

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        """Something is known against rows of the port: say which rows of the output it concerns. This changes no state,
        and may come before the rows or after them. A step that makes windows gets marks on its windows (`WINDOW`)."""
        ...

    def work(self, state: State, out: Out, budget: int) -> int:
        """Do up to `budget` units of deferred work; returns the units left. What a unit is, the operator decides. It is
        repeated to 0 before a commit (`highlevel.scheduler`)."""
        ...
