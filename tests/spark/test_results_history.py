"""What former jobs have left, read from a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_END, TopicPartition

from highlevel.spark.checkpoint.checkpoint import Completed
from highlevel.spark.sink.messages import Bundle
from highlevel.spark.sink.results_history import History
from highlevel.spark.sink.suppression import digest
from lowmark.wire.kafka.clients import admin, producer
from lowmark.wire.records.codec import encode
from lowmark.wire.records.verdicts import Amendment, Reason, WindowSpan

pytestmark = pytest.mark.slow


def test_history_of_empty_topics(place):
    assert place.history() == History(0, {})


def test_history_knows_of_what_anything_has_been_told_and_what_has_lost_its_beginning(place):
    place.put(place.rows([b"{}"] * 3))
    partials = {"f00d": (place.results, 2)}
    assert place.history(partials) == History(1, {}, frozenset({("q", 0)}))
    client = admin(place.settings)
    for future in client.delete_records([TopicPartition(place.results, 0, OFFSET_END)]).values():
        future.result(30)
    before_ns = time.time_ns()
    gone = place.history(partials)
    assert gone == History(0, {}, frozenset({("q", 0)}), gone.shortened)
    assert before_ns <= gone.shortened.pop(("f00d", 0)) <= time.time_ns(), "nothing is left"
    assert gone.shortened == {}
    place.put(place.rows([b"{}"]))
    assert abs(place.history(partials).shortened["f00d", 0] - time.time_ns()) < 60 * 10**9


def test_history_is_read_from_the_ends(place):
    place.put(place.rows([b"{}"]), place.complete(1), place.complete(1, 1))
    place.put(place.rows([b"{}"] * 5000, generation=2))
    place.put(place.complete(2, 1, generation=2), place.rows([b"{}"], 1, generation=3))
    foreign = producer(place.settings)
    foreign.produce(place.results, b"?", partition=0)
    foreign.flush(30)
    assert place.history() == History(
        3, {("q", 0): Completed(20), ("q", 1): Completed(30)}, frozenset({("q", 0), ("q", 1)})
    )  # fmt: skip


def test_history_has_what_stands_behind_the_last_completion(place):
    def told(late: int) -> Amendment:
        return Amendment("q", 1, 0, WindowSpan(1, 1), 10, 20, late, 0, frozenset({Reason.LATE}))

    amendments = [Bundle.of(place.results, 0, encode(told(late))) for late in (1, 2, 2)]
    place.put(place.complete(0), amendments[0], place.complete(1), amendments[1])
    place.put(place.rows([b"{}"] * 5000, generation=2), amendments[2])
    assert place.history().completed == {("q", 0): Completed(20, (digest(told(2)),) * 2)}
