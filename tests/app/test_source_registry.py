"""Reading the topics that say which sources there are."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from lowmark.app.kafka import source_registry
from lowmark.app.kafka.broker import Broker
from lowmark.app.kafka.source_registry import read_first_partitions
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable, producer
from lowmark.wire.kafka.settings import consumer_options

pytestmark = pytest.mark.slow


def test_a_reading_that_stands_still_ends_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_registry, "_STANDS_STILL_S", 3.0)
    with Broker(tmp_path / "broker") as broker:

        class Stopping(Consumer):
            """Kafka hangs as soon as the ends are known."""

            def assign(self, parts: list[TopicPartition]) -> None:
                os.kill(broker.pid, signal.SIGSTOP)
                super().assign(parts)

        kafka = KafkaSettings(broker.bootstrap)
        client = producer(kafka)
        client.produce("t", b"record", partition=0)
        assert client.flush(30) == 0
        reader = Stopping(consumer_options(kafka, "reader", "earliest"))
        try:
            with pytest.raises(KafkaUnavailable, match="Is the address right, the broker up"):
                list(read_first_partitions(reader, kafka, ["t"], None))
            os.kill(broker.pid, signal.SIGCONT)
            found = Consumer(consumer_options(kafka, "another", "earliest"))
            assert [message.value() for message in read_first_partitions(found, kafka, ["t"], None)] == [b"record"]
            found.close()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
            reader.close()
