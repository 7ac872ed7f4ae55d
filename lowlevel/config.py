"""What can be set of the low level. Times are in ns unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["Flush", "LowLevelConfig", "LowLevelConfigError", "QueueConfig", "SpillCodec"]

_SECOND_NS = 1_000_000_000


class LowLevelConfigError(ValueError):
    """A setting that cannot be: the message says which and what would be right."""


class Flush(Enum):
    """How partials leave the table when their pane has ended (Li 8.3.3)."""

    SLOW = "slow"  # a few with each batch of packets, all of them within `flush_within_ns`
    LAZY = "lazy"  # by collisions, and what is left then within `flush_panes`
    FULL = "full"  # all at once


@dataclass(frozen=True, slots=True)
class LowLevelConfig:
    """Of the nodes on one source."""

    slots: int = 1 << 20  # of each node's table: a power of two
    flush: Flush = Flush.SLOW
    flush_within_ns: int = _SECOND_NS  # of packet time or of the clock; at most a pane is used
    flush_panes: int = 2  # a partial leaves within this many panes of its pane's end
    output_rows: int = 8192  # of the buffer between the kernel and what takes its output

    def __post_init__(self) -> None:
        if self.slots < 1 or self.slots & (self.slots - 1) or self.slots > 1 << 31:
            raise LowLevelConfigError(f"slots is {self.slots}: it is a power of two from 1 to 2^31")
        if self.flush_within_ns < 0:
            raise LowLevelConfigError(f"flush_within_ns is {self.flush_within_ns}: it is 0 or more")
        if self.flush_panes < 1:
            raise LowLevelConfigError(f"flush_panes is {self.flush_panes}: it is 1 or more")
        if self.output_rows < 64:
            raise LowLevelConfigError(f"output_rows is {self.output_rows}: it is 64 or more")

    def delay_panes(self) -> int:
        """How many panes after a pane's end its flush begins."""
        return self.flush_panes - 1 if self.flush is Flush.LAZY else 0

    def within_ns(self, pane_ns: int) -> int:
        """How long it takes from there."""
        match self.flush:
            case Flush.SLOW:
                return min(self.flush_within_ns, pane_ns)
            case Flush.LAZY:
                return pane_ns
            case Flush.FULL:
                return 0


class SpillCodec(Enum):
    """How records on disk are compressed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Of the queue between the nodes and Kafka."""

    max_bytes: int = 256 << 20  # of records that are not acknowledged, all partitions together
    linger_ms: int = 5
    retry_s: float = 1.0  # before a client that failed is replaced
    spill: Path | None = None  # folder for what has no room in memory; None: it is given up
    spill_bytes: int = 4 << 30  # of records, before they are compressed
    spill_codec: SpillCodec = SpillCodec.NONE

    def __post_init__(self) -> None:
        if self.max_bytes < 1 << 20:
            raise LowLevelConfigError(f"max_bytes is {self.max_bytes}: it is 1 MiB (1048576) or more")
        if self.spill_bytes < 1 << 20:
            raise LowLevelConfigError(f"spill_bytes is {self.spill_bytes}: it is 1 MiB (1048576) or more")
        if self.linger_ms < 0 or self.retry_s <= 0:
            raise LowLevelConfigError("linger_ms is 0 or more, retry_s above 0")
