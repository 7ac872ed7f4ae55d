"""Transactions without a broker: what their helpers do when they cannot work."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from highlevel.spark.sink.transaction import Place, Transactions
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.settings import KafkaSettings, KafkaSettingsError, SaslMechanism, Secret, SecurityProtocol


def test_a_secret_that_cannot_be_read_is_told_once_by_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    settings = KafkaSettings(
        "127.0.0.1:1", SecurityProtocol.SASL_PLAINTEXT, SaslMechanism.PLAIN, "someone", Secret(tmp_path / "gone")
    )
    with Watchdog(lambda reason: None) as watchdog:
        transactions = Transactions(settings, Place("group", "topic", 0), 60.0, watchdog)
        transactions.warm()
        with pytest.raises(KafkaSettingsError, match=r"the secret in .*gone cannot be read"):
            transactions.open()
    assert died == []
