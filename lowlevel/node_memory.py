"""The memory of one node: its table, buffers and counters, allocated once (`kernel.panes` explains them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowlevel.config import FlushOrder, LowLevelConfig
from lowlevel.early_groups import index_of, take_groups
from lowlevel.kernel.codegen.membership import arrays_of
from lowlevel.kernel.codegen.node import BATCH
from lowlevel.kernel.codegen.table_insert import leaves_at_once, slot_words
from lowlevel.kernel.inlined import panes as at
from lowlevel.kernel.row_form import RowForm
from lowmark.query.plan.nodes import Reduction
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["NodeCounts", "NodeMemory", "table_bytes"]

_LATE_ENTRIES = 1024
_LOST_ENTRIES = 1024
_PAIR = 128  # bytes of two cache lines
_RING_BYTES = 4  # a slot's entry in the ring
_PAGE = 4096  # bytes


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Cumulative counts of one node since it began. Tuples: decoded = filtered + late + put_out + resident. Rows
    output: evicted + flushed + straight; this does not hold if groups leave at once, because an evicted row may then
    have no tuples left to output."""

    filtered: int  # tuples
    late: int
    put_out: int
    resident: int
    evicted: int  # rows that left because of a collision, or because a sum would have overflowed
    overfull: int  # … of these, because of the sum
    flushed: int  # … because their pane had ended
    straight: int  # … with a tuple that did not wait: older than the resident, selected, or the first of its group
    groups: int  # rows in the table at present


def table_bytes(reduction: Reduction, config: LowLevelConfig) -> int:
    """Bytes of a node's table. If partials keep their order, the output buffer is included, which has room for the
    whole table."""
    if not reduction.grouped:
        return 0
    words = RowForm(reduction).words
    row = 8 * words
    slot = 8 * slot_words(words) + _RING_BYTES
    return config.slots_of(slot) * (slot + (row if config.order is FlushOrder.PRESERVED else 0))


