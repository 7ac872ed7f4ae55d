"""The registered sources: their epochs, how far each has promised, and which process is sending them now."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from lowlevel.source_registration import SourcesLog
from lowmark.wire.kafka.clients import KafkaSettings, admin, consumer, translate, watermarks
from lowmark.wire.kafka.topics import Topic, TopicKind, parse_topic
from lowmark.wire.records.codec import decode
from lowmark.wire.records.partials import decode_origin
from lowmark.wire.records.punctuations import Ending, Punctuation
from lowmark.wire.records.record import Headers, Refused
from lowmark.wire.records.registration import Presence, PresenceState, Registration
from lowmark.wire.rows.values import FOREVER

__all__ = ["SeenSource", "present_senders", "read_first_partitions", "seen_sources", "sources_sending"]

_ANSWER_WITHIN_S = 5.0

_NOTHING_FOR_S = 30.0
"""Most time without a record and without an answer that no record is left."""

_CLOCKS_APART_MS = 60_000
"""Allowed difference between clocks of brokers, which give records their times."""

_TAIL = 2_000
"""Records read at the end of a stage's first partition: punctuations go to every partition, so one is enough."""


@dataclass(frozen=True, slots=True)
class SeenSource:
    """The present epoch of a source. `promised_ns`: no later tuple has a smaller ts (FOREVER: it has ended); None: the
    latest records hold no punctuation of it."""

    registration: Registration
    epoch: int
    registered_ns: int
    promised_ns: int | None
    stopped: bool  # all its nodes have stopped, before its end

    @property
    def ended(self) -> bool:
        return self.promised_ns == FOREVER


def seen_sources(kafka: KafkaSettings, prefix: str) -> list[SeenSource]:
    """All registered sources, sorted by stream and name. Empty if none has ever registered."""
    topics = admin(kafka).list_topics(timeout=10).topics
    sources = Topic(TopicKind.SOURCES, None, prefix).name
    if sources not in topics:
        return []
    reader = consumer(kafka, f"lowmark-sources-{uuid.uuid4()}")
    try:
        latest: dict[str, tuple[int, int, Registration]] = {}
        for message in read_first_partitions(reader, kafka, [sources], None):
            record = decode(message.headers(), message.value())
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


def present_senders(kafka: KafkaSettings, prefix: str, sources: Collection[str], process: str) -> dict[str, str]:
    """The sources that another process is sending now, each with that process. The topic of sources must exist.

    Asks the process that registered a source last, through that topic, which every capture follows: it sends the source
    if it says so within 5 s. A process that has said that it is done, as each does at its end, is not asked.
    """
    topic = Topic(TopicKind.SOURCES, None, prefix).name
    reader = consumer(kafka, f"lowmark-present-{uuid.uuid4()}")
    try:
        epochs: dict[str, int] = {}
        over: dict[str, int] = {}
        for message in read_first_partitions(reader, kafka, [topic], None):
            match decode(message.headers(), message.value()):
                case Registration(source=source) if source in sources:
                    epochs[source] = message.offset()
                case Presence(source=source, epoch=epoch, state=PresenceState.GONE):
                    over[source] = epoch
        open_ = {source: epoch for source, epoch in epochs.items() if over.get(source) != epoch}
        return _answers(reader, kafka, topic, open_, process) if open_ else {}
    finally:
        reader.close()


def sources_sending(kafka: KafkaSettings, prefix: str, topics: Sequence[str], process: str) -> dict[str, str]:
    """The topics of partials that live sources use, each with the reason as text. `present_senders` tells which sources
    live. A source uses a topic from its first record there until it says that nothing follows; a topic without any
    record counts as used too, since a live source may be about to send to it."""
    sources = Topic(TopicKind.SOURCES, None, prefix).name
    if sources not in admin(kafka).list_topics(timeout=10).topics:
        return {}
    reader = consumer(kafka, f"lowmark-sending-{uuid.uuid4()}")
    try:
        registered: dict[str, tuple[int, int]] = {}
        for message in read_first_partitions(reader, kafka, [sources], None):
            record = decode(message.headers(), message.value())
            if isinstance(record, Registration):
                registered[record.source] = message.offset(), message.timestamp()[1]
        present = present_senders(kafka, prefix, registered, process)
        if not present:
            return {}
        living = {(source, registered[source][0]) for source in present}
        since_ms = min(registered[source][1] for source in present) - _CLOCKS_APART_MS
        going_on: dict[str, dict[tuple[str, str], bool]] = {topic: {} for topic in topics}
        for message in read_first_partitions(reader, kafka, topics, None, since_ms):
            try:
                origin, _ = decode_origin(Headers(message.headers()))
            except Refused:  # not a record of lowmark
                continue
            if (origin.source, origin.epoch) in living:
                record = decode(message.headers(), message.value())
                ends = isinstance(record, Punctuation) and record.ending is not Ending.NONE
                going_on[message.topic()][origin.source, origin.node] = not ends
        unwritten = {topic for topic in topics if watermarks(reader, TopicPartition(topic, 0), kafka)[1] == 0}
    finally:
        reader.close()
    someone = min(present)
    used = dict.fromkeys(unwritten, f"nothing has been sent to it yet, and source {someone} ({present[someone]}) lives")
    for topic, lanes in going_on.items():
        names = sorted({source for (source, _), goes_on in lanes.items() if goes_on})
        if names:
            used[topic] = f"source {names[0]} ({present[names[0]]}) sends to it"
    return used


