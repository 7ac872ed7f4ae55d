"""The simulated broker's partitions: records with their transactions, and what readers see of them.

A transaction's end writes a marker to each of its partitions, which takes an offset. A read_committed reader sees
nothing behind the first record of a transaction that has not ended, and no record of one that was aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Entry", "Log", "OutOfOrder", "Partition", "Place", "Transaction"]

Place = tuple[str, int]
"""A topic and a partition."""

Headers = tuple[tuple[str, bytes], ...]


class OutOfOrder(Exception):
    """An idempotent producer's record does not follow on the one before."""


@dataclass(eq=False)
class Transaction:
    """`committed` is None while it has not ended. A group's offsets become its own when it is committed."""

    begun_s: float
    committed: bool | None = None
    places: list[Place] = field(default_factory=list)
    open_places: list[Place] = field(default_factory=list)  # without a marker yet
    offsets: dict[str, dict[Place, tuple[int, str]]] = field(default_factory=dict)  # by group


@dataclass(slots=True)
class Entry:
    offset: int
    appended_ns: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    transaction: Transaction | None = None
    marker: bool = False


class Partition:
    def __init__(self) -> None:
        self.low = 0
        self._entries: list[Entry] = []
        self._open: dict[Transaction, int] = {}  # the offset of the first record of each that has no marker here
        self._sequences: dict[int, tuple[int, int]] = {}  # by producer: its epoch and the last sequence number

    @property
    def high(self) -> int:
        return self._entries[-1].offset + 1 if self._entries else self.low

    @property
    def stable(self) -> int:
        """Where a read_committed reader stops."""
        return min(self._open.values(), default=self.high)

    def append(
        self, entry: Entry, producer: tuple[int, int] | None = None, sequence: int = 0
    ) -> bool:  # fmt: skip
        """False: it was there already. Raises OutOfOrder."""
        if producer is not None:
            number, epoch = producer
            before = self._sequences.get(number)
            expected = 0 if before is None or before[0] != epoch else before[1] + 1
            if sequence < expected:
                return False
            if sequence > expected and before is not None:
                raise OutOfOrder
            self._sequences[number] = epoch, sequence
        entry.offset = self.high
        self._entries.append(entry)
        if entry.transaction is not None and not entry.marker:
            self._open.setdefault(entry.transaction, entry.offset)
        return True

    def mark(self, transaction: Transaction, now_ns: int) -> None:
        self.append(Entry(0, now_ns, None, None, (), transaction, True))
        self._open.pop(transaction, None)

    def read(self, start: int, committed: bool = True) -> Iterator[Entry]:
        end = self.stable if committed else self.high
        for at in range(max(start, self.low) - self._first, len(self._entries)):
            entry = self._entries[at]
            if entry.offset >= end:
                return
            if entry.marker or (committed and entry.transaction is not None and not entry.transaction.committed):
                continue
            yield entry

    def truncate(self, low: int) -> None:
        """Retention: all before this offset is gone."""
        self.low = max(self.low, min(low, self.stable))
        keep = next((at for at, entry in enumerate(self._entries) if entry.offset >= self.low), len(self._entries))
        if keep < len(self._entries):
            del self._entries[:keep]

    @property
    def _first(self) -> int:
        return self._entries[0].offset if self._entries else self.low


class Log:
    """Partitions by place; a topic is made with its number of partitions."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Partition]] = {}

    def make(self, topic: str, partitions: int) -> None:
        self.topics.setdefault(topic, [Partition() for _ in range(partitions)])

    def __getitem__(self, place: Place) -> Partition:
        topic, partition = place
        return self.topics[topic][partition]

    def __contains__(self, place: Place) -> bool:
        topic, partition = place
        return partition < len(self.topics.get(topic, ()))
