"""Where a new generation begins to read: partials at what its windows need, exchanges at their ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from highlevel.spark.checkpoint.resumption import READ_AHEAD_NS
from highlevel.spark.job_spec import JobSpec
from lowmark.wire.kafka.clients import KafkaSettings, consumer, translate, watermarks
from lowmark.wire.rows.values import time

__all__ = ["starting_offsets"]

_ANSWER_WITHIN_S = 30.0


def starting_offsets(
    kafka: KafkaSettings, spec: JobSpec, progress: Callable[[str], None]
) -> dict[str, Sequence[int]]:  # fmt: skip
    """By topic: the first offset of each partition. Call it when no other process writes to the exchanges: what stands
    there is of former generations, and buckets would fence all of it."""
    stages = spec.stages()
    reader = consumer(kafka, f"lowmark-starts-{uuid.uuid4()}")
    try:
        found: dict[str, Sequence[int]] = {
            spec.partials_topic(stage): _appended_from(
                reader, kafka, spec.partials_topic(stage), stages[stage].buckets, needed_ns - READ_AHEAD_NS
            )
            for stage, needed_ns in spec.needed.items()
        }
        if left_out := [stage for stage in spec.needed if any(found[spec.partials_topic(stage)])]:
            since = time(min(spec.needed[stage] for stage in left_out) - READ_AHEAD_NS)
            progress(f"leaving out partials of completed windows: only what was appended from {since} on is read")
        for name, plan in spec.exchanges().items():
            topic = spec.exchange_topic(name)
            found[topic] = _ends(reader, kafka, topic, plan.stage.buckets)
        return found
    finally:
        reader.close()


def _appended_from(reader: Consumer, kafka: KafkaSettings, topic: str, partitions: int, time_ns: int) -> list[int]:
    """By partition: the first offset of a record that was appended at this time or later."""
    asked = [TopicPartition(topic, partition, max(0, time_ns // 10**6)) for partition in range(partitions)]
    try:
        found = reader.offsets_for_times(asked, timeout=_ANSWER_WITHIN_S)
    except KafkaException as error:
        raise translate(error.args[0], kafka) from None
    if problem := next((place.error for place in found if place.error is not None), None):
        raise translate(problem, kafka)
    first, ends = {place.partition: place.offset for place in found}, _ends(reader, kafka, topic, partitions)
    return [end if first[partition] < 0 else first[partition] for partition, end in enumerate(ends)]


def _ends(reader: Consumer, kafka: KafkaSettings, topic: str, partitions: int) -> list[int]:
    return [watermarks(reader, TopicPartition(topic, partition), kafka)[1] for partition in range(partitions)]
