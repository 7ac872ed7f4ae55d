"""What is said again and again is logged seldom."""

from __future__ import annotations

import logging

from lowmark.wire.kafka.repeated_messages import Seldom, Unheard


def test_a_message_comes_again_after_a_while() -> None:
    now = 100.0
    seldom = Seldom(lambda: now)

    def passes(text: str, *values: object) -> bool:
        return seldom.filter(logging.LogRecord("kafka", logging.ERROR, "", 0, text, values, None))

    assert passes("connect to %s failed (after %d ms)", "a:9092", 0)
    assert not passes("connect to %s failed (after %d ms)", "a:9092", 17)
    assert passes("connect to %s failed (after %d ms)", "b:9092", 0)
    now += 59.0
    assert not passes("connect to a:9092 failed (after 3 ms)")
    now += 1.0
    assert passes("connect to a:9092 failed (after 3 ms)")
    assert not passes("connect to a:9092 failed (after 4 ms)")


def test_memory_is_bounded() -> None:
    seldom = Seldom(lambda: 0.0)
    for number in range(3000):
        text = "x" * number
        assert seldom.filter(logging.LogRecord("kafka", logging.ERROR, "", 0, text, (), None))
    assert len(seldom._last) <= 1000


def test_what_the_client_says_of_its_connections_is_left_out() -> None:
    unheard = Unheard()

    def passes(text: str) -> bool:
        return unheard.filter(logging.LogRecord("kafka", logging.ERROR, "", 0, text, (), None))

    assert not passes("FAIL [lowmark#producer-2] [thrd:127.0.0.1:37001/1]: Disconnected (after 32953ms in state UP)")
    assert not passes("CONFWARN [x] [thrd:app]: enable.gapless.guarantee is experimental")
    assert passes("TXNERR [lowmark#producer-12] [thrd:main]: Fatal transaction error: fenced")
    assert passes("Kafka does not answer: FAIL")
