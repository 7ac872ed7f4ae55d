"""Nodes that send late tuples: each late tuple is a row of its own, beside all that is true of other nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.config import LowLevelConfig
from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.query.expr.expressions import Named, Op
from lowmark.query.plan.nodes import FoldOp, Pane
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.rows.schema import Kind
from tests.lowlevel.merging import merged_rows
from tests.lowlevel.plans import SECOND, call, field, fold, grouped, named, null_if_zero, number
from tests.lowlevel.test_table import (
    PLAIN,
    SELECTED,
    Packet,
    blocks,
    configs,
    expected,
    packets,
)

SUMS = grouped(
    (named("srcIP"), Named("odd", null_if_zero(field("srcPort")))),
    (fold(FoldOp.ADD, null_if_zero(field("srcPort"))), fold(FoldOp.MAX, field("destIP"), name="max")),
    where=call(Op.NE, field("destPort"), number(9), kind=Kind.BOOL),
    pane=Pane(SECOND, origin=SECOND // 4),
)
NODES = (SUMS, PLAIN, SELECTED)
SENDING = ("groups", "rows")  # PLAIN only counts


def outputs(
    stream: list[Packet], lows: list[int], cuts: list[int], config: LowLevelConfig, build: Build
) -> list[NodeOutput]:
    nodes = SourceNodes(NODES, stream="Main", rank=3, config=config, seed=1, build=build, send_late=SENDING)
    nodes.start()
    found = [output for frames in blocks(stream, cuts, lows) for output in nodes.take(frames)]
    return [*found, *nodes.finish()]


@st.composite
def disordered(draw: st.DrawFn) -> tuple[list[Packet], list[int]]:
    """Packets, and rising low-watermarks that many of them come too late for."""
    stream = draw(st.lists(packets, max_size=150))
    steps = draw(st.lists(st.integers(0, 40), min_size=len(stream), max_size=len(stream)))
    return stream, [int(low) for low in np.maximum.accumulate(np.array(steps, np.int64) * SECOND // 4)]


@pytest.mark.slow
@pytest.mark.parametrize("build", Build)
def test_late_tuples_are_put_out_once_each(build: Build) -> None:
    @settings(max_examples=30, deadline=None)
    @given(disordered(), st.lists(st.integers(0, 200), max_size=4), configs)
    def check(sent: tuple[list[Packet], list[int]], cuts: list[int], config: LowLevelConfig) -> None:
        stream, lows = sent
        found = outputs(stream, lows, cuts, config, build)
        for node in NODES:
            mine = [output for output in found if output.node == node.name]
            late = [output.late for output in mine if output.late is not None]
            told = Counter[int]()
            for output in mine:
                told.update({} if output.progress is None else output.progress.late)
            if node.name not in SENDING:
                assert late == []
                continue
            panes = Counter[int]()
            for rows in late:
                assert (rows[:, 2] == 1).all()
                panes.update(rows[:, 1].view(np.int64).tolist())
            assert panes == told
            together = merged_rows(node.reduction, [*late, *(output.rows for output in mine)])
            assert together == expected(node, stream, 3)

    check()


def test_they_are_sent_flagged_and_stand_in_no_account() -> None:
    stream = [Packet(second * SECOND, second, 1, (5, 80), 1) for second in (9, 1, 2, 9, 1)]
    origin = Origin("stage", "eth0", 7, "groups")
    outbox = Outbox(SUMS, origin, 4)
    records = [
        record
        for output in outputs(stream, [8 * SECOND] * 5, [3], LowLevelConfig(slots=16), Build.FAST)
        if output.node == "groups"
        for record in outbox.take(output)
    ]
    late = [record for _, record in records if isinstance(record, Rows) and record.late]
    assert sum(sum(record.tuples.values()) for record in late) == 3
    on_time = [record for _, record in records if isinstance(record, Rows) and not record.late]
    assert sum(sum(record.tuples.values()) for record in on_time) == 2
    for partition in range(4):
        mine = [record for place, record in records if place == partition]
        assert [record.sequence for record in mine] == list(range(len(mine)))
        accounts = [account for record in mine if isinstance(record, Punctuation) for account in record.ledger.accounts]
        assert sum(account.everywhere for account in accounts) == 2
        assert sum(account.late for account in accounts) == 3


def test_without_room_they_are_given_up_and_counted_apart() -> None:
    stream = [Packet(second * SECOND, second, 1, (5, 80), 1) for second in (9, 1, 2)]
    outbox = Outbox(SUMS, Origin("stage", "eth0", 7, "groups"), 1, room=lambda size: False)
    for output in outputs(stream, [8 * SECOND] * 3, [], LowLevelConfig(slots=16), Build.FAST):
        if output.node == "groups":
            assert not any(isinstance(record, Rows) for _, record in outbox.take(output))
    counters = outbox.counters
    assert (counters["late"], counters["late_given_up"], counters["given_up"]) == (2, 2, 1)