class NodeMemory:
    """`send_late`: late tuples are also kept as rows, until `drain_strays`."""

    def __init__(
        self, reduction: Reduction, config: LowLevelConfig, link_code: int, rank: int, send_late: bool = False
    ) -> None:
        self._form = RowForm(reduction)
        pane, words = reduction.pane, self._form.words
        self.late_tuples = 0
        self._state = np.zeros(at.STATE_WORDS, np.int64)
        self._state[[at.OPEN, at.OPEN_UNTIL, at.DUE]] = (INT64_MIN, INT64_MIN + 1, INT64_MIN)
        self._state[at.DELAY] = config.delay_panes() * pane.gap
        self._state[at.WITHIN] = config.within_ns(pane.length)
        self._state[at.LINK], self._state[at.RANK] = link_code, rank
        self._state[at.SHIFT], self._state[at.GAP] = pane.origin // pane.width, pane.gap
        self._state[at.EVERY], self._state[at.MOST] = config.flush_every, config.flush_panes * pane.gap
        self._state[at.ORDERED] = config.order is FlushOrder.PRESERVED
        self.at_once = leaves_at_once(reduction, config.order)
        slots = config.slots_of(8 * slot_words(words) + _RING_BYTES) if reduction.grouped else 0
        # To keep order, the whole table may have to leave at once. Parts that are never written take no memory.
        self._kept_rows = max(config.output_rows, 2 * BATCH) if self.at_once else config.output_rows
        self._out = np.empty((self._kept_rows + (slots if self._state[at.ORDERED] else 0), words), np.int64)
        self._late = np.empty((_LATE_ENTRIES, 2), np.int64)
        self._none = np.empty((0, reduction.schema.words), np.uint64)
        self._strays = np.empty((config.output_rows if send_late else 0, words), np.int64)
        self._lost = np.zeros(1 + _LOST_ENTRIES if reduction.checked else 1, np.int64)
        sets = arrays_of(reduction)
        self.arguments: tuple[npt.NDArray[np.generic], ...] = (self._state, self._out, self._late, *sets)
        if send_late:
            self.arguments = (*self.arguments, self._strays)
        if reduction.checked:
            self.arguments = (*self.arguments, self._lost)
        self._table = np.empty((0, words), np.int64)
        self._ring = np.empty(0, np.uint32)
        self._panes = np.zeros((2, at.PANES), np.int64)
        if reduction.grouped:
            self._table = _aligned(slots, slot_words(words))
            self._ring = np.empty(slots, np.uint32)
            rows, places = np.empty((BATCH, words), np.int64), np.empty(BATCH, np.int64)
            self.arguments = (*self.arguments, self._table, self._ring, self._panes, rows, places)

    def touch(self) -> None:
        """Have the system allocate the memory now. Each huge page of a table takes milliseconds, for which no packet
        should wait."""
        self._out[:: max(1, _PAGE // self._out[0].nbytes)] = 0
        for array in (self._table, self._ring):
            array.reshape(-1)[:: _PAGE // array.itemsize] = 0

    @property
    def slots(self) -> int:
        """Slots of the table; 0: there is none."""
        return len(self._table)

    @property
    def evicted(self) -> int:
        """Rows that have left because of a collision."""
        return int(self._state[at.EVICTED] - self._state[at.OVERFULL])

    @property
    def open_pane(self) -> int:
        """The first pane that has not ended."""
        return int(self._state[at.OPEN])

    @property
    def taken(self) -> int:
        """Tuples neither filtered nor late, so far."""
        return int(self._state[at.TAKEN])

    @property
    def pending_rows(self) -> int:
        """Rows in the output buffer."""
        return int(self._state[at.OUT])

    @property
    def is_full(self) -> bool:
        """Whether the output buffer is well filled, or the kernel may be waiting for it to be drained."""
        needed = 2 * BATCH if self.at_once else BATCH
        needed += int(self._state[at.LENGTH]) if self._state[at.ORDERED] else 0
        return self.pending_rows > self._kept_rows // 2 or self.pending_rows + needed > len(self._out)

    def drain(self) -> Words:
        """The rows in the output buffer; empties it."""
        rows = self._form.unpacked(self._out[: self.pending_rows].view(np.uint64))
        self._state[at.OUT] = 0
        return rows

    def put_out(self, columns: Sequence[str], values: ValueSet) -> bool:
        """Output the partials of groups with these values of key columns, of any pane. False: the output buffer is
        full; drain it and call again."""
        if not self.slots:
            return True
        groups, words, bits = self._form.groups(columns, values)
        return bool(take_groups(
            self._table, self._ring, self._panes, self._state, self._out, groups, words, int(bits[0]),
            index_of(len(groups)), int(self.at_once),
        ))  # fmt: skip

    @property
    def groups(self) -> int:
        """Partials in the table."""
        return int(self._state[at.LENGTH])

    def drain_strays(self) -> Words:
        """The rows of late tuples, in order of arrival; empties their buffer."""
        if not self._state[at.STRAYS]:
            return self._none
        rows = self._form.unpacked(self._strays[: int(self._state[at.STRAYS])].view(np.uint64))
        self._state[at.STRAYS] = 0
        return rows

    def drain_lost(self) -> frozenset[int]:
        """Remove and return the granules of tuples that lost a value to an overflow."""
        entries = int(self._lost[0])
        self._lost[0] = 0
        return frozenset(self._lost[1 : 1 + entries].tolist())

    def drain_late(self, into: dict[int, int]) -> None:
        """Add the number of late tuples of each granule."""
        entries = int(self._state[at.LATE])
        for granule, tuples in self._late[:entries].tolist():
            into[granule] = into.get(granule, 0) + tuples
            self.late_tuples += tuples
        self._state[at.LATE] = 0

    def oldest_resident(self) -> int | None:
        """The pane of the oldest partial in the table."""
        counted = self._panes[at.PANE_NUMBER][self._panes[at.PANE_RESIDENTS] > 0]
        return int(counted.min()) if len(counted) else None

    def counts(self) -> NodeCounts:
        """The counts; call this when late tuples have been drained."""
        state = self._state
        put_out = int(state[at.OUT_TUPLES])
        return NodeCounts(
            filtered=int(state[at.FILTERED]),
            late=self.late_tuples,
            put_out=put_out,
            resident=int(state[at.TAKEN]) - put_out,
            evicted=int(state[at.EVICTED]),
            overfull=int(state[at.OVERFULL]),
            flushed=int(state[at.FLUSHED]),
            straight=int(state[at.STRAIGHT]),
            groups=int(state[at.LENGTH]),
        )

    def residents(self) -> Words:
        """Partials still in the table, by slot. For audits: it reads the whole table."""
        width = self._out.shape[1]
        rows = self._form.unpacked(self._table[self._table[:, at.ROW_TUPLES] > self.at_once].view(np.uint64)[:, :width])
        if self.at_once:
            rows[:, at.ROW_TUPLES] -= np.uint64(1)
        return rows


def _aligned(rows: int, words: int) -> npt.NDArray[np.int64]:
    """Zeros that take no memory until touched. Slots of eight words fill one cache line each; pairs of them fill two
    lines that the processor fetches together."""
    raw = np.zeros(8 * rows * words + _PAIR, np.uint8)
    start = -raw.ctypes.data % _PAIR
    return raw[start : start + 8 * rows * words].view(np.int64).reshape(rows, words)
