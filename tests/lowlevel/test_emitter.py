"""Records reach Kafka in order and without a gap, whatever happens to the broker and the client meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from lowlevel.config import QueueConfig
from lowlevel.emitter import Emitter
from lowlevel.sender import Sender, TopicState
from lowlevel.source_registration import EpochWatch, SourcesLog
from lowlevel.spill import SpillFolder
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable
from lowmark.wire.kafka.topics import MAX_MESSAGE_BYTES
from lowmark.wire.records.record import WireRecord, header
from lowmark.wire.records.registration import Registration, SourceKind

PARTITIONS = 3


def serving(kafka: KafkaSettings, config: QueueConfig, *topics: str) -> Emitter:
    """Not started."""
    emitter = Emitter(kafka, config)
    emitter.serve({topic: [f"q-{topic}"] for topic in topics})
    return emitter


def state(emitter: Emitter, topic: str | None = None) -> TopicState:
    """Of this topic, or of the only one."""
    (found,) = (found for found in emitter.states() if topic in (None, found.topic))
    return found


def record(number: int, size: int = 100) -> WireRecord:
    return WireRecord(None, number.to_bytes(8, "big") + bytes(size), (header("sequence", number),))


def test_a_full_queue_has_no_room_for_data_and_still_takes_a_punctuation() -> None:
    emitter = serving(KafkaSettings("127.0.0.1:1"), QueueConfig(max_bytes=1 << 20), "t")
    assert emitter.room("t", 1 << 20)
    emitter.put("t", 0, record(0, 600_000))
    assert not emitter.room("t", 600_000)
    assert emitter.room("t", 300_000)
    emitter.put("t", 0, record(1, 600_000))
    assert not emitter.room("t", 0)
    assert state(emitter).queued_records == 2


def test_the_age_of_the_queue_is_that_of_its_oldest_record(tmp_path: Path) -> None:
    """In memory or on disk; a record that Kafka has acknowledged is none of it any more."""
    now_s = 100.0
    config = QueueConfig(max_bytes=1 << 20)
    sender = Sender("t", KafkaSettings("127.0.0.1:1"), config, SpillFolder(tmp_path), lambda: now_s)
    assert sender.state().age_s == 0
    for second, partition in enumerate((0, 1, 0, 0)):
        now_s = 100.0 + second
        sender.put(partition, record(second, 600_000))
    now_s = 110.0
    assert sender.state().spilled_bytes > 0
    ages = [sender.state().age_s]
    for partition in (0, 1, 0):
        queue = sender._queues[partition]
        if not queue.records:
            assert queue.backlog is not None
            sender._refill(queue, queue.backlog)
        sender._on_acknowledged(0, queue)
        if not queue.records and queue.backlog:  # what a producer is fed
            sender._refill(queue, queue.backlog)
        ages.append(sender.state().age_s)
    assert ages == [10, 9, 8, 7]


def test_memory_does_not_grow_with_what_waits_on_disk(tmp_path: Path) -> None:
    """An outage of a day leaves millions of punctuations."""
    sender = Sender("t", KafkaSettings("127.0.0.1:1"), QueueConfig(max_bytes=1 << 20), SpillFolder(tmp_path))
    sender.put(0, record(0, 2 << 20))
    tracemalloc.start()
    try:
        for number in range(20_000):
            sender.put(0, record(number, 100))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sender.state().queued_records == 20_001
    assert grown < 100_000


def test_topics_divide_the_room() -> None:
    """What one of them has filled is no other's; one that is served no more leaves its share when it is empty."""
    emitter = serving(KafkaSettings("127.0.0.1:1"), QueueConfig(max_bytes=8 << 20), "a", "b")
    while emitter.room("a", 500_000):
        emitter.put("a", 0, record(0, 500_000))
    assert 3 << 20 < state(emitter, "a").queued_bytes <= 4 << 20
    assert emitter.room("b", 4 << 20)
    assert not emitter.room("b", 5 << 20)
    emitter.serve({"a": ["q"]})
    assert [found.topic for found in emitter.states()] == ["a"]
    assert emitter.room("a", 4 << 20)
    emitter.serve({"c": ["q"]})
    assert {found.topic: found.readers for found in emitter.states()} == {"a": (), "c": ("q",)}
    assert emitter.room("c", 8 << 20)


def topic(bootstrap: str, name: str, **config: str) -> str:
    client = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"max.message.bytes": str(MAX_MESSAGE_BYTES)} | {key.replace("_", "."): config[key] for key in config}
    client.create_topics([NewTopic(name, PARTITIONS, 1, config=settings)])[name].result(30)
    return name


