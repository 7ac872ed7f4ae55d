"""Epochs that no longer grow: the topic `sources` was deleted and made anew, and its offsets begin at 0 again."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Producer, TopicPartition

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.source_registry import read_first_partitions
from lowmark.wire.kafka.clients import (
    KafkaProblem,
    KafkaRefused,
    KafkaSettings,
    admin,
    consumer,
    producer,
    translate,
    watermarks,
)
from lowmark.wire.kafka.topics import Topic, TopicKind, parse_topic
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import decode_origin
from lowmark.wire.records.record import Headers, Refused
from lowmark.wire.records.registration import Presence, PresenceState

__all__ = ["refuse_former_epochs", "renumber"]

_LOG = logging.getLogger("lowmark.capture")

_TAIL = 2_000
_MOST = 10_000_000
_ANSWER_WITHIN_S = 60.0


def refuse_former_epochs(kafka: KafkaSettings, prefix: str, topics: Sequence[str], epochs: Mapping[str, int]) -> None:
    """Raises EnvironmentNotReady if epochs began again: a source has just registered with an epoch that records of it
    in these topics of partials already have, or records have an epoch that no source has registered. The job would
    ignore what sources send. A capture without the right to read these topics is not refused."""
    try:
        former = _epochs(kafka, topics)
    except KafkaRefused as refused:
        _LOG.info(
            "not known whether epochs begin again, because this user may not read topics of partials: %s", refused
        )
        return
    sources = Topic(TopicKind.SOURCES, None, prefix).name
    behind = [
        f"source {source}: it registered as {epoch}, after {former[source]}"
        for source, epoch in epochs.items()
        if former.get(source, -1) >= epoch
    ]
    # Epochs are places in one topic, so those of other sources tell of sources that have been silent for long.
    latest = max(former, key=lambda source: former[source], default=None)
    if latest is not None and former[latest] > max(epochs.values(), default=-1):
        end = _next_epoch(kafka, sources)
        if former[latest] >= end:
            behind.append(f"source {latest}: it has sent as {former[latest]}, and {sources} ends at {end}")
    if behind:
        raise EnvironmentNotReady(
            f"topic {sources} was deleted and made anew: epochs begin again, and the job would ignore what its sources "
            "send",
            "run `lowmark sources renumber`, and start this capture again",
            tuple(behind),
        )


def renumber(kafka: KafkaSettings, prefix: str) -> tuple[int, int]:
    """Makes epochs begin above all epochs of records in topics of partials. Returns the next epoch before and after."""
    topic = Topic(TopicKind.SOURCES, None, prefix).name
    there = admin(kafka).list_topics(timeout=10).topics
    if topic not in there:
        raise EnvironmentNotReady(f"there is no topic {topic}", "run `lowmark topics --create` first")
    parsed = {name: parse_topic(name) for name in there}
    partials = [name for name, of in parsed.items() if of and (of.kind, of.prefix) == (TopicKind.PARTIALS, prefix)]
    above = max(_epochs(kafka, partials).values(), default=-1) + 1
    before = _next_epoch(kafka, topic)
    if above - before > _MOST:
        raise EnvironmentNotReady(
            f"a record in a topic of partials has epoch {above - 1:,}, and {topic} ends at {before:,}",
            "no source has registered so often: find out who may write to topics of partials",
        )
    client = producer(kafka)
    filler = encode(Presence("", 0, "renumber", PresenceState.GONE))
    for number in range(before, above):
        client.produce(topic, filler.value, filler.key, 0, headers=list(filler.headers))
        if number % 10_000 == 0:
            _flush(client, kafka)
    _flush(client, kafka)
    after = _next_epoch(kafka, topic)
    if after < above:  # a record that Kafka refuses is delivered to nobody
        raise KafkaProblem(f"topic {topic} ends at {after:,}, and {above:,} was to be its end: see to the rights on it")
    return before, after


def _flush(client: Producer, kafka: KafkaSettings) -> None:
    """KafkaUnavailable if Kafka has not taken all: a second try goes on where this one has stopped."""
    if client.flush(_ANSWER_WITHIN_S):
        raise translate(KafkaError(KafkaError._MSG_TIMED_OUT), kafka)


def _next_epoch(kafka: KafkaSettings, topic: str) -> int:
    reader = consumer(kafka, f"lowmark-epochs-{uuid.uuid4()}")
    try:
        return watermarks(reader, TopicPartition(topic, 0), kafka)[1]
    finally:
        reader.close()


def _epochs(kafka: KafkaSettings, topics: Sequence[str]) -> dict[str, int]:
    """The greatest epoch of each source in the last records of these topics."""
    reader = consumer(kafka, f"lowmark-epochs-{uuid.uuid4()}")
    found: dict[str, int] = {}
    try:
        for message in read_first_partitions(reader, kafka, topics, _TAIL):
            try:
                origin, _ = decode_origin(Headers(message.headers()))
            except Refused:  # not a record of a source
                continue
            found[origin.source] = max(origin.epoch, found.get(origin.source, -1))
    finally:
        reader.close()
    return found
