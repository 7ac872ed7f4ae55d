"""Whatever the table's size, the flush, the cut of the blocks and the seed: merged, the partials are the groups."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.config import Flush, FlushOrder, LowLevelConfig
from lowlevel.kernel.codegen.assemble import Build
from lowlevel.kernel.codegen.table_insert import CACHE_LINE, slot_words
from lowlevel.kernel.row_form import RowForm
from lowlevel.node import NodeOutput, NodeProgress, SourceNodes
from lowmark.query.expr.expressions import Literal, Named, Op
from lowmark.query.plan.nodes import FoldOp, Node, Pane
from lowmark.wire.frames import Flaw, FrameBlock
from lowmark.wire.records.punctuations import Taint
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER
from tests.lowlevel.merging import Groups, Merged, State, merged_rows
from tests.lowlevel.naive import block, decode
from tests.lowlevel.plans import SECOND, call, field, fold, grouped, named, null_if_zero, number, selection
from tests.lowlevel.test_expressions import evaluate

LOWEST = -(2**63)
ROOT = Path(__file__).resolve().parents[2]
PORT = field("srcPort")
MAYBE = null_if_zero(PORT)
HUGE = call(Op.SHIFT_LEFT, field("ttl"), number(54))  # some hundreds of them do not fit into int64
FLOAT = call(Op.TO_FLOAT, MAYBE, kind=Kind.FLOAT)

ALL_FOLDS = grouped(
    (named("srcIP"), Named("odd", call(Op.FLOOR_DIV, PORT, call(Op.MOD, PORT, number(2)), nullable=True))),
    (
        fold(FoldOp.ADD, number(1), name="count"),
        fold(FoldOp.ADD, HUGE, name="huge"),
        fold(FoldOp.ADD, MAYBE, name="sum"),
        fold(FoldOp.ADD_WIDE, call(Op.SHIFT_RIGHT, HUGE, number(63)), HUGE, name="wide"),
        fold(FoldOp.ADD_FLOAT, FLOAT, call(Op.FLOAT_SUB, FLOAT, FLOAT, kind=Kind.FLOAT), name="float"),
        fold(FoldOp.MIN, MAYBE, name="min"),
        fold(FoldOp.MAX, field("destIP"), name="max"),
        fold(FoldOp.MIN, FLOAT, name="least"),
        fold(FoldOp.BIT_AND, MAYBE, name="and"),
        fold(FoldOp.BIT_OR, PORT, name="or"),
        fold(FoldOp.FIRST, field("ts"), field("_rank"), field("_position"), MAYBE, name="first"),
        fold(FoldOp.LAST, field("ts"), field("_rank"), field("_position"), field("destIP"), name="last"),
    ),
    where=call(Op.NE, field("destPort"), number(9), kind=Kind.BOOL),
    pane=Pane(SECOND, origin=SECOND // 4),
)
PLAIN = grouped((), (), name="plain")
DETAILED = grouped((named("srcIP"),), (), details=(named("srcPort"),), name="detailed")
UNEVEN = grouped(  # panes of one piece or two
    (named("srcIP"),),
    name="uneven",
    pane=Pane(SECOND // 2, SECOND // 4, steps=((Op.MUL, 2), (Op.ADD, 1), (Op.FLOOR_DIV, 3))),
)
LEAPING = grouped(  # pieces of panes whose numbers are 1 apart or 2
    (named("srcIP"),),
    name="leaping",
    pane=Pane(SECOND // 2, -SECOND // 4, steps=((Op.MUL, 3), (Op.ADD, -1), (Op.FLOOR_DIV, 2))),
)
FIRSTS = grouped((named("srcIP"), named("srcPort")), name="firsts", at_once=True)
SELECTED = selection("_position", "srcPort")
NODES = (ALL_FOLDS, PLAIN, DETAILED, UNEVEN, LEAPING, FIRSTS, SELECTED)


@dataclass(frozen=True)
class Packet:
    ts: int
    source: int
    dest: int
    ports: tuple[int, int]
    ttl: int

    @property
    def frame(self) -> bytes:
        if self.dest < 3:
            head = struct.pack(">BBHHHBBHII", 0x45, 0, 24, 0, 0, self.ttl, 17, 0, self.source, self.dest)
            return b"\0" * 12 + b"\x08\0" + head + struct.pack(">HH", *self.ports)
        ends = bytes([*[0] * 10, 255, 255]) + struct.pack(">I", self.source) + self.dest.to_bytes(16, "big")
        return (
            b"\0" * 12
            + b"\x86\xdd"
            + struct.pack(">IHBB", 6 << 28, 4, 17, self.ttl)
            + ends
            + struct.pack(">HH", *self.ports)
        )


packets = st.builds(
    Packet,
    ts=st.integers(0, 40).map(lambda quarter: quarter * SECOND // 4 + 17),
    source=st.integers(0, 12),
    dest=st.integers(0, 4),
    ports=st.tuples(st.sampled_from([0, 1, 2, 3, 40000]), st.sampled_from([9, 80])),
    ttl=st.sampled_from([0, 1, 255]),
)
configs = st.builds(
    lambda every, **rest: LowLevelConfig(**rest, flush_every=every if rest["flush"] is Flush.SLOW else 0),
    every=st.sampled_from([0, 0, 1, 7, 160]),
    slots=st.sampled_from([1, 2, 4, 16, 256]),
    flush=st.sampled_from(Flush),
    flush_within_ns=st.sampled_from([0, SECOND // 10, SECOND]),
    flush_panes=st.integers(1, 3),
    order=st.sampled_from(FlushOrder),
    output_rows=st.sampled_from([64, 100, 4096]),
)


def exact_lows(times: Sequence[int]) -> list[int]:
    """The greatest low-watermark before each packet that makes none late."""
    least, lows = FOREVER, []
    for ts in reversed(times):
        least = min(least, ts)
        lows.append(least)
    return lows[::-1]


def blocks(stream: Sequence[Packet], cuts: Sequence[int], lows: Sequence[int] | None = None) -> Iterator[FrameBlock]:
    lows = exact_lows([packet.ts for packet in stream]) if lows is None else lows
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    for start, end in pairwise(edges):
        part = stream[start:end]
        after = lows[end] if end < len(stream) else max(lows, default=LOWEST)
        times = [packet.ts for packet in part]
        yield block([packet.frame for packet in part], ts=times, low=lows[start:end], low_after=after)


def expected(node: Node, stream: Sequence[Packet], rank: int) -> Groups:
    reduction = node.reduction
    merged = Merged(reduction, {})
    for position, packet in enumerate(stream, 1):
        fields = decode(packet.frame, len(packet.frame), 1)
        fields |= {"ts": packet.ts, "_rank": rank, "_position": position}
        if reduction.where is not None and not evaluate(reduction.where, fields):
            continue
        keys = tuple(evaluate(item.expr, fields) for item in (*reduction.keys, *reduction.details))
        states: tuple[State, ...] = tuple(
            tuple(evaluate(lift, fields) for lift in item.lift) for item in reduction.folds
        )
        merged.add((reduction.pane.index(packet.ts), *keys), 1, states)
    return merged.groups


def started(config: LowLevelConfig, seed: int | None, build: Build = Build.FAST) -> SourceNodes:
    nodes = SourceNodes(NODES, stream="Main", rank=3, config=config, seed=seed, build=build)
    nodes.start()
    return nodes


class Audit:
    """Collects the output, and checks what is always true."""

    def __init__(self, nodes: SourceNodes, config: LowLevelConfig) -> None:
        self.nodes = nodes
        self.config = config
        self.rows: dict[str, list[np.ndarray[tuple[int, int], np.dtype[np.uint64]]]] = {node.name: [] for node in NODES}
        self.promised = {node.name: 2 * LOWEST for node in NODES}  # a pane may begin before the least time
        self.late: dict[str, Counter[int]] = {node.name: Counter() for node in NODES}
        self.panes = {node.name: node.reduction.pane for node in NODES}

    def take(self, outputs: Iterator[NodeOutput]) -> None:
        for output in outputs:
            pane, name = self.panes[output.node], output.node
            if len(output.rows):
                assert pane.start(int(output.rows[:, 1].view(np.int64).min())) >= self.promised[name], "after a promise"
            self.rows[name].append(output.rows)
            if output.progress is not None:
                promised = output.progress.promised_ns
                assert promised > self.promised[name]
                assert promised == FOREVER or pane.start(pane.index(promised)) == promised
                self.promised[name] = promised
                for granule, tuples in output.progress.late.items():
                    assert promised == FOREVER or pane.start(granule + 1) <= promised
                    self.late[name][granule] += tuples
        self.check()

    def check(self) -> None:
        nodes = self.nodes
        assert nodes.received == sum(nodes.skipped.values()) + nodes.decoded
        for name, counts in nodes.counts().items():
            assert nodes.decoded == counts.filtered + counts.late + counts.put_out + counts.resident
            residents = nodes.residents(name)
            assert counts.resident == int(residents[:, 2].sum())
            # Of a group that has left at once there may be no tuple left.
            assert counts.groups == len(residents) or (name == "firsts" and counts.groups > len(residents))
            if nodes.low_ns != LOWEST and len(residents):
                self.check_deadline(name, int(residents[:, 1].view(np.int64).min()))
            buffered = counts.put_out - sum(int(rows[:, 2].sum()) for rows in self.rows[name])
            assert buffered >= 0

    def check_deadline(self, name: str, oldest: int) -> None:
        """A resident's pane has not ended, or it still has time to leave."""
        pane = self.panes[name]
        patience = self.config.patience_ns(pane.length)
        assert self.nodes.low_ns == FOREVER or pane.start(oldest + 1) + patience > self.nodes.low_ns
        assert self.promised[name] <= pane.start(oldest)


