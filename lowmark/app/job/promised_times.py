"""How far the sources of a stream have promised, as the ends of topics of partials say."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, TopicPartition

from highlevel.progress.future_records import is_future
from highlevel.progress.granules import promised_granule
from highlevel.progress.records import Arrival
from lowmark.query.plan.nodes import Node
from lowmark.wire.kafka.clients import KafkaSettings, consumer, until_end, watermarks
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Found", "believed", "furthest", "promised_time"]

_STEP = 50
_MOST = 20_000

Found = dict[tuple[str, str], dict[str, int]]
"""By stage and node, and by source: the greatest time that it has promised."""


def promised_time(
    kafka: KafkaSettings, topics: Collection[str], nodes: Mapping[tuple[str, str], Node],
    kinds: Mapping[str, SourceKind],
) -> int | None:  # fmt: skip
    """The greatest time that any source has promised at these nodes (by stage and name), among the latest promises.
    FOREVER: all of them have ended; None: there is no promise. Punctuations go to every partition: one is read of each
    topic, backwards from its end until there is one of each node. `kinds`: of the sources that are not live."""
    reader = consumer(kafka, f"lowmark-promises-{uuid.uuid4()}", tell_ends=True)
    try:
        found: Found = {}
        for topic in sorted(topics):
            _read_back(reader, kafka, topic, nodes, kinds, found)
    finally:
        reader.close()
    return furthest(found)


def furthest(found: Found) -> int | None:
    """The greatest promise of those that go on. What a source promised before its end does not count."""
    times = [time for each in found.values() for time in each.values()]
    return max((time for time in times if time < FOREVER), default=FOREVER if times else None)


def believed(record: Punctuation, node: Node, arrival: Arrival) -> int | None:
    """The time that the record promises; None: none, or one that buckets refuse, as the clock of its host is wrong."""
    granule = promised_granule(record.promise, node.reduction.pane)
    if granule is None or is_future(record, arrival, node):
        return None
    return granule if granule in (NEVER, FOREVER) else node.reduction.pane.start(granule)


def _read_back(
    reader: Consumer, kafka: KafkaSettings, topic: str, nodes: Mapping[tuple[str, str], Node],
    kinds: Mapping[str, SourceKind], found: Found,
) -> None:  # fmt: skip
    low, high = watermarks(reader, TopicPartition(topic, 0), kafka)
    end, step = high, _STEP
    while end > low and high - end < _MOST:
        start = max(low, end - step)
        stages = set()
        reader.assign([TopicPartition(topic, 0, start)])
        for message in until_end(reader, kafka):
            if message.offset() >= end:
                break
            record = decode(message.headers(), message.value())
            if not isinstance(record, Punctuation):
                continue
            name = record.origin.stage, record.origin.node
            node = nodes.get(name)
            if node is None:
                continue
            kind = kinds.get(record.origin.source, SourceKind.LIVE)
            at = believed(record, node, Arrival(message.offset(), kind, message.timestamp()[1] * 10**6))
            if at is not None:
                of = found.setdefault(name, {})
                of[record.origin.source] = max(at, of.get(record.origin.source, at))
                stages.add(record.origin.stage)
        missing = [name for name in nodes if name[0] in stages and name not in found]
        if stages and not missing and furthest(found) != FOREVER:
            return
        end, step = start, step * 4
