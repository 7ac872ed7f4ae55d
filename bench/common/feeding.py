"""Partials as captures would send them, made in bulk and produced to a stage's topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.common.join_runs import rows_of
from bench.common.settings import Installation
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowmark.wire.kafka.clients import producer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Ending, Punctuation
from lowmark.wire.records.record import WireRecord
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import Words, to_batch

__all__ = ["Feed", "Partials", "random_partials"]

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

    def words(self, schema: Schema, pane: int) -> Words:
        """Of the node of `PAIRS`."""
        columns = {
            "pane": np.full(len(self), pane),
            "tuples": self.packets,
            "srcIP": self.source,
            "destIP": self.destination,
            "_add0": self.size,
        }
        return rows_of(schema, columns)

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
    """Sources as the job sees them, whose streams have a node each. Records are made first and sent when told."""

    def __init__(self, installation: Installation, sources: Sequence[str]) -> None:
        stage, config = installation.plan.stage, installation.config
        self._nodes = {
            source: next(node for node in stage.nodes if config.sources[source].stream in node.streams)
            for source in sources
        }
        self._outboxes = {
            source: Outbox(node, Origin(stage.fingerprint, source, epoch, node.name), stage.buckets)
            for epoch, (source, node) in enumerate(self._nodes.items())
        }
        self._buckets = stage.buckets
        self._pane = stage.nodes[0].reduction.pane  # those of all nodes are alike
        self._topic = Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name
        self._client = producer(config.kafka, 0)

    def schema(self, source: str) -> Schema:
        """Of what its node sends."""
        return self._nodes[source].reduction.schema

    def pane_start_ns(self, pane: int) -> int:
        return self._pane.start(pane)

    def records(
        self, source: str, pane: int, rows: Words, *, last: bool = False
    ) -> Iterator[tuple[int, Rows | Punctuation]]:
        """The pane's data, then its promise to every partition; `last` ends the source."""
        progress = NodeProgress(FOREVER if last else self.pane_start_ns(pane + 1))
        output = NodeOutput(self._nodes[source].name, rows, progress)
        yield from self._outboxes[source].take(output, Ending.END if last else Ending.NONE)

    def produce(self, records: Iterable[tuple[int, Rows | Punctuation]]) -> list[list[int]]:
        """Send all of them, and wait until the broker has them. For each partition and offset the rows before it."""
        rows_at = [[0] for _ in range(self._buckets)]
        for partition, record in records:
            self.send(partition, self.wire(record))
            rows = len(record.rows) if isinstance(record, Rows) else 0
            rows_at[partition].append(rows_at[partition][-1] + rows)
        self.flush()
        return rows_at

    def wire(self, record: Rows | Punctuation) -> WireRecord:
        if isinstance(record, Punctuation):
            return encode(record)
        rows = to_batch(self.schema(record.origin.source), record.rows)
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
