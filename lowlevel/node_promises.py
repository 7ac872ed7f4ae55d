"""One node on a source, and its output: rows and the progress that covers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lowlevel.node_memory import NodeMemory
from lowlevel.table_pressure import Pressure
from lowmark.query.plan.nodes import ClosePromises, Node, Pane
from lowmark.wire.frames import Flaw
from lowmark.wire.records.punctuations import Taint
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["Closed", "NodeOutput", "NodeProgress", "SourceNode"]

_MOST_LATE = 4096
"""Granules with late tuples that may wait for the next promise."""

_MOST_TAINTS = 256
"""Runs of granules that may wait for the next promise; beyond this limit, a new run is merged with the last one."""


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """No later row of the node lies in a granule that ends at or before `promised_ns`: FOREVER, or the start of a
    granule. Late tuples are of granules promised now or earlier; taints may be of any. Each is reported once."""

    promised_ns: int
    late: Mapping[int, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()  # the source's flaws by granules, with frames that the kernel dropped there


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """No later row of the node has one of these values, of the columns of its `ClosePromises`, and a time before
    `until_ns`, which is the start of a granule."""

    values: ValueSet
    until_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class NodeOutput:
    """Rows in the word form of the node's schema, owned by the receiver; then the progress that covers them, and what
    is promised about values."""

    node: str
    rows: Words
    progress: NodeProgress | None = None
    late: Words | None = None  # rows of late tuples, which no progress covers; only of nodes that send them
    closed: tuple[Closed, ...] = ()


class SourceNode:
    """One node on a source: its memory, and what it has promised."""

    def __init__(self, node: Node, memory: NodeMemory) -> None:
        self.node = node
        self.memory = memory
        self.pressure = Pressure(node.reduction, memory.slots)
        self.late: dict[int, int] = {}  # not reported yet
        self._taints: list[Taint] = []  # not reported yet
        self.promised = INT64_MIN  # the first granule that is not closed
        self.waiting: tuple[int, int] | None = None  # the oldest ended pane with partials, and since when

    def drain(self) -> Words:
        """The rows in the output buffer; empties it."""
        rows = self.memory.drain()
        if self.memory.slots:
            self.pressure.note(rows, self.memory.evicted, self.memory.taken, self.memory.open_pane)
        return rows

    @property
    def pane(self) -> Pane:
        return self.node.reduction.pane

    def taint(self, flaw: Flaw, dropped: int = 0) -> None:
        """Taint all granules that overlap the time of the flaw, at least the granule of its first moment."""
        start = INT64_MIN if flaw.from_ns == INT64_MIN else self.pane.index(flaw.from_ns)
        stop = FOREVER if flaw.until_ns == FOREVER else self.pane.index(max(flaw.from_ns, flaw.until_ns)) + 1
        self.note(Taint(start, stop, (flaw.reason.value,), dropped=dropped))

    def note(self, taint: Taint) -> None:
        """Keep a taint for the next promise."""
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

    def close(self, closing: ClosePromises, values: ValueSet, closed_ns: npt.NDArray[np.int64]) -> Iterator[NodeOutput]:
        """Output the rows of connections that closed at these times, and promise that no more of their rows follow in
        the windows of that time. Windows that have ended need no such promise."""
        until = closing.until(closed_ns)
        waited = self.pane.index(until) > self.promised
        values, until = ValueSet(values.wide[waited]), until[waited]
        if not len(values):
            return
        while not self.memory.put_out(closing.columns, values):
            yield NodeOutput(self.node.name, self.drain())
        ends = np.unique(until).tolist()
        closed = tuple(Closed(ValueSet(values.wide[until == end]), end) for end in ends)
        yield NodeOutput(self.node.name, self.drain(), closed=closed)

    def progress(self, low: int, *, news: bool = False) -> NodeProgress | None:
        """The promise at this low-watermark, or None if there is nothing to report. A promise that has not grown is
        made only to report late tuples or taints, if `news` is set or many granules have late tuples. The caller drains
        the output with each promise."""
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
        return NodeProgress(promised_ns, late, taints)

    def _open(self, low: int) -> int:
        return FOREVER if low == FOREVER else self.pane.index(low)


def _together(one: Taint, other: Taint) -> Taint:
    """One run that covers both, with the reasons of both."""
    values = {*one.reasons, *other.reasons}
    reasons = tuple(reason.value for reason in Reason if reason.value in values)
    start, stop = min(one.start, other.start), max(one.stop, other.stop)
    return Taint(start, stop, reasons, dropped=one.dropped + other.dropped)