def received(bootstrap: str, name: str, expected: int) -> list[list[int]]:
    """The numbers in each partition in order, repetitions left out as a reader would, until the last ones are there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "t", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, partition, 0) for partition in range(PARTITIONS)])
    numbers: list[list[int]] = [[] for _ in range(PARTITIONS)]
    until = time.monotonic() + 60
    while any(not part or part[-1] < expected - 1 for part in numbers) and time.monotonic() < until:
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        number = int.from_bytes(message.value()[:8], "big")
        part = numbers[message.partition()]
        if not part or number > part[-1]:
            part.append(number)
    consumer.close()
    return numbers


@pytest.fixture
def emitter(broker: str) -> Iterator[Emitter]:
    sender = Emitter(KafkaSettings(broker), QueueConfig(retry_s=0.2, max_bytes=16 << 20))
    sender.start()
    yield sender
    sender.stop()


@pytest.mark.slow
def test_records_of_several_threads_arrive_in_order(broker: str, emitter: Emitter) -> None:
    name = topic(broker, "emitter-order")
    emitter.serve({name: ["q"]})

    def send(partition: int) -> None:
        for number in range(3000):
            emitter.put(name, partition, record(number))

    threads = [threading.Thread(target=send, args=(partition,)) for partition in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert emitter.drained(60)
    assert received(broker, name, 3000) == [list(range(3000))] * PARTITIONS
    at_end = state(emitter)
    assert (at_end.queued_records, at_end.queued_bytes, at_end.records) == (0, 0, 9000)
    assert at_end.size == 9000 * len(record(0).value)


@pytest.mark.slow
def test_what_waited_on_disk_arrives_in_order(broker: str, tmp_path: Path) -> None:
    """More than memory has room for, before there is a connection and while it drains."""
    name = topic(broker, "emitter-spill")
    config = QueueConfig(max_bytes=1 << 20, spill=tmp_path)
    sender = serving(KafkaSettings(broker), config, name)
    for number in range(2000):
        for partition in range(PARTITIONS):
            sender.put(name, partition, record(number, 1000))
    assert state(sender).spilled_bytes > 6 << 20
    sender.start()
    for number in range(2000, 4000):
        for partition in range(PARTITIONS):
            sender.put(name, partition, record(number, 1000))
    assert sender.drained(60)
    assert received(broker, name, 4000) == [list(range(4000))] * PARTITIONS
    at_end = state(sender)
    assert (at_end.queued_records, at_end.queued_bytes, at_end.spilled_bytes) == (0, 0, 0)
    sender.stop()


@pytest.mark.slow
def test_a_client_that_fails_for_good_is_replaced_and_loses_nothing(broker: str, emitter: Emitter) -> None:
    """The topic refuses a record for a while: a record behind it may not arrive before it."""
    name = topic(broker, "emitter-refused", max_message_bytes="5000")
    emitter.serve({name: ["q"]})
    for number in range(300):
        for partition in range(PARTITIONS):
            emitter.put(name, partition, record(number, 50_000 if number == 100 else 100))
    _wait_for(lambda: state(emitter).restarts > 0)
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)],
    )
    client = AdminClient({"bootstrap.servers": broker})
    client.incremental_alter_configs([resource])[resource].result(30)
    assert emitter.drained(60)
    assert received(broker, name, 300) == [list(range(300))] * PARTITIONS


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    from lowmark.app.kafka.broker import Broker

    port = _free_port()
    broker = Broker(tmp_path / "data", port)
    broker.start()
    bootstrap, name = broker.bootstrap, "emitter-killed"
    sender = serving(KafkaSettings(bootstrap), QueueConfig(retry_s=0.2), name)
    stop = threading.Event()
    sent = [0] * PARTITIONS

    def send(partition: int) -> None:
        while not stop.wait(0.001):
            sender.put(name, partition, record(sent[partition], 2000))
            sent[partition] += 1

    try:
        topic(bootstrap, name)
        sender.start()
        threads = [threading.Thread(target=send, args=(partition,)) for partition in range(PARTITIONS)]
        for thread in threads:
            thread.start()
        _wait_for(lambda: state(sender).records > 500)
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        behind = sum(sent)
        _wait_for(lambda: sum(sent) > behind + 1000)
        broker.start()
        _wait_for(lambda: state(sender).records > behind + 500)
        stop.set()
        for thread in threads:
            thread.join()
        assert sender.drained(120)
        numbers = received(bootstrap, name, min(sent))
        for partition in range(PARTITIONS):
            assert numbers[partition][: min(sent)] == list(range(min(sent)))
    finally:
        stop.set()
        sender.stop()
        broker.stop()


def _wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.05)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def registration(source: str, process: str) -> Registration:
    return Registration(source, "Main", SourceKind.LIVE, None, 5, "within 50 ms", process)


@pytest.mark.slow
def test_epochs_grow_and_an_earlier_life_hears_of_the_later_one(broker: str) -> None:
    settings, name = KafkaSettings(broker), "emitter-sources"
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    log = SourcesLog(settings, name)
    epochs = {source: log.append(registration(source, "one")) for source in ("a", "b")}
    heard: list[tuple[str, int]] = []
    watch = EpochWatch(
        settings, name, "one", epochs, lambda source, epoch: heard.append((source, epoch)), lambda source: True
    )
    watch.start()
    later = log.append(registration("a", "two"))
    assert epochs["a"] < epochs["b"] < later
    _wait_for(lambda: heard)
    watch.stop()
    assert heard == [("a", later)]


def test_a_broker_that_is_not_there_is_said_in_time() -> None:
    with pytest.raises(KafkaUnavailable, match="registration"):
        SourcesLog(KafkaSettings(f"127.0.0.1:{_free_port()}"), "sources").append(registration("a", "one"), 0.2)
