"""The simulated broker and a real one show the same to readers, whatever transactions do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lowmark.wire.kafka.clients import FENCED, KafkaSettings, consumer, producer, transactional_producer
from tests.world.clients import Broker
from tests.world.clock import Clock
from tests.world.network import Network, Process

pytestmark = pytest.mark.slow

_PARTITIONS = 2
_UNDER_WAY = ("under way", "offsets under way", "a record behind a transaction")
"""When a transaction has not ended."""


class _Script:
    """The same operations on any broker, and what readers have seen after each."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.seen: list[object] = []
        self._settings = settings
        self._name = name

    def run(self) -> None:
        first = self._producer()
        first.begin_transaction()
        self._send(first, "a", "b", "c")
        self._look("under way")
        first.commit_transaction(30)
        self._look("committed")

        first.begin_transaction()
        self._send(first, "d", "e")
        first.abort_transaction(30)
        self._look("aborted")

        first.begin_transaction()
        self._offsets(first, 7)
        self._look("offsets under way")
        self._send(first, "f")
        first.commit_transaction(30)
        self._look("offsets committed")

        first.begin_transaction()
        self._send(first, "g")
        self._offsets(first, 9)
        first.abort_transaction(30)
        self._look("offsets aborted")

        first.begin_transaction()
        self._send(first, "h", "i")
        plain = producer(self._settings)
        self._send(plain, "j", "k")
        self._look("a record behind a transaction")
        second = self._producer()
        self._look("taken over")
        self._fails(lambda: first.commit_transaction(30))
        second.begin_transaction()
        self._send(second, "l")
        self._offsets(second, 11)
        second.commit_transaction(30)
        self._look("after it")

        second.begin_transaction()
        second.commit_transaction(30)
        self._look("nothing in it")

    def _producer(self) -> Producer:
        made = transactional_producer(self._settings, f"{self._name}-id")
        made.init_transactions(30)
        return made

    def _send(self, to: Producer, *values: str) -> None:
        for number, value in enumerate(values):
            to.produce(self._name, value.encode(), partition=number % _PARTITIONS)
        assert to.flush(30) == 0

    def _offsets(self, to: Producer, offset: int) -> None:
        reader = consumer(self._settings, f"{self._name}-group")
        at = TopicPartition(self._name, 0, offset, f"up to {offset}")
        to.send_offsets_to_transaction([at], reader.consumer_group_metadata(), 30)
        reader.close()

    def _fails(self, call: object) -> None:
        assert callable(call)
        with pytest.raises(KafkaException) as failed:
            call()
        self.seen.append(failed.value.args[0].code() in FENCED)

    def _look(self, when: str) -> None:
        if when not in _UNDER_WAY:
            self._await_markers()
        for stable in (True, False):
            reader = consumer(self._settings, f"{self._name}-group", tell_ends=True, stable=stable)
            found = [list(self._read(reader, partition)) for partition in range(_PARTITIONS)]
            ends = [
                reader.get_watermark_offsets(TopicPartition(self._name, partition), timeout=30)
                for partition in range(_PARTITIONS)
            ]
            self.seen.append((when, stable, found, ends))
            if not stable:
                (at,) = reader.committed([TopicPartition(self._name, 0)], timeout=30)
                self.seen.append((at.offset, at.metadata or ""))
            reader.close()

    def _await_markers(self) -> None:
        """A broker answers that a transaction has ended before all partitions know."""
        of_all, of_ended = (consumer(self._settings, f"{self._name}-group", stable=stable) for stable in (False, True))
        for place in (TopicPartition(self._name, partition) for partition in range(_PARTITIONS)):
            deadline = time.monotonic() + 30
            while of_all.get_watermark_offsets(place, 30) != of_ended.get_watermark_offsets(place, 30):
                assert time.monotonic() < deadline
        of_all.close()
        of_ended.close()

    def _read(self, reader: object, partition: int) -> Iterator[tuple[int, bytes]]:
        reader.assign([TopicPartition(self._name, partition, 0)])  # type: ignore[attr-defined]  # a Consumer
        while True:
            message = reader.poll(30)  # type: ignore[attr-defined]
            assert message is not None
            if message.error() is not None:
                return
            yield message.offset(), message.value()


@contextmanager
def _simulated(name: str) -> Iterator[KafkaSettings]:
    clock = Clock()
    network = Network(lambda count: None, clock.pass_by, lambda text: None)
    world = Broker(clock, network)
    world.log.make(name, _PARTITIONS)
    with clock.in_force(), world.in_force(), network.running(Process("test")):
        yield KafkaSettings("world:1")


def test_readers_of_both_see_the_same(broker: str) -> None:
    name = f"world-{uuid4().hex[:8]}"
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(30)
    real = _Script(KafkaSettings(broker), name)
    real.run()
    with _simulated(name) as settings:
        ours = _Script(settings, name)
        ours.run()
    for here, there in zip(ours.seen, real.seen, strict=True):
        assert here == there
