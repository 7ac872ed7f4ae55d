"""One node on a source, and what it gives out: rows, and progress that covers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowlevel.node_memory import NodeMemory
from lowlevel.table_pressure import Pressure
from lowmark.query.plan.nodes import Node, Pane
from lowmark.wire.frames import Flaw
from lowmark.wire.records.punctuations import Taint
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["NodeOutput", "Progress", "SourceNode"]

_MOST_LATE = 4096
"""Granules with late tuples that wait for the next promise."""

_MOST_TAINTS = 256
"""Runs of granules that wait for the next promise: of more, the last ones are told as one that holds them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """No later row of the node lies in a granule that ends at or before `promised_ns`: FOREVER, or the start of a
    granule. Late tuples are of promised granules, by this promise or an earlier one; taints may be of any. Each is said
    once."""

    promised_ns: int
    late: Mapping[int, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()  # what the source has against granules, and frames that the kernel dropped in them


@dataclass(frozen=True, slots=True, eq=False)
class NodeOutput:
    """Rows in the word form of the node's schema, the receiver's own; then the progress that covers them."""

    node: str
    rows: Words
    progress: Progress | None = None
    late: Words | None = None  # rows of late tuples, which no progress covers; of nodes that send them


class SourceNode:
    """One node on a source: its memory, and what it has promised."""

    def __init__(self, node: Node, memory: NodeMemory) -> None:
        self.node = node
        self.memory = memory
        self.pressure = Pressure(node.reduction, memory.slots)
        self.late: dict[int, int] = {}  # not told yet
        self._taints: list[Taint] = []  # not told yet
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

    def taint(self, flaw: Flaw, dropped: int = 0) -> None:
        """This stands against all granules that the time of the flaw touches, that of its first moment at least."""
        start = INT64_MIN if flaw.from_ns == INT64_MIN else self.pane.index(flaw.from_ns)
        stop = FOREVER if flaw.until_ns == FOREVER else self.pane.index(max(flaw.from_ns, flaw.until_ns)) + 1
        self.note(Taint(start, stop, (flaw.reason.value,), dropped=dropped))

    def note(self, taint: Taint) -> None:
        """To be told with the next promise."""
        for at, known in enumerate(self._taints):
            if known.reasons == taint.reasons and known.start <= taint.stop and taint.start <= known.stop:
                self._taints[at] = _together(known, taint)
                return
        if len(self._taints) == _MOST_TAINTS:
            taint = _together(self._taints.pop(), taint)
        self._taints.append(taint)

    def ended_resident(self, low: int) -> int | None:
        oldest = self.memory.oldest_resident()
        return oldest if oldest is not None and oldest < self._open(low) else None

    def progress(self, low: int, *, news: bool = False) -> Progress | None:
        """What can be promised at this low-watermark, if it is more than before, or as much and (`news`, or when there
        is much of it) something has been noted. The output has to be drained then."""
        if low == INT64_MIN:
            return None
        first = self._open(low)
        oldest = self.memory.oldest_resident()
        promised_ns = FOREVER if low == FOREVER else self.pane.start(first)
        if oldest is not None and oldest < first:
            first = oldest
            promised_ns = self.pane.start(first)
        if promised_ns < INT64_MIN:
            return None
        if first <= self.promised:
            if not news and len(self.late) < _MOST_LATE:
                return None
            first = self.promised
            promised_ns = FOREVER if first == FOREVER else self.pane.start(first)
        late = {granule: self.late.pop(granule) for granule in sorted(self.late) if granule < first}
        if first == self.promised and not late and not self._taints:
            return None
        self.promised = first
        taints, self._taints = tuple(self._taints), []
        return Progress(promised_ns, late, taints)

    def _open(self, low: int) -> int:
        return FOREVER if low == FOREVER else self.pane.index(low)


def _together(one: Taint, other: Taint) -> Taint:
    """A run that holds both, with what stands against either."""
    values = {*one.reasons, *other.reasons}
    reasons = tuple(reason.value for reason in Reason if reason.value in values)
    start, stop = min(one.start, other.start), max(one.stop, other.stop)
    return Taint(start, stop, reasons, dropped=one.dropped + other.dropped)
