"""What is said again and again is logged seldom."""

from __future__ import annotations

import logging

from lowmark.wire.repeats import Seldom


def test_a_message_comes_again_after_a_while() -> None:
    now = 100.0
    seldom = Seldom(lambda: now)

    def passes(text: str, *values: object) -> bool:
        return seldom.filter(logging.LogRecord("kafka", logging.ERROR, "", 0, text, values, None))

    assert passes("connect to %s failed (after %d ms)", "a:9092", 0)
    assert not passes("connect to %s failed (after %d ms)", "a:9092", 17)
    assert passes("connect to %s failed (after %d ms)", "b:9092", 0)
    now += 29.0
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
