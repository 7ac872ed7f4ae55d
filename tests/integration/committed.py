"""What a read_committed consumer sees, up to the ends of partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from uuid import uuid4

from confluent_kafka import KafkaError, Message, TopicPartition

from lowmark.wire.kafka.clients import KafkaSettings, consumer

_WITHIN_S = 300.0  # a broker that has been killed is missed after seconds, and back later on a busy machine


def committed_messages(kafka: KafkaSettings, places: Iterable[tuple[str, int]]) -> Iterator[Message]:
    """Those of each topic and partition in `places`, in the order of its offsets. A broker that is away is waited
    for."""
    reader = consumer(kafka, uuid4().hex, tell_ends=True)
    try:
        unread, deadline, last = set(places), time.monotonic() + _WITHIN_S, "none"
        reader.assign([TopicPartition(*place, 0) for place in sorted(unread)])
        while unread:
            message = reader.poll(1.0)
            assert time.monotonic() < deadline, f"not read to the end: {unread}; last error: {last}"
            if message is None:
                continue
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((message.topic(), message.partition()))
            else:
                last = error.str()
    finally:
        reader.close()
