from __future__ import annotations

from highlevel.spark.sink.dead_letters import DeadLetters
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.wire.records.record import BadReason

HOUR_US = 3600 * 10**6


def batch(store, reasons, at_us):
    """The letters of a micro-batch that are written."""
    state = PiecewiseState(store, "beef")
    letters = DeadLetters(state)
    written = [reason for reason in reasons if letters.admit(reason, at_us)]
    state.commit()
    assert sum(letters.counts.values()) == len(reasons), "all are counted"
    return written


def test_letters_are_limited_in_a_batch_and_in_an_hour_for_each_reason():
    store = MemoryByteStore()
    flood = [BadReason.FOREIGN] * 50
    assert batch(store, [*flood, BadReason.VALUE], 0) == [BadReason.FOREIGN] * 20 + [BadReason.VALUE]
    written = sum(len(batch(store, flood, number)) for number in range(1, 100))
    assert written == 200 - 20
    assert batch(store, [*flood, BadReason.VALUE], HOUR_US - 1) == [BadReason.VALUE]
    assert len(batch(store, flood, HOUR_US)) == 20


def test_an_older_time_of_append_begins_no_new_hour():
    store = MemoryByteStore()
    for number in range(10):
        assert len(batch(store, [BadReason.KIND] * 20, 5 * HOUR_US - number)) == 20
    assert batch(store, [BadReason.KIND], HOUR_US) == []


def test_a_batch_that_is_run_again_writes_the_same():
    store = MemoryByteStore()
    batch(store, [BadReason.KIND] * 15, 7)
    before = dict(store.pieces)
    first = batch(store, [BadReason.KIND] * 30, 9)
    store.pieces = before
    assert batch(store, [BadReason.KIND] * 30, 9) == first
