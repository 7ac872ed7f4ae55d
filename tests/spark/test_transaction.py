"""The sink against a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from highlevel.spark.checkpoint import Completed
from highlevel.spark.errors import CheckpointRefused, TakenOver
from highlevel.spark.sink import transaction as sink_module
from highlevel.spark.sink.messages import Bundle
from highlevel.spark.sink.results_history import History
from highlevel.spark.sink.suppression import digest
from lowmark.wire.kafka.clients import admin, producer, transactional_producer
from lowmark.wire.kafka.settings import consumer_options
from lowmark.wire.records.codec import encode
from lowmark.wire.records.verdicts import Amendment, Reason, WindowSpan

pytestmark = pytest.mark.slow


def test_a_batch_becomes_visible_with_its_token(place):
    with place.sink() as sink:
        assert sink.token is None
        sink.write([place.rows([b'{"a":1}', b'{"a":2}']), place.complete(7)], place.token(0))
        assert sink.token == place.token(0)
    assert [value for _, value in place.read()][:2] == [b'{"a":1}', b'{"a":2}']
    with place.sink() as again:
        assert again.token == place.token(0)
        again.write([place.rows([b'{"a":3}'], 1)], place.token(1))
    with place.sink() as third:
        assert third.token == place.token(1)
    assert (1, b'{"a":3}') in place.read()


def test_an_unfinished_transaction_is_undone_by_the_next_process(place):
    left = transactional_producer(place.settings, place.job)
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(place.results, b"half", partition=0)
    assert left.flush(30) == 0
    with place.sink() as sink:
        assert sink.token is None
        sink.write([place.rows([b"whole"])], place.token(0))
    assert place.read() == [(0, b"whole")]
    with pytest.raises(KafkaException):
        left.commit_transaction(30)


def test_of_two_processes_the_first_is_told_that_it_has_been_taken_over(place):
    with place.sink() as first:
        first.write([place.rows([b"1"])], place.token(0))
        with place.sink() as second:
            assert second.token == place.token(0)
            with pytest.raises(TakenOver, match="another process runs job"):
                first.write([place.rows([b"never"])], place.token(1))
            second.write([place.rows([b"2"])], place.token(1))
    assert [value for _, value in place.read()] == [b"1", b"2"]


def test_an_idle_job_keeps_its_token(place, monkeypatch):
    with place.sink() as sink:
        sink.renew()  # nothing to keep yet
        sink.write([place.position(7)], place.token(4))
    monkeypatch.setattr(sink_module, "_RENEW_AFTER_S", 0.0)
    with place.sink() as again:
        forget = Consumer(consumer_options(place.settings, place.job))
        forget.commit(offsets=[TopicPartition(place.results, 0, 0)], asynchronous=False)
        forget.close()
        again.renew()
    with place.sink() as third:
        assert third.token == place.token(4)
        assert third.positions == {(place.results, 0): place.position(7)}


def test_positions_stand_with_the_results_that_they_are_of(place):
    with place.sink() as sink:
        assert sink.positions == {}
        sink.write([place.rows([b"1"]), place.position(10), place.position(4, 1)], place.token(0))
        sink.write([place.rows([b"2"]), place.position(12)], place.token(1))
        both = {(place.results, 0): place.position(12), (place.results, 1): place.position(4, 1)}
        assert sink.positions == both
        with place.sink() as other:
            assert other.positions == both
            with pytest.raises(TakenOver):
                sink.write([place.rows([b"3"]), place.position(13)], place.token(2))
            assert sink.positions == both
    with place.sink() as again:
        assert again.positions == both


def test_a_foreign_offset_is_no_token(place):
    with place.sink():
        pass
    reader = Consumer(consumer_options(place.settings, place.job))
    reader.commit(offsets=[TopicPartition(place.dead, 0, 3)], asynchronous=False)
    reader.close()
    with pytest.raises(CheckpointRefused, match="another program uses this group's name"):
        place.sink().open()


def test_a_large_batch(place):
    rows = [b'{"n":%d}' % n for n in range(150_000)]  # more than librdkafka's queue holds
    with place.sink() as sink:
        sink.write([place.rows(rows), place.complete(1)], place.token(0))
    assert [value for _, value in place.read()][:-1] == rows


def test_history_of_empty_topics(place):
    assert place.history() == History(0, {})


def test_history_knows_of_what_anything_has_been_told_and_what_has_lost_its_beginning(place):
    with place.sink() as sink:
        sink.write([place.rows([b"{}"] * 3)], place.token(0))
    partials = {"f00d": (place.results, 2)}
    assert place.history(partials) == History(1, {}, frozenset({("q", 0)}))
    client = admin(place.settings)
    for future in client.delete_records([TopicPartition(place.results, 0, OFFSET_END)]).values():
        future.result(30)
    assert place.history(partials) == History(0, {}, frozenset({("q", 0)}), frozenset({("f00d", 0)}))


def test_history_is_read_from_the_ends(place):
    with place.sink() as sink:
        sink.write([place.rows([b"{}"]), place.complete(1), place.complete(1, 1)], place.token(0))
        sink.write([place.rows([b"{}"] * 5000, generation=2)], place.token(1))
        sink.write([place.complete(2, 1, generation=2), place.rows([b"{}"], 1, generation=3)], place.token(2))
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
    with place.sink() as sink:
        sink.write([place.complete(0), amendments[0], place.complete(1), amendments[1]], place.token(0))
        sink.write([place.rows([b"{}"] * 5000, generation=2), amendments[2]], place.token(1))
    assert place.history().completed == {("q", 0): Completed(20, (digest(told(2)),) * 2)}
