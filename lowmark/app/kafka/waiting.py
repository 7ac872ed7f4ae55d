"""Lets a long-running process wait for a Kafka that is not there yet when it starts."""

from __future__ import annotations

import time
from collections.abc import Callable

from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettings, admin

__all__ = ["await_kafka"]

_TOLD_AGAIN_S = 60.0


def await_kafka(
    kafka: KafkaSettings, tell: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
) -> None:  # fmt: skip
    """Waits until a broker answers; `tell` gets a line at once and every minute. KafkaRefused if it refuses. Call it
    before signal handlers are set, so that a signal ends the wait."""
    began_s = now_s()
    told_s: float | None = None

    def waiting(problem: KafkaProblem) -> None:
        nonlocal told_s
        now = now_s()
        if told_s is None or now - told_s >= _TOLD_AGAIN_S:
            told_s = now
            tell(f"waiting for Kafka, for {now - began_s:.0f} s: {problem}")

    admin(kafka, waiting=waiting)
