"""What a capture makes of the epochs that it finds in topics of partials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka import epochs
from lowmark.app.kafka.source_registry import read_first_partitions
from lowmark.wire.kafka.clients import KafkaRefused, KafkaSettings, KafkaUnavailable

KAFKA = KafkaSettings("127.0.0.1:1")
TOPIC = "lowmark.v1.partials.x"


def test_who_may_not_read_partials_may_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights of a capture do not hold it: deploy/kafka/acls.sh."""

    def refuse(*_: object) -> dict[str, int]:
        raise KafkaRefused("Topic authorization failed")

    monkeypatch.setattr(epochs, "_epochs", refuse)
    epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": 3})


class Gone:
    """A client whose broker has gone after it told where the records end. A look takes a second."""

    now_s = 0.0

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, 5

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        pass

    def poll(self, timeout: float) -> Message | None:
        self.now_s += timeout
        assert self.now_s < 100, "it would wait for ever"
        return None

    def position(self, parts: Sequence[TopicPartition]) -> list[TopicPartition]:
        return list(parts)


def test_a_broker_that_goes_meanwhile_is_not_waited_for_without_end() -> None:
    reader = Gone()
    with pytest.raises(KafkaUnavailable):
        list(read_first_partitions(cast(Consumer, reader), KAFKA, [TOPIC], None, now_s=lambda: reader.now_s))


def test_other_problems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> dict[str, int]:
        raise KafkaUnavailable("no broker answers")

    monkeypatch.setattr(epochs, "_epochs", away)
    with pytest.raises(KafkaUnavailable):
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": 3})


@pytest.mark.parametrize(
    ("registered", "end", "refused"), [(7, 91, True), (3, 91, True), (8, 91, False), (8, 90, True), (8, 9, True)]
)
def test_an_epoch_that_was_there_before_is_refused(
    monkeypatch: pytest.MonkeyPatch, registered: int, end: int, refused: bool
) -> None:
    """Its own, or that of another source: what a source sent that has been silent for long is not looked for."""
    monkeypatch.setattr(epochs, "_epochs", lambda *_: {"tap": 7, "other": 90})
    monkeypatch.setattr(epochs, "_next_epoch", lambda *_: end)
    if not refused:
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": registered})
        return
    with pytest.raises(EnvironmentNotReady, match="deleted and made anew"):
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": registered})