def _answers(
    reader: Consumer, kafka: KafkaSettings, topic: str, epochs: dict[str, int], process: str
) -> dict[str, str]:
    log = SourcesLog(kafka, topic)
    asked = [log.append(Presence(name, epoch, process, PresenceState.ASKED)) for name, epoch in epochs.items()]
    reader.assign([TopicPartition(topic, 0, asked[0])])
    present: dict[str, str] = {}
    silent = dict(epochs)
    until = time.monotonic() + _ANSWER_WITHIN_S
    while silent and (left_s := until - time.monotonic()) > 0:
        message = reader.poll(left_s)
        if message is None:
            break
        if message.error() is not None:
            raise translate(message.error(), kafka)
        record = decode(message.headers(), message.value())
        if not isinstance(record, Presence) or record.state is PresenceState.ASKED:
            continue
        if silent.get(record.source) == record.epoch:
            del silent[record.source]
            if record.state is PresenceState.HERE:
                present[record.source] = record.process
    return present


def _promised(
    reader: Consumer, kafka: KafkaSettings, prefix: str, topics: list[str]
) -> dict[tuple[str, int], tuple[int, bool]]:
    """How far all nodes of a source have promised, and whether it has stopped, by source and epoch. A node that stops
    while others go on belongs to a removed query, and no window waits for it."""
    latest: dict[tuple[str, int], dict[tuple[str, str], tuple[int, bool]]] = {}
    parsed = {name: parse_topic(name) for name in topics}
    partials = [name for name, of in parsed.items() if of and (of.kind, of.prefix) == (TopicKind.PARTIALS, prefix)]
    for message in read_first_partitions(reader, kafka, partials, _TAIL):
        record = decode(message.headers(), message.value())
        bound = record.promise.below("ts") if isinstance(record, Punctuation) else None
        if isinstance(record, Punctuation) and bound is not None:
            origin = record.origin
            nodes = latest.setdefault((origin.source, origin.epoch), {})
            nodes[origin.stage, origin.node] = bound, record.ending is Ending.STOP
    found = {}
    for source, nodes in latest.items():
        going_on = [bound for bound, stopped in nodes.values() if not stopped]
        # The nodes that stopped last stopped with the source.
        found[source] = (min(going_on), False) if going_on else (max(bound for bound, _ in nodes.values()), True)
    return found


def read_first_partitions(
    reader: Consumer, kafka: KafkaSettings, topics: Sequence[str], tail: int | None, since_ms: int | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[Message]:  # fmt: skip
    """Reads partition 0 of each topic up to its present end: all, from a time on, or only the last records. Raises
    KafkaUnavailable when Kafka goes meanwhile."""
    ends: dict[str, int] = {}
    parts: list[TopicPartition] = []
    for topic in topics:
        low, high = watermarks(reader, TopicPartition(topic, 0), kafka)
        start = low if tail is None else max(low, high - tail)
        if since_ms is not None:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, since_ms)], _ANSWER_WITHIN_S)
            start = high if found.offset < 0 else max(start, found.offset)
        if start < high:
            ends[topic] = high
            parts.append(TopicPartition(topic, 0, start))
    reader.assign(parts)
    heard_s = now_s()
    while ends:
        message = reader.poll(1.0)
        if message is None:
            if now_s() - heard_s > _NOTHING_FOR_S:
                raise translate(KafkaError(KafkaError._TIMED_OUT), kafka)
            # The last records may have been compacted away: then only the position shows that the end is reached.
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
        heard_s = now_s()
    reader.unassign()
