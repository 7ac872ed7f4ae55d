"""What a capture makes of the epochs that it finds in topics of partials."""

from __future__ import annotations

import pytest

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka import epochs
from lowmark.wire.kafka.clients import KafkaRefused, KafkaSettings, KafkaUnavailable

KAFKA = KafkaSettings("127.0.0.1:1")
TOPIC = "lowmark.v1.partials.x"


def test_who_may_not_read_partials_may_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights of a capture do not hold it: deploy/kafka/acls.sh."""

    def refuse(*_: object) -> dict[str, int]:
        raise KafkaRefused("Topic authorization failed")

    monkeypatch.setattr(epochs, "_epochs", refuse)
    epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": 3})


def test_other_problems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> dict[str, int]:
        raise KafkaUnavailable("no broker answers")

    monkeypatch.setattr(epochs, "_epochs", away)
    with pytest.raises(KafkaUnavailable):
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": 3})


@pytest.mark.parametrize(("registered", "refused"), [(7, True), (3, True), (8, False)])
def test_an_epoch_that_was_there_before_is_refused(
    monkeypatch: pytest.MonkeyPatch, registered: int, refused: bool
) -> None:
    monkeypatch.setattr(epochs, "_epochs", lambda *_: {"tap": 7, "other": 90})
    if not refused:
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": registered})
        return
    with pytest.raises(EnvironmentNotReady, match="deleted and made anew"):
        epochs.refuse_former_epochs(KAFKA, "", [TOPIC], {"tap": registered})
