"""The sink of a bucket against a real broker, with processes that come, go, and go on beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from highlevel.spark.errors import CheckpointRefused, TakenOver, TopicsDeleted
from highlevel.spark.sink import outgoing, transaction
from highlevel.spark.sink.bucket_sink import BucketSink
from highlevel.spark.sink.messages import Bundle, Position
from highlevel.spark.sink.outgoing import Outgoing
from highlevel.spark.sink.tokens import Chain, Past, before_the_first
from highlevel.spark.sink.transaction import Transactions, Undone
from lowmark.wire.kafka.clients import KafkaProblem, admin, transactional_producer
from lowmark.wire.kafka.settings import consumer_options
from lowmark.wire.records.sink_token import Told
from tests.spark.place import Place

pytestmark = pytest.mark.slow

NEW = before_the_first("checkpoint")


def run(
    place: Place, sink: BucketSink, batch: int, past: Past, *output: Bundle | Position, given: int = 0,
    number: int = 1,
) -> Past:  # fmt: skip
    """A batch of a bucket, as the processor runs it; returns the state that it leaves. `given` is its input, `number`
    the run's."""
    chain = Chain(past.digest)
    chain.add("partials", batch, given)
    kept = Outgoing(by_position=False)
    for each in output:
        if isinstance(each, Position):
            kept.mark(each)
        else:
            kept.put(each)
    token = place.token(batch, chain.digest, number)
    parts = kept.few()
    after = sink.begin(past, token, parts)
    if after is None:
        return sink.write(past, token, kept.parts())
    if parts:
        assert sink.write(past, token, parts) == replace(after, holder=sink.holder)
    return after


def test_batches_become_visible_with_their_token_whichever_process_runs_them(place):
    place.claim()
    here, there = place.sink(), place.sink()
    past = run(place, here, 0, NEW, place.rows([b"1", b"2"]), place.complete(7), place.position(9))
    past = run(place, there, 1, past, place.rows([b"3"]))
    past = run(place, there, 2, past)
    past = run(place, here, 3, past, place.rows([b"4"]), place.position(12))
    past = run(place, here, 4, past, place.rows([b"5"]))
    assert [value for _, value in place.read() if len(value) == 1] == [b"1", b"2", b"3", b"4", b"5"]
    stored = place.stored()
    assert (stored.batch, stored.part, stored.last, stored.read) == (4, 0, True, 12)
    assert stored.told == {"q": Told("law", 12)}


def test_what_is_written_is_not_written_again_by_a_later_attempt(place):
    """The state goes back to what Spark has committed; the same process runs the batch again, or another one."""
    place.claim()
    sink = place.sink()
    past = run(place, sink, 0, NEW, place.rows([b"1"]))
    for again in (sink, place.sink()):
        assert run(place, again, 0, NEW, place.rows([b"1"])).written == past.written
    place.claim(run=2)
    later = place.sink()
    after = run(place, later, 0, NEW, place.rows([b"1"]), number=2)
    run(place, later, 1, after, place.rows([b"2"]), number=2)
    assert [value for _, value in place.read()] == [b"1", b"2"]


def test_a_batch_with_other_input_is_refused(place):
    place.claim()
    past = run(place, place.sink(), 0, NEW, place.rows([b"1"]))
    run(place, place.sink(), 1, past, place.rows([b"2"]))
    for batch, state in ((1, past), (0, NEW)):
        with pytest.raises(CheckpointRefused, match=r"do not belong together at batch .*--new-generation"):
            run(place, place.sink(), batch, state, place.rows([b"x"]), given=5)
    with pytest.raises(CheckpointRefused, match="do not belong together"):
        run(place, place.sink(), 2, NEW)  # also where it would write nothing
    assert [value for _, value in place.read()] == [b"1", b"2"]


def test_a_run_that_was_taken_over_writes_nothing_more(place):
    place.claim()
    first = place.sink()
    past = run(place, first, 0, NEW, place.rows([b"1"]))
    place.claim(run=2)
    for _ in range(2):
        with pytest.raises(TakenOver, match="another process runs job"):
            run(place, first, 1, past, place.rows([b"never"]))
    second = place.sink()
    run(place, second, 1, past, place.rows([b"2"]), number=2)
    place.claim("another")
    with pytest.raises(TakenOver, match="checkpoint another"):
        run(place, second, 1, past, place.rows([b"never"]), number=2)
    assert [value for _, value in place.read()] == [b"1", b"2"]


