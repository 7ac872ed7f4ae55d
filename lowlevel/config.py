"""The settings of the low level. Times are in ns unless a name says otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lowmark.wire.rows.compression import Compression

__all__ = ["Flush", "FlushOrder", "LowLevelConfig", "LowLevelConfigError", "QueueConfig", "table_size"]

_SECOND_NS = 1_000_000_000


class LowLevelConfigError(ValueError):
    """An impossible setting: the message says which and what would be right."""


class Flush(Enum):
    """How partials leave the table when their pane has ended (Li 8.3.3)."""

    SLOW = "slow"  # a few with each batch of packets, all of them within `flush_within_ns`
    LAZY = "lazy"  # by collisions; the rest leave within `flush_panes`
    FULL = "full"  # all at once


class FlushOrder(Enum):
    """The order in which partials leave the table."""

    ANY = "any"
    # A pane's partials leave before those of later panes, as in-order processing needs (IOP; Li fig. 8-6). This
    # baseline is kept for comparison: a collision may have to flush the whole table.
    PRESERVED = "preserved"


_SIZE = re.compile(r"\s*(\d+)\s*([KMG]?)(i?B)?\s*", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_MOST_SLOTS = 1 << 31


def table_size(text: str) -> tuple[int, int]:
    """Parse a table's size as people write it, a number of slots or an amount of memory such as 64M, into slots and
    bytes. One of the two is 0. Raises LowLevelConfigError for anything else."""
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise LowLevelConfigError(f"{text!r} is no size of a table: it is a number of groups, or memory such as 64M")
    if match[2]:
        return 0, int(match[1]) << _UNITS[match[2].upper()]
    return (0, int(match[1])) if match[3] else (int(match[1]), 0)


@dataclass(frozen=True, slots=True)
class LowLevelConfig:
    """Settings of the nodes on one source."""

    slots: int = 1 << 20  # slots of each node's table: a power of two
    memory: str = ""  # memory of each node's table, for example 64M; sets as many slots as fit, instead of `slots`
    flush: Flush = Flush.SLOW
    flush_within_ns: int = _SECOND_NS  # time for a slow flush, by packet time or the clock; limited to one pane
    flush_every: int = 0  # slow flush: one slot per so many packets (Li's i), instead of `flush_within_ns`
    flush_panes: int = 2  # a partial leaves within this many panes of its pane's end (Li's m)
    order: FlushOrder = FlushOrder.ANY
    output_rows: int = 16384  # rows of the buffer between the kernel and the reader of its output

    def __post_init__(self) -> None:
        if self.slots < 1 or self.slots & (self.slots - 1) or self.slots > _MOST_SLOTS:
            next_one = min(_MOST_SLOTS, 1 << max(0, self.slots - 1).bit_length())
            raise LowLevelConfigError(f"slots is {self.slots}: it is a power of two from 1 to 2^31, such as {next_one}")
        if self.memory and not table_size(self.memory)[1]:
            raise LowLevelConfigError(f"memory is {self.memory!r}: it is an amount such as 64M")
        if self.flush_every < 0:
            raise LowLevelConfigError(f"flush_every is {self.flush_every}: it is 0 or more")
        if self.flush_every and self.flush is not Flush.SLOW:
            raise LowLevelConfigError("flush_every is for the slow flush alone")
        if self.flush_within_ns < 0:
            raise LowLevelConfigError(f"flush_within_ns is {self.flush_within_ns}: it is 0 or more")
        if self.flush_panes < 1:
            raise LowLevelConfigError(f"flush_panes is {self.flush_panes}: it is 1 or more")
        if self.output_rows < 64:
            raise LowLevelConfigError(f"output_rows is {self.output_rows}: it is 64 or more")

    def slots_of(self, slot_bytes: int) -> int:
        """The number of slots of a table whose slots take this many bytes each."""
        if not self.memory:
            return self.slots
        fitting = max(1, table_size(self.memory)[1] // slot_bytes)
        return min(_MOST_SLOTS, 1 << fitting.bit_length() - 1)

    def patience_ns(self, pane_ns: int) -> int:
        """How long after a pane's end its last partial may leave."""
        if self.flush_every:
            return self.flush_panes * pane_ns
        return self.delay_panes() * pane_ns + self.within_ns(pane_ns)

    def delay_panes(self) -> int:
        """How many panes after a pane's end its flush begins."""
        return self.flush_panes - 1 if self.flush is Flush.LAZY else 0

    def within_ns(self, pane_ns: int) -> int:
        """How long the flush takes from its beginning."""
        match self.flush:
            case Flush.SLOW:
                return min(self.flush_within_ns, pane_ns)
            case Flush.LAZY:
                return pane_ns
            case Flush.FULL:
                return 0


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Settings of the queue between the nodes and Kafka."""

    max_bytes: int = 256 << 20  # most bytes of records not acknowledged, over all partitions
    linger_ms: int = 5
    retry_s: float = 1.0  # wait before a failed client is replaced
    spill: Path | None = None  # folder for records that do not fit into memory; None: they are given up
    spill_bytes: int = 4 << 30  # most bytes of records in that folder
    compression: Compression = Compression.LZ4  # compression of batches, on the way to Kafka and in it

    def __post_init__(self) -> None:
        if self.max_bytes < 1 << 20:
            raise LowLevelConfigError(f"max_bytes is {self.max_bytes}: it is 1 MiB (1048576) or more")
        if self.spill_bytes < 1 << 20:
            raise LowLevelConfigError(f"spill_bytes is {self.spill_bytes}: it is 1 MiB (1048576) or more")
        if self.linger_ms < 0 or self.retry_s <= 0:
            raise LowLevelConfigError("linger_ms is 0 or more, retry_s above 0")