@given(
    stream=st.lists(packets, max_size=200),
    cuts=st.lists(st.integers(0, 400), max_size=5),
    config=configs,
    seed=st.integers(0, 2**32),
    build=st.sampled_from(Build),
)
@settings(deadline=None, max_examples=100)
def test_merged_partials_are_the_groups(
    stream: list[Packet], cuts: list[int], config: LowLevelConfig, seed: int, build: Build
) -> None:
    if build is Build.CHECKED:
        config = replace(config, order=FlushOrder.ANY)  # of the other order one kernel is compiled in this build, below
    nodes = started(config, seed, build)
    audit = Audit(nodes, config)
    taken = 0
    for frames in blocks(stream, cuts):
        audit.take(nodes.take(frames))
        taken += len(frames)
        if config.order is FlushOrder.ANY:
            out = merged_rows(FIRSTS.reduction, audit.rows["firsts"])
            assert out.keys() == expected(FIRSTS, stream[:taken], 3).keys(), "a group's first tuple has left"
    audit.take(nodes.finish())
    for node in NODES[:-1]:
        assert merged_rows(node.reduction, audit.rows[node.name]) == expected(node, stream, 3)
        assert nodes.counts()[node.name].resident == 0
    positions = np.concatenate([rows[:, 3] for rows in audit.rows["rows"]]) if stream else []
    assert list(positions) == list(range(1, len(stream) + 1))
    assert set(audit.promised.values()) == {FOREVER}


