"""One node on a source, and what it gives out: rows, and progress that covers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lowlevel.pressure import Pressure
from lowlevel.table import NodeMemory
from lowmark.query.plan import Node, Pane
from lowmark.wire.frames import FOREVER
from lowmark.wire.results import Reason
from lowmark.wire.rows import Words
from lowmark.wire.values import INT64_MIN

__all__ = ["Member", "NodeOutput", "Progress"]

_MOST_GRANULES = 4096  # that one block may say something against
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """No later row of the node lies in a granule that ends at or before `promised_ns`: FOREVER, or the start of a
    granule. The counts are of closed granules alone, each said once; late tuples may be of granules that an earlier
    promise had closed."""

    promised_ns: int
    late: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(
        default_factory=dict
    )  # frames that the kernel dropped, in each granule they may be of
    flaws: Mapping[int, frozenset[Reason]] = field(default_factory=dict)  # what else the source says against a granule


@dataclass(frozen=True, slots=True, eq=False)
class NodeOutput:
    """Rows in the word form of the node's schema, the receiver's own; then the progress that covers them."""

    node: str
    rows: Words
    progress: Progress | None = None
    late: Words | None = None  # rows of late tuples, which no progress covers; of nodes that send them


class Member:
    """One node on a source: its memory, and what it has promised."""

    def __init__(self, node: Node, memory: NodeMemory) -> None:
        self.node = node
        self.memory = memory
        self.pressure = Pressure(node.reduction, memory.slots)
        self.late: dict[int, int] = {}
        self.dropped: dict[int, int] = {}
        self.flaws: dict[int, frozenset[Reason]] = {}
        self.promised = INT64_MIN  # the first granule that is not closed
        self.waiting: tuple[int, int] | None = None  # the oldest pane that has ended and is here, and since when

    def drain(self) -> Words:
        """The rows in the output buffer, which is empty then."""
        rows = self.memory.drain()
        if self.memory.slots:
            self.pressure.note(rows, self.memory.evicted, self.memory.taken, self.memory.open_pane)
        return rows

    @property
    def pane(self) -> Pane:
        return self.node.reduction.pane

    def granules(self, from_ns: int, until_ns: int) -> Iterator[int]:
        """Those that the time between two moments touches, that of the first one at least."""
        granule, last = self.pane.index(from_ns), self.pane.index(until_ns)
        yield granule
        for _ in range(_MOST_GRANULES - 1):
            granule = self.pane.index(self.pane.start(granule + 1))
            if granule > last:
                return
            yield granule

    def ended_resident(self, low: int) -> int | None:
        oldest = self.memory.oldest_resident()
        return oldest if oldest is not None and oldest < self._open(low) else None

    def progress(self, low: int) -> Progress | None:
        """What can be promised at this low-watermark, if it is more than before. The output has to be drained then."""
        if low == INT64_MIN:
            return None
        first = self._open(low)
        oldest = self.memory.oldest_resident()
        promised_ns = FOREVER if low == FOREVER else self.pane.start(first)
        if oldest is not None and oldest < first:
            first = oldest
            promised_ns = self.pane.start(first)
        if first <= self.promised or promised_ns < INT64_MIN:
            return None
        self.promised = first
        return Progress(promised_ns, _below(first, self.late), _below(first, self.dropped), _below(first, self.flaws))

    def _open(self, low: int) -> int:
        return FOREVER if low == FOREVER else self.pane.index(low)


def _below(first: int, noted: dict[int, T]) -> dict[int, T]:
    """Takes out what was noted of closed granules."""
    return {granule: noted.pop(granule) for granule in sorted(noted) if granule < first}
