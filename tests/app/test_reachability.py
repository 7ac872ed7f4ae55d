"""What a process says of a Kafka that does not answer: one line when it goes, one a minute, one when it is back."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from lowmark.app.kafka.reachability import KafkaReach
from lowmark.wire.kafka import clients as wire
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable, consumer, producer, transactional_producer


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that nobody listens on for as long as the test lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_an_outage_is_told_when_it_begins_each_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lowmark.kafka")  # a consumer of this process may have silenced it
    clock = Clock()
    reach = KafkaReach(KafkaSettings("a:1"), CollectorRegistry(), clock)
    for _ in range(2):
        for _ in range(75):  # every two seconds
            reach._judge(KafkaUnavailable("nobody listens"), clock.now_s)
            clock.now_s += 2
        reach._judge(None, clock.now_s)
        reach._judge(None, clock.now_s)
    said = [record.getMessage() for record in caplog.records]
    assert said == 2 * [
        "Kafka does not answer: nobody listens",
        "Kafka has not answered for 60 s: nobody listens",
        "Kafka has not answered for 120 s: nobody listens",
        "Kafka answers again, after 150 s",
    ]


def test_clients_say_nothing_of_a_broker_that_is_away(
    nobody: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    settings = KafkaSettings(nobody)
    heard: list[object] = []

    def problem(of: wire.KafkaProblem) -> None:
        heard.append(of)
        wire.log_problem(of)

    clients = [
        producer(settings, on_problem=problem), transactional_producer(settings, "t", on_problem=problem),
        consumer(settings, "g", on_problem=problem),
    ]  # fmt: skip
    for _ in range(20):
        for client in clients:
            client.poll(0.05)
    assert len(heard) >= 3
    assert [record.getMessage() for record in caplog.records] == []
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_start_without_a_broker_says_each_minute_that_it_waits(nobody: str) -> None:
    class Enough(Exception):
        pass

    clock, told = Clock(), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            raise Enough

    def now_s() -> float:
        clock.now_s += 61
        return clock.now_s

    reach = KafkaReach(KafkaSettings(nobody), CollectorRegistry(), now_s)
    with pytest.raises(Enough):
        reach.await_answer(tell)
    assert [text.partition(" s: ")[0] for text in told] == [f"waiting for Kafka, for {n}" for n in (61, 122, 183)]
    assert f"Kafka at {nobody} (PLAINTEXT)" in told[0]
    assert not reach.ok
    assert f"Kafka at {nobody} (PLAINTEXT)" in reach.detail["kafka"]