@given(stream=st.lists(packets, max_size=200), config=configs, lag=st.integers(0, 3 * SECOND))
@settings(deadline=None, max_examples=80)
def test_late_tuples_are_counted_by_granule_and_never_merged(
    stream: list[Packet], config: LowLevelConfig, lag: int
) -> None:
    """As of a source that promises its newest time less a lag, whatever comes then."""
    lows, newest = [], 0
    for packet in stream:
        lows.append(newest - lag)
        newest = max(newest, packet.ts)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    for frames in blocks(stream, [100, 200], lows):
        audit.take(nodes.take(frames))
    audit.take(nodes.finish())
    for node in NODES[:-1]:
        pane = node.reduction.pane
        merged = merged_rows(node.reduction, audit.rows[node.name])
        late, on_time = Counter[int](), Counter[int]()
        for packet, low in zip(stream, lows, strict=True):
            if node is not ALL_FOLDS or packet.ports[1] != 9:
                granule = pane.index(packet.ts)
                (late if pane.start(granule + 1) <= low else on_time)[granule] += 1
        assert audit.late[node.name] == late
        assert Counter(dict.fromkeys(on_time, 0)) + merged_tuples(merged) == on_time


@given(
    stream=st.lists(packets, max_size=200).map(lambda stream: sorted(stream, key=lambda packet: packet.ts)),
    cuts=st.lists(st.integers(0, 400), max_size=5),
    config=configs.map(lambda config: replace(config, order=FlushOrder.PRESERVED)),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=80)
