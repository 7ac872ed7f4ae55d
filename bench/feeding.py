"""Partials as captures would send them, made in bulk and produced to a stage's topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.settings import Installation
from lowlevel.node import NodeOutput, Progress
from lowlevel.outbox import Outbox, Rows
from lowmark.wire.codec import encode
from lowmark.wire.frames import FOREVER
from lowmark.wire.kafka import producer
from lowmark.wire.partials import Origin, PartialBatch
from lowmark.wire.promises import Ending, Punctuation
from lowmark.wire.record import WireRecord
from lowmark.wire.rows import Words, to_batch
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["Feed", "Partials", "random_partials"]

_MAPPED = 0xFFFF_0000_0000
_FLUSH_S = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Partials:
    """Columns of partial rows: the pair's number, and its packets and bytes."""

    group: npt.NDArray[np.int64]
    packets: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[Partials]) -> Partials:
        return cls(
            np.concatenate([part.group for part in parts]),
            np.concatenate([part.packets for part in parts]),
            np.concatenate([part.size for part in parts]),
        )

    def part(self, which: slice) -> Partials:
        return Partials(self.group[which], self.packets[which], self.size[which])

    def __len__(self) -> int:
        return len(self.group)

    @property
    def source(self) -> npt.NDArray[np.int64]:
        """Its address as a number: an IPv4 one, as is `destination`."""
        return (10 << 24) + self.group // 4 * 10_736_441 % (1 << 24)

    @property
    def destination(self) -> npt.NDArray[np.int64]:
        return (172 << 24) + (16 << 16) + self.group % (1 << 20)


def random_partials(random: np.random.Generator, rows: int, groups: int) -> Partials:
    """Rows of groups that are all alike."""
    packets = random.integers(1, 5, rows)
    return Partials(random.integers(0, groups, rows), packets, packets * random.integers(60, 1500, rows))


class Feed:
    """The sources of a stream, as the job sees them. Records are made first and sent when told."""

    def __init__(self, installation: Installation, sources: Sequence[str]) -> None:
        self._plan = installation.plan
        self._node = self._plan.stage.nodes[0]
        stage = self._plan.stage.fingerprint
        self._topic = Topic(TopicKind.PARTIALS, stage, installation.config.prefix).name
        self._client = producer(installation.config.kafka, 0)
        self._outboxes: Mapping[str, Outbox] = {
            source: Outbox(self._node, Origin(stage, source, epoch, self._node.name), self._plan.stage.buckets)
            for epoch, source in enumerate(sources)
        }

    def pane_start_ns(self, pane: int) -> int:
        return self._node.reduction.pane.start(pane)

    def records(
        self, source: str, pane: int, partials: Partials, *, last: bool = False
    ) -> Iterator[tuple[int, Rows | Punctuation]]:
        """The pane's data, then its promise to every partition; `last` ends the source."""
        progress = Progress(FOREVER if last else self.pane_start_ns(pane + 1))
        output = NodeOutput(self._node.name, self._words(pane, partials), progress)
        yield from self._outboxes[source].take(output, Ending.END if last else Ending.NONE)

    def wire(self, record: Rows | Punctuation) -> WireRecord:
        if isinstance(record, Punctuation):
            return encode(record)
        rows = to_batch(self._node.reduction.schema, record.rows)
        return encode(PartialBatch(record.origin, record.sequence, rows, record.tuples))

    def send(self, partition: int, record: WireRecord) -> None:
        try:
            self._produce(partition, record)
        except BufferError:  # the client's own queue is full
            self.flush()
            self._produce(partition, record)

    def flush(self) -> None:
        """Wait until the broker has all that was sent."""
        if left := self._client.flush(_FLUSH_S):
            raise RuntimeError(f"the broker did not take {left} records")

    def _produce(self, partition: int, record: WireRecord) -> None:
        self._client.produce(self._topic, record.value, partition=partition, headers=list(record.headers))

    def _words(self, pane: int, partials: Partials) -> Words:
        schema = self._node.reduction.schema
        words = np.zeros((len(partials), schema.words), np.uint64)
        columns = {
            "pane": np.full(len(partials), pane),
            "tuples": partials.packets,
            "srcIP": partials.source | _MAPPED,
            "destIP": partials.destination | _MAPPED,
            "_add0": partials.size,
        }
        for name, values in columns.items():
            # An address has two words, of which the second holds all of IPv4's.
            words[:, schema.offset(name) + (1 if name.endswith("IP") else 0)] = values.astype(np.uint64)
        return words
