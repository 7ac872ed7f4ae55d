"""What an operator is: pure code between ports, with its state in pieces (DESIGN: the high level).

Operators know no Spark, no Kafka, no clock and no randomness: the same records in the same order on the same state
give the same output. Rows pass as matrices of words (`lowmark.wire.rows.schema`): one row of uint64 a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["Operator", "Out", "Space", "State", "Words"]

Words = npt.NDArray[np.uint64]
"""Rows in word form, C-contiguous, `schema.words` wide."""

P = TypeVar("P")


@dataclass(frozen=True)
class Space(Generic[P]):
    """A kind of state piece of one operator: its name, unique in the chain, and how a piece is written and read."""

    name: str
    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]


class State(Protocol):
    """State of one (stage, bucket). A piece handed out by `get` is the caller's to change, and is kept by `put`."""

    def get(self, space: Space[P], key: int) -> P | None: ...
    def put(self, space: Space[P], key: int, piece: P) -> None: ...
    def drop(self, space: Space[P], key: int) -> None: ...
    def keys(self, space: Space[P], below: int | None = None) -> Sequence[int]:
        """Keys in ascending order, those smaller than `below` only; loads no piece."""
        ...


class Out(Protocol):
    """Where an operator's output goes. Rows come before the promise and the closing that cover them."""

    def rows(self, port: int, rows: Words) -> None: ...
    def promise(self, port: int, promise: Promise) -> None: ...
    def closed(self, port: int, windows: range, tuples: int) -> None:
        """These windows are final: their rows are out. `tuples` of the input were merged into them."""
        ...

    def late(self, port: int, rows: Words) -> None: ...
    def flaw(self, port: int, window: int, reason: Reason) -> None:
        """A value in this window cannot be told: it shows null, and the window is lossy for this reason. `overflow`:
        something that decides left int64; `tie`: the first or the last tuples, all at one time, have different values.
        `numbering` is of no window: what is counted is counted anew from here on.

        Of a step whose rows lie in no window of its own `window` says where they lie: of a reduction their pane, of a
        join the granule (`Join.granule`) of one of their times; of any other, nothing."""
        ...


class Operator(Protocol):
    """Built from a frozen plan node. Several inputs, several outputs."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        """Take rows in. Runs between two promises may come as one."""
        ...

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        """The port's frontier has moved: close what it proves complete. Called once for each advance."""
        ...

    def work(self, state: State, out: Out, budget: int) -> int:
        """Do up to `budget` units of deferred work; how much is left. Runners call it to 0 before they commit."""
        ...