def test_preserved_order_is_that_of_the_panes(
    stream: list[Packet], cuts: list[int], config: LowLevelConfig, seed: int
) -> None:
    nodes = started(config, seed)
    audit = Audit(nodes, config)
    for frames in blocks(stream, cuts):
        audit.take(nodes.take(frames))
    audit.take(nodes.finish())
    for node in NODES[:-1]:
        panes = [pane for rows in audit.rows[node.name] for pane in rows[:, 1].view(np.int64).tolist()]
        assert panes == sorted(panes)


@pytest.mark.slow
def test_preserved_order_stays_within_its_arrays() -> None:
    stream = [Packet(place * SECOND // 40, place % 13, 0, (place % 3, 80), 1) for place in range(800)]
    config = LowLevelConfig(slots=4, order=FlushOrder.PRESERVED, output_rows=64)
    nodes = SourceNodes([PLAIN], stream="Main", config=config, build=Build.CHECKED)
    nodes.start()
    outputs = [output for frames in blocks(stream, [100]) for output in nodes.take(frames)]
    rows = [output.rows for output in [*outputs, *nodes.finish()]]
    assert merged_rows(PLAIN.reduction, rows) == expected(PLAIN, stream, 0)


def merged_tuples(groups: Groups) -> Counter[int]:
    tuples = Counter[int]()
    for (pane, *_), (count, _) in groups.items():
        assert isinstance(pane, int)
        tuples[pane] += count
    return tuples


@pytest.mark.parametrize("flush", Flush)
def test_groups_that_all_collide_are_still_right(flush: Flush) -> None:
    """One slot: every other group evicts; within the output buffer that there is."""
    stream = [Packet(place % 8 * SECOND // 4, place % 7, place % 5, (place % 3, 80), 255) for place in range(5000)]
    config = LowLevelConfig(slots=1, flush=flush, output_rows=64)
    nodes = started(config, None)
    audit = Audit(nodes, config)
    for frames in blocks(stream, [1, 63, 64, 65, 3000]):
        audit.take(nodes.take(frames))
    audit.take(nodes.finish())
    for node in NODES[:-1]:
        assert merged_rows(node.reduction, audit.rows[node.name]) == expected(node, stream, 3)
    counts = nodes.counts()["detailed"]
    assert counts.evicted + counts.straight > 4000
    assert counts.overfull == 0


def test_what_leaves_because_its_sum_would_not_fit_is_told_apart() -> None:
    """One group in a table that has room."""
    stream = [Packet(place, 1, 1, (3, 80), 255) for place in range(3000)]
    config = LowLevelConfig(slots=64)
    nodes = started(config, None)
    audit = Audit(nodes, config)
    for frames in blocks(stream, [1000]):
        audit.take(nodes.take(frames))
    audit.take(nodes.finish())
    assert merged_rows(ALL_FOLDS.reduction, audit.rows[ALL_FOLDS.name]) == expected(ALL_FOLDS, stream, 3)
    counts = nodes.counts()
    assert counts[ALL_FOLDS.name].evicted == counts[ALL_FOLDS.name].overfull > 3
    assert counts[DETAILED.name].evicted == 0


def test_panes_far_apart_do_not_confuse_the_count_of_residents() -> None:
    """Panes that share an entry of the resident count; the newer one's tuples go straight out."""
    apart = [Packet(place % 2 * 256 * SECOND, place, 0, (1, 80), 1) for place in range(64)]
    config = LowLevelConfig(slots=1024)
    nodes = started(config, 5)
    audit = Audit(nodes, config)
    for frames in blocks(apart, [10]):
        audit.take(nodes.take(frames))
    assert nodes.counts()["plain"].straight > 0
    audit.take(nodes.finish())
    assert merged_rows(PLAIN.reduction, audit.rows["plain"]) == expected(PLAIN, apart, 3)


def many(pane: int, groups: int) -> list[Packet]:
    return [Packet(pane * SECOND + place, place, 0, (1, 80), 1) for place in range(groups)]


def steadily(nodes: SourceNodes, audit: Audit, pane: int, steps: int) -> Iterator[int]:
    """One packet of one group in each of the steps of a pane; the residents of the detailed node after each."""
    for step in range(steps):
        ts = (pane * steps + step) * SECOND // steps
        audit.take(nodes.take(block([Packet(ts, 7777, 0, (1, 80), 1).frame], ts=[ts], low=[ts], low_after=ts)))
        yield nodes.counts()["detailed"].groups


def test_slow_flush_spreads_over_its_time() -> None:
    config = LowLevelConfig(slots=1 << 14, flush=Flush.SLOW, flush_within_ns=SECOND // 2)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    audit.take(nodes.take(next(blocks(many(0, 3000), []))))
    before = nodes.counts()["detailed"].groups
    left = list(steadily(nodes, audit, 1, 100))
    drops = -np.diff([before, *left])
    assert max(drops) < before / 25, "no step does much more than its share"
    assert 1000 < left[25] < 2000
    assert left[51] == 1
    assert audit.promised["detailed"] == SECOND


def test_slow_flush_by_packets_spreads_what_they_are_too_few_for() -> None:
    """One slot for each hundred packets, and a hundred of them: the last pane's time sees to the rest."""
    config = LowLevelConfig(slots=1 << 14, flush_every=100, flush_panes=2)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    audit.take(nodes.take(next(blocks(many(0, 3000), []))))
    before = nodes.counts()["detailed"].groups
    assert all(left > before - 5 for left in steadily(nodes, audit, 1, 50))
    left = [before, *steadily(nodes, audit, 2, 50)]
    assert max(-np.diff(left)) < before / 25, "no step does much more than its share"
    assert left[-1] == 1
    assert audit.promised["detailed"] == 2 * SECOND


def test_lazy_flush_waits_for_collisions_and_for_its_last_pane() -> None:
    config = LowLevelConfig(slots=1 << 14, flush=Flush.LAZY, flush_panes=2)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    audit.take(nodes.take(next(blocks(many(0, 3000), []))))
    before = nodes.counts()["detailed"].groups
    assert all(left > before - 5 for left in steadily(nodes, audit, 1, 50))
    assert audit.promised["detailed"] == 0
    *_, left = steadily(nodes, audit, 2, 50)
    assert left < before / 10
    assert next(steadily(nodes, audit, 3, 50)) == 1
    assert audit.promised["detailed"] == 3 * SECOND


def test_full_flush_happens_at_the_end_of_the_pane() -> None:
    config = LowLevelConfig(slots=1 << 14, flush=Flush.FULL)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    audit.take(nodes.take(next(blocks(many(0, 3000), []))))
    assert next(steadily(nodes, audit, 1, 50)) == 1
    assert audit.promised["detailed"] == SECOND


@pytest.mark.parametrize("flush", [Flush.SLOW, Flush.LAZY])
def test_in_a_lull_the_clock_flushes(flush: Flush) -> None:
    config = LowLevelConfig(slots=1 << 14, flush=flush)
    nodes = started(config, 1)
    audit = Audit(nodes, config)
    audit.take(nodes.take(next(blocks(many(0, 3000), []))))
    ts = SECOND
    audit.take(nodes.take(block([Packet(ts, 1, 0, (1, 80), 1).frame], ts=[ts], low=[ts], low_after=ts)))
    patience = SECOND if flush is Flush.SLOW else 2 * SECOND
    for now in range(1000 * SECOND, 1000 * SECOND + patience, SECOND // 10):
        audit.take(nodes.heartbeat(now))
        assert audit.promised["detailed"] == 0
    audit.take(nodes.heartbeat(1000 * SECOND + patience))
    assert audit.promised["detailed"] == SECOND
    assert nodes.counts()["detailed"].groups == 1


def test_an_empty_block_may_bring_progress() -> None:
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    audit = Audit(nodes, LowLevelConfig(flush=Flush.FULL))
    audit.take(nodes.take(next(blocks(many(0, 10), []))))
    audit.take(nodes.take(block([], low_after=5 * SECOND)))
    assert audit.promised["plain"] == 5 * SECOND
    audit.take(nodes.take(block([], low_after=FOREVER)))
    assert set(audit.promised.values()) == {FOREVER}


def told(outputs: Iterable[NodeOutput], name: str = "plain") -> NodeProgress | None:
    """The one progress of a node; None: there is none."""
    found = [output.progress for output in outputs if output.node == name and output.progress is not None]
    assert len(found) < 2
    return found[0] if found else None


def test_dropped_frames_stand_against_each_granule_that_they_may_be_of() -> None:
    """However many these are, those just before the drop among them."""
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    low, now = 3 * SECOND + 1, 90_000 * SECOND
    list(nodes.take(block([], low_after=low)))
    outputs = list(nodes.take(replace(block([], low_after=low), dropped=12, taken_ns=now)))
    assert not [output.progress for output in outputs if output.progress is not None]
    outputs = list(nodes.take(replace(block([], low_after=now - SECOND), dropped=1, taken_ns=now + SECOND)))
    for node in NODES[:-1]:
        pane, progress = node.reduction.pane, told(outputs, node.name)
        assert progress is not None
        touched = Taint(pane.index(low), pane.index(now + SECOND) + 1, ("dropped",), dropped=13)
        assert progress.taints == (touched,), "two runs that meet are one"
    assert told(nodes.take(block([], low_after=now))).taints == ()  # type: ignore[union-attr]  # it is said once


def test_what_a_source_says_against_a_time_is_said_of_its_granules() -> None:
    """Of those too that were promised before."""
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    list(nodes.take(block([], low_after=4 * SECOND)))
    flaws = (
        Flaw(Reason.CLOCK, 2 * SECOND, 4 * SECOND), Flaw(Reason.NOT_COVERED, 4 * SECOND, 5 * SECOND - 1),
        Flaw(Reason.CLOCK, 8 * SECOND, FOREVER), Flaw(Reason.GAP, LOWEST, LOWEST),
    )  # fmt: skip
    progress = told(nodes.take(replace(block([], low_after=10 * SECOND), flaws=flaws)))
    assert progress is not None
    assert progress.taints == (
        Taint(2, 5, ("clock",)), Taint(4, 5, ("not-covered",)), Taint(8, FOREVER, ("clock",)),
        Taint(LOWEST, PLAIN.reduction.pane.index(LOWEST) + 1, ("gap",)),
    )  # fmt: skip


def test_of_very_many_flaws_none_stays_untold_and_few_take_room() -> None:
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    list(nodes.take(block([], low_after=0)))
    flaws = tuple(Flaw(Reason.CLOCK, at * SECOND, at * SECOND) for at in range(0, 10_000, 2))
    progress = told(nodes.take(replace(block([], low_after=SECOND), flaws=flaws)))
    assert progress is not None
    assert len(progress.taints) <= 256
    assert all(any(run.start <= at < run.stop for run in progress.taints) for at in range(0, 10_000, 2))


def test_late_tuples_of_very_many_granules_do_not_wait_for_a_promise_that_may_never_come() -> None:
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    low = 10_000 * SECOND
    list(nodes.take(block([], low_after=low)))
    behind = [Packet(at * SECOND, 1, 0, (1, 80), 1) for at in range(5_000)]
    frames = block(
        [packet.frame for packet in behind], ts=[packet.ts for packet in behind], low=[low] * 5_000, low_after=low
    )
    assert told(nodes.take(frames)) == NodeProgress(low, dict.fromkeys(range(5_000), 1))


@pytest.mark.parametrize("how", ["stop", "heartbeat", "let go"])
def test_what_was_noted_last_is_told_though_nothing_more_is_promised(how: str) -> None:
    nodes = started(LowLevelConfig(flush=Flush.FULL), 1)
    list(nodes.take(block([], low_after=5 * SECOND)))
    behind = [Packet(2 * SECOND + at, 1, 0, (1, 80), 1) for at in range(7)]
    frames = block(
        [packet.frame for packet in behind], ts=[packet.ts for packet in behind], low=[5 * SECOND] * 7,
        low_after=5 * SECOND,
    )  # fmt: skip
    flaw = Flaw(Reason.CLOCK, 3 * SECOND, 9 * SECOND)
    assert told(nodes.take(replace(frames, flaws=(flaw,), dropped=2, taken_ns=6 * SECOND))) is None
    ways = {
        "stop": lambda: nodes.finish(nodes.low_ns),
        "heartbeat": lambda: nodes.heartbeat(1),
        "let go": lambda: nodes.let_go([]),
    }
    progress = told(ways[how]())
    assert progress == NodeProgress(
        5 * SECOND, {2: 7}, (Taint(5, 7, ("dropped",), dropped=2), Taint(3, 10, ("clock",)))
    )
    assert told(ways[how]()) is None


def test_times_at_the_ends_of_int64() -> None:
    ends = [Packet(ts, 1, 0, (1, 80), 1) for ts in (LOWEST, LOWEST + 1, -1, 0, FOREVER - 1, FOREVER)]
    for flush in Flush:
        config = LowLevelConfig(flush=flush)
        nodes = started(config, 1)
        audit = Audit(nodes, config)
        for frames in blocks(ends, [3]):
            audit.take(nodes.take(frames))
        audit.take(nodes.finish())
        for node in NODES[:-1]:
            assert merged_rows(node.reduction, audit.rows[node.name]) == expected(node, ends, 3)


def test_memory_that_is_touched_is_there_before_the_first_packet() -> None:
    """In a process of its own, which has no memory that something else has left; without, next to nothing is there."""
    _, plain, touched = (  # the first one compiles
        int(subprocess.run([sys.executable, "-c", GROWTH, of], cwd=ROOT, capture_output=True, check=True).stdout)
        for of in ("", "", "touched")
    )
    assert touched - plain > 8 * slot_words(RowForm(DETAILED.reduction).words) << 19  # half of a table


def test_two_addresses_a_count_and_a_sum_fill_a_cache_line() -> None:
    pairs = grouped((named("srcIP"), named("destIP")), (fold(FoldOp.ADD, field("len")),))
    assert slot_words(RowForm(pairs.reduction).words) == CACHE_LINE


GROWTH = """
import resource, sys
from pathlib import Path
from lowlevel.node import SourceNodes
from tests.lowlevel.test_table import DETAILED

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

nodes = SourceNodes([DETAILED], stream="Main")
before = resident()
nodes.start(touched=bool(sys.argv[1]))
print(resident() - before)
"""


def test_sums_of_doubles_do_not_stop_a_flush() -> None:
    """What a merge computes and what is left to flush are apart: a sum of 0.0 is not taken for nothing left."""
    nothing = Literal(0.0, Kind.FLOAT)
    zero = call(Op.FLOAT_MUL, call(Op.TO_FLOAT, field("srcPort"), kind=Kind.FLOAT), nothing, kind=Kind.FLOAT)
    node = grouped((named("srcIP"),), (fold(FoldOp.ADD_FLOAT, zero, nothing),), pane=Pane(10 * SECOND))
    nodes = SourceNodes([node], stream="Main", config=LowLevelConfig(slots=256), seed=1)
    nodes.start()
    packets = [(number, 0) for number in range(8)] + [(100, 10_100), (100, 10_200), (101, 11_500)]
    for source, at_ms in packets:
        ts = at_ms * SECOND // 1000
        one = Packet(ts=ts, source=source, dest=0, ports=(7, 9), ttl=1)
        list(nodes.take(block([one.frame], ts=[ts], low=[ts], low_after=ts)))
    counts = nodes.counts()["groups"]
    assert (counts.flushed + counts.evicted, counts.resident) == (8, 3)
