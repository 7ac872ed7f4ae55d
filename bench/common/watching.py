"""The results of a query as a read_committed reader sees them, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import uuid4

from confluent_kafka import TopicPartition

from bench.common.settings import QUERY, Installation
from lowmark.wire.kafka.clients import consumer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.verdicts import Complete

__all__ = ["Watcher"]

_POLL_S = 0.2


@dataclass
class Watcher:
    """Completions of all buckets from the beginning of the topic, while its block runs."""

    installation: Installation

    def __enter__(self) -> Self:
        config = self.installation.config
        topic = Topic(TopicKind.RESULTS, QUERY, config.prefix).name
        self._reader = consumer(config.kafka, uuid4().hex)
        buckets = self.installation.plan.stage.buckets
        self._reader.assign([TopicPartition(topic, bucket, 0) for bucket in range(buckets)])
        self._ends = [-1] * buckets
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reader.close()

    @property
    def complete_to(self) -> int:
        """The end of the last window that every bucket has completed, as the attribute's integer; -1 before any."""
        return min(self._ends)

    def poll(self) -> Iterator[Complete]:
        """Completions that come within a fifth of a second; `complete_to` is as of the last one taken."""
        message = self._reader.poll(_POLL_S)
        while message is not None:
            if message.error() is None:
                record = decode(message.headers(), message.value())
                if isinstance(record, Complete):
                    self._ends[record.bucket] = max(self._ends[record.bucket], record.end)
                    yield record
            message = self._reader.poll(0)
