"""How long the end of a capture takes while Kafka is away."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lowlevel.config import QueueConfig
from lowlevel.emitter import Emitter, TopicState
from lowmark.app.capture.drain import check_all_sent, wait_until_sent
from lowmark.app.errors import EnvironmentNotReady
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.records.record import WireRecord


@pytest.fixture
def away() -> Iterator[str]:
    """An address that nobody answers at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


class Clock:
    """Each look at it takes 25 s."""

    def __init__(self) -> None:
        self.looks = 0

    def now_s(self) -> float:
        self.looks += 1
        return 25.0 * self.looks


def test_it_is_said_what_is_waited_for_and_how_long(away: str, caplog: pytest.LogCaptureFixture) -> None:
    emitter, clock = Emitter(KafkaSettings(away), QueueConfig()), Clock()
    emitter.serve({"t": ["q"]})
    emitter.start()
    try:
        for number in range(7):
            emitter.put("t", 0, WireRecord(None, bytes([number]), ()))
        wait_until_sent(emitter, away, clock.now_s)
        (said,) = [record.message for record in caplog.records if record.name == "lowmark.capture"]
        assert (
            f"waits for Kafka at {away} to take its last 7 records: until it has taken them, or none for 60 s" in said
        )
        assert clock.looks == 4, "75 s behind the first"
        with pytest.raises(EnvironmentNotReady, match="Kafka did not take the last 7 records: it took none for 60 s"):
            check_all_sent(emitter)
    finally:
        emitter.stop()


def test_nothing_is_said_where_nothing_waits(away: str, caplog: pytest.LogCaptureFixture) -> None:
    emitter = Emitter(KafkaSettings(away), QueueConfig())
    emitter.serve({"t": ["q"]})
    wait_until_sent(emitter, away)
    check_all_sent(emitter)
    assert not caplog.records


class Taking(Emitter):
    """Kafka takes a record whenever it is looked at, until none is left."""

    def __init__(self, records: int) -> None:
        super().__init__(KafkaSettings("127.0.0.1:1"), QueueConfig())
        self.left, self.taken = records, 0

    def states(self) -> tuple[TopicState, ...]:
        return (TopicState("t", ("q",), records=self.taken, queued_records=self.left),)

    def drained(self, timeout_s: float) -> bool:
        if self.left:
            self.left, self.taken = self.left - 1, self.taken + 1
        return not self.left


def test_a_backlog_that_kafka_takes_is_waited_for_and_the_service_manager_hears_of_it() -> None:
    """However long it takes: each look takes 25 s here."""
    moved = list[int]()
    emitter = Taking(40)
    wait_until_sent(emitter, "127.0.0.1:1", Clock().now_s, lambda: moved.append(emitter.left))
    assert moved == list(range(39, 0, -1))