def test_an_unfinished_transaction_is_undone_by_the_next_process(place):
    place.claim()
    left = transactional_producer(place.settings, place.place().name)
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(place.results, b"half", partition=0)
    assert left.flush(30) == 0
    run(place, place.sink(), 0, NEW, place.rows([b"whole"]))
    assert place.read() == [(0, b"whole")]
    with pytest.raises(KafkaException):
        left.commit_transaction(30)


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_commit_of_which_nothing_is_heard_is_asked_for(place, monkeypatch, after_commit):
    place.claim()
    sink = place.sink()
    past = run(place, sink, 0, NEW, place.rows([b"0"]))
    ask, lost = Transactions._ask, [True]

    def deaf(self, call, *arguments):
        if call.__name__ != "commit_transaction" or not lost:
            return ask(self, call, *arguments)
        lost.clear()
        if after_commit:
            ask(self, call, *arguments)
        raise Undone("nothing was heard")

    monkeypatch.setattr(Transactions, "_ask", deaf)
    before = sink.holder
    past = run(place, sink, 1, past, place.rows([b"1"]))
    assert sink.holder != before
    run(place, sink, 2, past, place.rows([b"2"]))
    assert [value for _, value in place.read()] == [b"0", b"1", b"2"]


def test_a_large_batch_comes_in_parts_and_each_part_once(place, monkeypatch):
    monkeypatch.setattr(outgoing, "_PART_BYTES", 100_000)
    monkeypatch.setattr(outgoing, "_MOST_BYTES", 200_000)
    monkeypatch.setattr(outgoing, "_IN_MEMORY", 500_000)
    rows = [b'{"n":%06d}' % number for number in range(150_000)]  # also more than librdkafka's queue holds
    output = [*(place.rows(rows[at : at + 5000]) for at in range(0, len(rows), 5000)), place.complete(1)]
    place.claim()
    write, left = Transactions.write, [3]

    class Killed(Exception):
        pass

    def deadly(self, bundles, note):
        if not (bundles := list(bundles)) or left[0]:
            left[0] -= bool(bundles)
            return write(self, bundles, note)
        raise Killed

    monkeypatch.setattr(Transactions, "write", deadly)
    with pytest.raises(Killed):
        run(place, place.sink(), 0, NEW, *output)
    stored = place.stored()
    assert (stored.batch, stored.part, stored.last) == (0, 2, False)
    left[0] = 1000
    past = run(place, place.sink(), 0, NEW, *output)
    assert past.part > 5
    run(place, place.sink(), 1, past, place.rows([b"end"]))
    found = [value for _, value in place.read()]
    assert (found[:-2], found[-1]) == (rows, b"end")


def test_a_batch_of_the_run_before_counts_as_it_was_written(place):
    """The query that had told something in it is quarantined since."""
    place.claim()
    sink = place.sink()
    first = run(place, sink, 0, NEW, place.rows([b"0"]))
    run(place, sink, 1, first, place.rows([b"1"]))
    place.claim(run=2)
    past = run(place, sink, 1, first, number=2)
    run(place, sink, 2, past, place.rows([b"2"]), number=2)
    assert [value for _, value in place.read()] == [b"0", b"1", b"2"]


def test_how_far_a_quarantined_query_had_come_stays(place):
    place.claim()
    sink = place.sink()
    past = run(place, sink, 0, NEW, place.rows([b"1"]), Position(5, {"p": Told("law", 5), "q": Told("law", 5)}))
    run(place, sink, 1, past, place.rows([b"2"]), Position(9, {"q": Told("law", 9)}))
    assert place.stored().told == {"p": Told("law", 5), "q": Told("law", 9)}


def test_a_claim_keeps_the_token_that_kafka_would_forget(place):
    place.claim()
    past = run(place, place.sink(), 4, NEW, place.rows([b"1"]), place.position(7))
    before = place.stored()
    place.claim()
    assert place.stored() == before
    forget = Consumer(consumer_options(place.settings, place.place().name))
    forget.commit(offsets=[TopicPartition(place.results, 0, 0)], asynchronous=False)
    forget.close()
    with pytest.raises(CheckpointRefused, match="another program uses this group's name"):
        run(place, place.sink(), 5, past, place.rows([b"2"]))


def test_a_transaction_that_never_ends_is_told(place, monkeypatch):
    """As brokers leave it that have lost its end: nobody who opens the id can undo it."""
    place.claim()
    left = transactional_producer(place.settings, "another")
    left.init_transactions(30)
    left.begin_transaction()
    group = Consumer(consumer_options(place.settings, place.place().name))
    left.send_offsets_to_transaction([TopicPartition(place.results, 0, 9)], group.consumer_group_metadata(), 30)
    monkeypatch.setattr(transaction, "_ANSWER_WITHIN_S", 1.5)
    with pytest.raises(KafkaProblem, match=r"has not ended, though no process is in one: .*KAFKA-20734"):
        run(place, place.sink(), 0, NEW, place.rows([b"1"]))
    left.abort_transaction(30)
    monkeypatch.undo()
    run(place, place.sink(), 0, NEW, place.rows([b"1"]))
    assert place.read() == [(0, b"1")]


def test_a_deleted_topic_is_named(place):
    place.claim()
    gone = f"{place.results}-gone"
    with pytest.raises(TopicsDeleted, match=f"{gone}: this topic of results was deleted"):
        run(place, place.sink(), 0, NEW, Bundle(gone, 0, (), place.rows([b"1"]).starts, b"1"))
    assert gone not in admin(place.settings).list_topics(timeout=10).topics
