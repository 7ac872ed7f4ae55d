"""What leaves for the partitions: dense numbers, each tuple once and where its key belongs, ledgers that add up."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.config import LowLevelConfig
from lowlevel.node import NodeOutput, NodeProgress, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import MAX_BATCH_BYTES, Origin, PartialBatch
from lowmark.wire.records.punctuations import Account, Bound, Ending, Punctuation, Taint
from lowmark.wire.records.record import WireRecord
from lowmark.wire.rows.hashing import bucket_of, key_words
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import Words, to_batch, to_words
from tests.lowlevel.plans import SECOND
from tests.lowlevel.test_table import DETAILED, Packet, blocks, merged_rows, packets

ORIGIN = Origin("stage", "eth0", 7, "detailed")
SCHEMA = DETAILED.reduction.schema


def to_wire(record: Rows | Punctuation) -> WireRecord:
    if isinstance(record, Punctuation):
        return encode(record)
    return encode(PartialBatch(record.origin, record.sequence, to_batch(SCHEMA, record.rows), record.tuples))


def schema_of(origin: Origin) -> Schema:
    return SCHEMA


def outputs_of(stream: list[Packet], cuts: list[int]) -> list[NodeOutput]:
    nodes = SourceNodes([DETAILED], stream="Main", config=LowLevelConfig(slots=16, output_rows=64), seed=1)
    nodes.start()
    outputs = [output for frames in blocks(stream, cuts) for output in nodes.take(frames)]
    return [*outputs, *nodes.finish()]


class Received:
    """A reader of every partition, that checks what it sees."""

    def __init__(self, partitions: int) -> None:
        self.rows: list[list[Words]] = [[] for _ in range(partitions)]
        self.tuples = [Counter[int]() for _ in range(partitions)]
        self.accounts = [defaultdict[int, list[int]](list) for _ in range(partitions)]
        self.next = [0] * partitions
        self.ended = [False] * partitions
        self.promised = [-(2**64)] * partitions

    def take(self, partition: int, wire: WireRecord) -> None:
        record = decode(wire.headers, wire.value, schema_of)
        assert isinstance(record, PartialBatch | Punctuation)
        assert record.origin == ORIGIN
        assert record.sequence == self.next[partition]
        self.next[partition] += 1
        assert not self.ended[partition]
        if isinstance(record, PartialBatch):
            assert len(wire.value) <= MAX_BATCH_BYTES
            rows = to_words(SCHEMA, record.rows)
            if len(self.rows) > 1:
                assert set(bucket_of(key_words(SCHEMA, rows, ("srcIP",)), len(self.rows))) == {partition}
            self.rows[partition].append(rows)
            for pane, tuples in record.tuples.items():
                assert DETAILED.reduction.pane.start(pane) >= self.promised[partition]
                self.tuples[partition][pane] += tuples
            return
        promise = record.promise
        if not promise.last:
            assert promise.bounds == (Bound("ts", promise.below("ts")),)
            assert promise.below("ts") > self.promised[partition]
        self.promised[partition] = promise.below("ts")
        for account in record.ledger.accounts:
            self.accounts[partition][account.granule] += [account.here, account.everywhere]
        told = sum(everywhere for _, everywhere in self.accounts[partition].values())
        assert record.ledger.counters["promised"] == told
        self.ended[partition] = promise.last
        assert (record.ending is Ending.END) == promise.last


@given(
    stream=st.lists(packets, max_size=300), cuts=st.lists(st.integers(0, 300), max_size=4), partitions=st.integers(1, 9)
)
@settings(deadline=None, max_examples=60)
def test_every_tuple_is_sent_once_to_its_bucket_and_accounted_for(
    stream: list[Packet], cuts: list[int], partitions: int
) -> None:
    outputs = outputs_of(stream, cuts)
    outbox = Outbox(DETAILED, ORIGIN, partitions)
    received = Received(partitions)
    for output in outputs:
        last = output.progress is not None and output.progress.promised_ns == FOREVER
        for partition, record in outbox.take(output, Ending.END if last else Ending.NONE):
            received.take(partition, to_wire(record))
    rows = [rows for part in received.rows for rows in part]
    assert merged_rows(DETAILED.reduction, rows) == merged_rows(DETAILED.reduction, [output.rows for output in outputs])
    assert all(received.ended)
    everywhere = sum(received.tuples, Counter())
    for tuples, accounts in zip(received.tuples, received.accounts, strict=True):
        assert accounts == {granule: [tuples[granule], everywhere[granule]] for granule in everywhere}


def matrix(panes: list[int]) -> Words:
    rows = np.zeros((len(panes), SCHEMA.words), np.uint64)
    rows[:, 1] = np.array(panes, np.int64).view(np.uint64)
    rows[:, 2] = 1
    rows[:, SCHEMA.offset("srcIP")] = 4
    rows[:, SCHEMA.offset("srcIP") + 2] = np.arange(len(panes))
    return rows


def test_large_outputs_are_split_before_they_are_numbered() -> None:
    outbox = Outbox(DETAILED, ORIGIN, 1)
    received = Received(1)
    sent = list(outbox.take(NodeOutput("detailed", matrix([3] * 60_000), NodeProgress(4 * SECOND))))
    for partition, record in sent:
        received.take(partition, to_wire(record))
    assert len(sent) > 5
    assert sum(map(len, received.rows[0])) == 60_000


def test_a_promise_over_very_many_granules_is_made_in_steps() -> None:
    outbox = Outbox(DETAILED, ORIGIN, 2)
    received = Received(2)
    granules = list(range(0, 100_000, 5))
    for partition, record in outbox.take(NodeOutput("detailed", matrix(granules), NodeProgress(FOREVER)), Ending.END):
        received.take(partition, to_wire(record))
    assert all(received.ended)
    assert all(sorted(accounts) == granules for accounts in received.accounts)


def test_what_finds_no_room_is_given_up_before_it_is_numbered_and_said() -> None:
    full = False
    outbox = Outbox(DETAILED, ORIGIN, 1, room=lambda size: not full)
    sent = [record for _, record in outbox.take(NodeOutput("detailed", matrix([1, 1, 2])))]
    full = True
    sent += [record for _, record in outbox.take(NodeOutput("detailed", matrix([2, 2, 2, 3])))]
    sent += [record for _, record in outbox.take(NodeOutput("detailed", matrix([]), NodeProgress(3 * SECOND)))]
    full = False
    sent += [record for _, record in outbox.take(NodeOutput("detailed", matrix([]), NodeProgress(FOREVER)), Ending.END)]
    assert [record.sequence for record in sent] == [0, 1, 2]
    assert [isinstance(record, Rows) for record in sent] == [True, False, False]
    accounts = [
        (account.granule, account.here, account.given_up)
        for record in sent
        if isinstance(record, Punctuation)
        for account in record.ledger.accounts
    ]
    assert accounts == [(1, 2, 0), (2, 1, 3), (3, 0, 1)]
    assert outbox.counters["given_up"] == 4


def test_losses_at_the_source_are_said_to_every_partition() -> None:
    outbox = Outbox(DETAILED, ORIGIN, 3)
    taint = Taint(2, 9, ("dropped",), dropped=3)
    progress = NodeProgress(5 * SECOND, {4: 2}, (taint,))
    records = [record for _, record in outbox.take(NodeOutput("detailed", matrix([]), progress))]
    for record in records:
        assert isinstance(record, Punctuation)
        assert record.ledger.accounts == (Account(4, 0, 0, late=2),)
        assert record.ledger.taints == (taint,)
        assert [record.ledger.counters[name] for name in ("late", "dropped", "taints")] == [2, 3, 1]
    assert len(records) == 3
