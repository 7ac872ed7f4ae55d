"""The job's query without Spark: what its threads do when they cannot work."""

from __future__ import annotations

import threading

import pytest

from highlevel.spark import query
from highlevel.spark.errors import TakenOver
from highlevel.spark.query import JobQuery
from lowmark.wire.kafka.clients import KafkaUnavailable


def renewing(errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> tuple[JobQuery, list[str]]:
    """A query that renews its tokens at each call; the first attempts fail with these errors."""
    done: list[str] = []

    def renew() -> None:
        if errors:
            done.append("failed")
            raise errors.pop(0)
        done.append("renewed")

    monkeypatch.setattr(query, "_RENEW_AFTER_S", -1.0)
    monkeypatch.setattr(query, "_RENEW_AGAIN_S", 0.0)
    made = JobQuery(None, None, None, None, "job", lambda *of: None, renew, lambda of: None, threading.Event())  # type: ignore[arg-type]
    return made, done


def renew(made: JobQuery) -> None:
    made.renew()
    for thread in threading.enumerate():
        if thread.name == "renewal":
            thread.join(10)


def test_tokens_are_renewed_once_kafka_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, done = renewing([KafkaUnavailable("away"), KafkaUnavailable("away")], monkeypatch)
    made._query = NotRunning()  # type: ignore[assignment]
    for _ in range(3):
        renew(made)
    assert done == ["failed", "failed", "renewed"]
    assert made._failure is None


def test_whoever_has_been_taken_over_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = renewing([TakenOver("another process")], monkeypatch)
    made._query = NotRunning()  # type: ignore[assignment]
    renew(made)
    with pytest.raises(TakenOver):
        made.check()


class NotRunning:
    isActive = True
