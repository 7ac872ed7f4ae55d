"""What former jobs have left on the result topics: their generation, the windows that they completed, and what they
announced after that."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from confluent_kafka import Consumer, Message, TopicPartition

from highlevel.spark.checkpoint.checkpoint import BucketKey, Completed
from highlevel.spark.sink.suppression import digest
from lowmark.wire.kafka.clients import KafkaSettings, consumer, until_end, watermarks
from lowmark.wire.records.codec import decode
from lowmark.wire.records.record import Headers, Refused
from lowmark.wire.records.verdicts import Amendment, Complete, Correction
from lowmark.wire.rows.values import NEVER

__all__ = ["History", "read_history"]

_STEP = 1000


@dataclass(frozen=True, slots=True)
class History:
    generation: int  # the greatest that has written; 0: there are no results, nor anything in an exchange
    completed: Mapping[BucketKey, Completed]  # by query and bucket
    told: frozenset[BucketKey] = frozenset()  # queries and buckets with any result, ever
    shortened: Mapping[BucketKey, int] = field(default_factory=dict)
    """By stage and bucket whose partials have lost their beginning: when the first that is left was appended, in ns."""


def read_history(
    settings: KafkaSettings, topics: Mapping[str, tuple[str, int]], exchanges: Mapping[str, int],
    partials: Mapping[str, tuple[str, int]], group: str,
) -> History:  # fmt: skip
    """`topics`: by query, its result topic and number of partitions; `exchanges`: topics and their numbers of
    partitions; `partials`: by stage, its topic and number of partitions. Reads only the ends of the topics; nobody
    writes to them meanwhile."""
    reader = consumer(settings, group, tell_ends=True)
    try:
        generation, windows, told = 0, {}, set()
        for query, (topic, partitions) in topics.items():
            for bucket in range(partitions):
                place = TopicPartition(topic, bucket)
                written, completed = _read_end(reader, place, settings)
                generation = max(generation, written)
                if completed is not None:
                    windows[query, bucket] = completed
                if written or watermarks(reader, place, settings)[0]:  # Kafka deletes only what was written
                    told.add((query, bucket))
        for topic, partitions in exchanges.items():
            for bucket in range(partitions):
                generation = max(generation, _last_epoch(reader, TopicPartition(topic, bucket), settings))
        shortened = {
            (stage, bucket): first_ns
            for stage, (topic, partitions) in partials.items()
            for bucket in range(partitions)
            if (first_ns := _first_left(reader, TopicPartition(topic, bucket), settings)) is not None
        }
        return History(generation, windows, frozenset(told), shortened)
    finally:
        reader.close()


def _read_end(reader: Consumer, place: TopicPartition, settings: KafkaSettings) -> tuple[int, Completed | None]:
    """The generation of the partition's last record, its last completion, and what comes after that."""
    generation = 0
    since: list[str] = []
    for part in _from_the_end(reader, place, settings):
        bound, told = None, list[str]()
        for written, record in part:
            generation = max(generation, written)
            if isinstance(record, Complete):
                bound, told = record.end, []
            elif isinstance(record, Amendment | Correction):
                told.append(digest(record))
        since = [*told, *since]
        if bound is not None:
            return generation, Completed(bound, tuple(since))
    return generation, Completed(NEVER, tuple(since)) if since else None


def _from_the_end(
    reader: Consumer, place: TopicPartition, settings: KafkaSettings
) -> Iterator[list[tuple[int, object]]]:  # fmt: skip
    """A partition's records with their generations, in growing parts backwards from the end, where everything needed
    is."""
    low, high = watermarks(reader, place, settings)
    step, end = _STEP, high
    while end > low:
        start = max(low, high - step)
        part: list[tuple[int, object]] = []
        for message in _records(reader, place, start, end, settings):
            try:
                written = Headers(message.headers() or []).natural("generation")
            except Refused:
                continue  # a record of another program
            part.append((written, decode(message.headers(), message.value())))
        yield part
        end, step = start, step * 4


def _first_left(reader: Consumer, place: TopicPartition, settings: KafkaSettings) -> int | None:
    """When the first record that is left of a partition was appended, in ns: now, if none is. None: all are left."""
    low, high = watermarks(reader, place, settings)
    if not low:
        return None
    left = _records(reader, place, low, high, settings)
    return next((message.timestamp()[1] * 10**6 for message in left), time.time_ns())


def _last_epoch(reader: Consumer, place: TopicPartition, settings: KafkaSettings) -> int:
    """The epoch of the last records of an exchange's partition, which is the job's generation."""
    low, high = watermarks(reader, place, settings)
    epoch = 0
    for message in _records(reader, place, max(low, high - _STEP), high, settings):
        try:
            epoch = max(epoch, Headers(message.headers() or []).natural("epoch"))
        except Refused:
            continue  # a record of another program
    return epoch


def _records(
    reader: Consumer, place: TopicPartition, start: int, end: int, settings: KafkaSettings
) -> Iterator[Message]:  # fmt: skip
    reader.assign([TopicPartition(place.topic, place.partition, start)])
    return takewhile(lambda message: message.offset() < end, until_end(reader, settings))
