"""Clients against a real broker, and against none."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.clients import (
    KafkaRefused,
    KafkaSettings,
    KafkaSettingsError,
    KafkaUnavailable,
    SecurityProtocol,
    admin,
    consumer,
    ensure_topics,
    producer,
    transactional_producer,
    translate,
    verify_topics,
)
from lowmark.wire.kafka.topics import Provision, Topic, TopicKind, TopicSettings, settings_of
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.record import MAX_RECORD_BYTES, WireRecord
from tests.wire.examples import EXAMPLES
from tests.wire.strategies import PARTIALS
from tests.wire.test_golden import equal


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that nobody listens on for as long as the test lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_no_broker_is_said_with_a_hint(nobody: str) -> None:
    with pytest.raises(KafkaUnavailable) as said:
        admin(KafkaSettings(nobody), timeout_s=0.5)
    assert f"Kafka at {nobody} (PLAINTEXT)" in str(said.value)
    assert "Is the address right" in str(said.value)


def test_settings_that_the_client_refuses(nobody: str) -> None:
    settings = KafkaSettings(nobody, SecurityProtocol.SSL, ssl_ca=Path("/nowhere/ca.pem"))
    with pytest.raises(KafkaSettingsError, match=r"ssl_ca: /nowhere/ca.pem cannot be read: No such file"):
        admin(settings)


def test_a_file_that_is_no_certificate(nobody: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    settings = KafkaSettings(nobody, SecurityProtocol.SSL, ssl_ca=tmp_path / "ca.pem")
    with pytest.raises(KafkaSettingsError, match=r"does not accept the settings: .*ssl\.ca\.location"):
        admin(settings)


def test_wrong_credentials_are_not_taken_for_a_broker_that_is_down() -> None:
    problem = translate(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED), KafkaSettings("a:1"))
    assert isinstance(problem, KafkaRefused)
    assert "Check user, password" in str(problem)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield KafkaSettings(broker.bootstrap)


def topic_of(name: str, partitions: int = 2) -> TopicSettings:
    return settings_of(Topic(TopicKind.PARTIALS, name), partitions, Provision())


def send(client: Producer, topic: str, record: WireRecord) -> None:
    client.produce(topic, record.value, record.key, partition=0, headers=list(record.headers))


def receive(client: Consumer, topic: str, count: int) -> list[Message]:
    client.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    while len(messages) < count:
        got = client.consume(count - len(messages), timeout=20)
        assert got, f"{len(messages)} of {count} records within 20 s"
        messages += got
    return messages


@pytest.mark.slow
def test_topics_are_created_once_and_checked_after(settings: KafkaSettings) -> None:
    client = admin(settings)
    wanted = [topic_of("created", 3), settings_of(Topic(TopicKind.SOURCES), 1, Provision())]
    assert [str(problem) for problem in verify_topics(client, wanted)] == [
        "topic lowmark.v1.partials.created: the topic is missing, wanted is 3 partitions",
        "topic lowmark.v1.sources: the topic is missing, wanted is 1 partition",
    ]
    assert ensure_topics(client, wanted) == []
    assert ensure_topics(client, wanted) == []
    other = [topic_of("created", 4), settings_of(Topic(TopicKind.SOURCES), 1, Provision(replication=3))]
    assert [str(problem) for problem in ensure_topics(client, other)] == [
        "topic lowmark.v1.partials.created: the number of partitions is 3, wanted is 4",
        "topic lowmark.v1.sources: the number of replicas is 1, wanted is 3",
        "topic lowmark.v1.sources: min.insync.replicas is 1, wanted is 2",
    ]


@pytest.mark.slow
def test_a_creation_that_the_broker_refuses_is_a_problem(settings: KafkaSettings) -> None:
    wanted = dataclasses.replace(topic_of("refused"), replication=3)
    (problem,) = ensure_topics(admin(settings), [wanted])
    assert "its creation is refused" in str(problem)


@pytest.mark.slow
def test_every_record_passes_through(settings: KafkaSettings) -> None:
    wanted = topic_of("records")
    assert ensure_topics(admin(settings), [wanted]) == []
    client = producer(settings)
    for record in EXAMPLES.values():
        send(client, wanted.name, encode(record))
    assert client.flush(20) == 0
    reader = consumer(settings, "records")
    for name, message in zip(EXAMPLES, receive(reader, wanted.name, len(EXAMPLES)), strict=True):
        assert equal(decode(message.headers(), message.value(), lambda origin: PARTIALS), EXAMPLES[name]), name
    reader.close()


@pytest.mark.slow
def test_the_largest_record_is_accepted(settings: KafkaSettings) -> None:
    wanted = topic_of("largest")
    assert ensure_topics(admin(settings), [wanted]) == []
    errors: list[object] = []
    client = producer(settings)
    value = bytes(range(256)) * (MAX_RECORD_BYTES // 256)
    client.produce(wanted.name, value, partition=0, on_delivery=lambda error, message: errors.append(error))
    assert client.flush(20) == 0
    assert errors == [None]
    reader = consumer(settings, "largest")
    assert [message.value() for message in receive(reader, wanted.name, 1)] == [value]
    reader.close()


@pytest.mark.slow
def test_what_was_aborted_is_never_seen(settings: KafkaSettings) -> None:
    wanted = topic_of("transactions")
    assert ensure_topics(admin(settings), [wanted]) == []
    client = transactional_producer(settings, "job-1")
    client.init_transactions(20)
    for name, end in [("roster", client.abort_transaction), ("token", client.commit_transaction)]:
        client.begin_transaction()
        send(client, wanted.name, encode(EXAMPLES[name]))
        client.flush(20)
        end(20)
    reader = consumer(settings, "transactions")
    (message,) = receive(reader, wanted.name, 1)
    assert decode(message.headers(), message.value()) == EXAMPLES["token"]
    reader.close()
