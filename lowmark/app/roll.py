"""Who has registered: the sources, their epochs, and how far each has promised."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

from lowmark.wire.codec import decode
from lowmark.wire.kafka import KafkaSettings, admin, consumer, translate, watermarks
from lowmark.wire.promises import FOREVER, Ending, Punctuation
from lowmark.wire.registration import Registration
from lowmark.wire.topics import Topic, TopicKind, parse_topic

__all__ = ["SeenSource", "seen_sources"]

_TAIL = 2_000
"""Records at the end of a stage's first partition that are searched for punctuations: they go to every partition."""


@dataclass(frozen=True, slots=True)
class SeenSource:
    """The present epoch of a source. `promised_ns`: no later tuple has a smaller ts (FOREVER: it has ended); None:
    none of its punctuations is among the latest records."""

    registration: Registration
    epoch: int
    registered_ns: int
    promised_ns: int | None
    stopped: bool  # before its end

    @property
    def ended(self) -> bool:
        return self.promised_ns == FOREVER


def seen_sources(kafka: KafkaSettings, prefix: str) -> list[SeenSource]:
    """Sorted by stream and name. Empty when nothing has ever registered."""
    topics = admin(kafka).list_topics(timeout=10).topics
    sources = Topic(TopicKind.SOURCES, None, prefix).name
    if sources not in topics:
        return []
    reader = consumer(kafka, f"lowmark-sources-{uuid.uuid4()}")
    try:
        latest: dict[str, tuple[int, int, Registration]] = {}
        for message in _read(reader, kafka, [sources], None):
            record = decode(message.headers(), message.value(), lambda origin: None)
            if isinstance(record, Registration):
                latest[record.source] = message.offset(), message.timestamp()[1] * 1_000_000, record
        promised = _promised(reader, kafka, prefix, list(topics))
    finally:
        reader.close()
    seen = [
        SeenSource(registration, epoch, at, *promised.get((source, epoch), (None, False)))
        for source, (epoch, at, registration) in latest.items()
    ]
    return sorted(seen, key=lambda source: (source.registration.stream, source.registration.source))


def _promised(
    reader: Consumer, kafka: KafkaSettings, prefix: str, topics: list[str]
) -> dict[tuple[str, int], tuple[int, bool]]:
    """By source and epoch, the least of what its nodes have promised, and whether one of them has stopped."""
    latest: dict[tuple[str, int], dict[tuple[str, str], tuple[int, bool]]] = {}
    parsed = {name: parse_topic(name) for name in topics}
    partials = [name for name, of in parsed.items() if of and (of.kind, of.prefix) == (TopicKind.PARTIALS, prefix)]
    for message in _read(reader, kafka, partials, _TAIL):
        record = decode(message.headers(), message.value(), lambda origin: None)
        bound = record.promise.below("ts") if isinstance(record, Punctuation) else None
        if isinstance(record, Punctuation) and bound is not None:
            origin = record.origin
            nodes = latest.setdefault((origin.source, origin.epoch), {})
            nodes[origin.stage, origin.node] = bound, record.ending is Ending.STOP
    return {
        source: (min(bound for bound, _ in nodes.values()), any(stopped for _, stopped in nodes.values()))
        for source, nodes in latest.items()
    }


def _read(reader: Consumer, kafka: KafkaSettings, topics: Sequence[str], tail: int | None) -> Iterator[Message]:
    """Partition 0 of all of them as it is now: from its beginning, or its last records."""
    ends: dict[str, int] = {}
    parts: list[TopicPartition] = []
    for topic in topics:
        low, high = watermarks(reader, TopicPartition(topic, 0), kafka)
        start = low if tail is None else max(low, high - tail)
        if start < high:
            ends[topic] = high
            parts.append(TopicPartition(topic, 0, start))
    reader.assign(parts)
    while ends:
        message = reader.poll(1.0)
        if message is None:
            # The last records of a partition may have been compacted away: then its position alone tells the end.
            for at in reader.position([TopicPartition(topic, 0) for topic in ends]):
                if at.offset >= ends[at.topic]:
                    del ends[at.topic]
            continue
        error = message.error()
        if error is not None:
            raise translate(error, kafka)
        end = ends.get(message.topic(), 0)
        if message.offset() < end:
            yield message
        if message.offset() + 1 >= end:
            ends.pop(message.topic(), None)
    reader.unassign()
