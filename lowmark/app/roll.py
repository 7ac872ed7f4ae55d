"""Who has registered: the sources, their epochs, and how far each has promised."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

from lowmark.wire.codec import decode
from lowmark.wire.kafka import KafkaSettings, admin, consumer, translate
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
        for message in _read(reader, kafka, sources, None):
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
    for name in topics:
        topic = parse_topic(name)
        if topic is None or topic.kind is not TopicKind.PARTIALS or topic.prefix != prefix:
            continue
        for message in _read(reader, kafka, name, _TAIL):
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


def _read(reader: Consumer, kafka: KafkaSettings, topic: str, tail: int | None) -> Iterator[Message]:
    """Partition 0 as it is now: from its beginning, or its last records."""
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    start = low if tail is None else max(low, high - tail)
    if start >= high:
        return
    reader.assign([TopicPartition(topic, 0, start)])
    position = start
    while position < high:
        # Asked for more than there is, it would wait for it until the timeout.
        for message in reader.consume(min(1000, high - position), timeout=1.0):
            error = message.error()
            if error is not None:
                raise translate(error, kafka)
            position = message.offset() + 1
            if position <= high:
                yield message
        position = max(position, reader.position([TopicPartition(topic, 0)])[0].offset)
    reader.unassign()
