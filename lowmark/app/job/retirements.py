"""Has buckets drop their state when no query of the job reads their stage any more.

A bucket works only when a record comes, and captures may have left the topic: so the job writes one record to each
partition itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, Message

from highlevel.spark.checkpoint.checkpoint import BucketKey, Checkpoint
from highlevel.spark.sink.transaction import Place
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable, producer, translate
from lowmark.wire.records.codec import encode
from lowmark.wire.records.rosters import Retirement

__all__ = ["retire"]

_ANSWER_WITHIN_S = 30.0


def retire(kafka: KafkaSettings, job: str, checkpoint: Checkpoint, left: Mapping[BucketKey, Place]) -> None:
    """`left`: the buckets of stages that are leaving, as far as their topics exist."""
    waiting = {
        (place.topic, place.partition): encode(Retirement(job, key[0], checkpoint.leaving[key[0]]))
        for key, place in left.items()
        if key not in checkpoint.ended
    }
    if not waiting:
        return
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    client = producer(kafka, 0)
    for (topic, bucket), record in waiting.items():
        client.produce(topic, record.value, record.key, bucket, on_delivery=delivered, headers=list(record.headers))
    if client.flush(_ANSWER_WITHIN_S):
        raise KafkaUnavailable(f"Kafka at {kafka.bootstrap} did not take retirements within {_ANSWER_WITHIN_S:.0f} s")
    if failed:
        raise translate(failed[0], kafka)
