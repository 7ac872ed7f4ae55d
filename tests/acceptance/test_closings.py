"""PUNCTUATE ON: rows of closed connections leave before their window ends, and are those of the definitions; what comes
of a connection after its promise is late, and said to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowlevel.closed_connections import Watcher
from lowlevel.config import Flush, LowLevelConfig
from lowlevel.node import SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.app.capture.frame_filter import frame_filter
from lowmark.query.compile import compile_query
from lowmark.query.expr.expressions import fields
from lowmark.query.options import Late
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.wire.frames import FrameBlock
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.verdicts import Complete, Correction, Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN, parse_time
from tests.acceptance.bucketrun import shown_rows
from tests.acceptance.command import lowmark
from tests.naive.compare import differences
from tests.naive.evaluate import rows_of
from tests.naive.frames import Spec, frame, write_pcap
from tests.naive.packets import decode_frames

NS = 10**9
START = 1_714_564_800 * NS
FIN, SYN, RST, ACK = 1, 2, 4, 16
CONNECTIONS = "SELECT conn, count(*) AS n, sum(len) AS bytes [RANGE 60 s, SLIDE 60 s, WA ts] FROM A GROUP BY conn"
TUPLES = (
    "SELECT srcIP, srcPort, destIP, destPort, proto, count(*) AS n, max(ts) AS last [RANGE 60 s, SLIDE 60 s, WA ts] "
    "FROM A GROUP BY srcIP, srcPort, destIP, destPort, proto HAVING count(*) > 1"
)
SLIDING = "SELECT conn, count(*) AS n, max(len) AS most [RANGE {} s, SLIDE {} s, WA ts] FROM A GROUP BY conn"
PLAIN = {
    "conn": CONNECTIONS, "tuple": TUPLES, "often": SLIDING.format(60, 20), "seldom": SLIDING.format(50, 20),
}  # fmt: skip
_DIRECTION = "srcIP, destIP, srcPort, destPort, proto"
PUNCTUATED = {
    form: f"{text} PUNCTUATE ON {_DIRECTION if form == 'tuple' else 'conn LINGER 2 s'}" for form, text in PLAIN.items()
}
SLIDE = {"conn": (60, 60), "tuple": (60, 60), "often": (60, 20), "seldom": (50, 20)}
"""Seconds of a window, and between two."""


def at(seconds: float) -> int:
    return START + int(seconds * NS)


def packet(seconds: float, client: int, flags: int = ACK, back: bool = False, six: bool = False) -> Spec:
    """Of the connection of a client with the server; `back`: from the server."""
    ends = (f"2001:db8::{client + 1}", "2001:db8::ffff") if six else (f"10.0.0.{client + 1}", "10.0.1.1")
    ports = (40000 + client, 443)
    source, destination = ends[::-1] if back else ends
    return Spec(
        ts=at(seconds), source=source, destination=destination, proto=6, ports=ports[::-1] if back else ports,
        flags=flags,
    )  # fmt: skip


def beat(seconds: float) -> Spec:
    """Of traffic that goes on all the time."""
    return Spec(ts=at(seconds), source="10.9.9.9", destination="10.9.9.8")


def blocks(specs: Sequence[Spec], cuts: Sequence[int]) -> Iterator[FrameBlock]:
    """Frames in order of time, in blocks that end before these positions."""
    edges = sorted({0, *(cut for cut in cuts if cut < len(specs)), len(specs)})
    low = INT64_MIN
    for start, stop in pairwise(edges):
        frames = [frame(spec) for spec in specs[start:stop]]
        lengths = [len(each.data) for each in frames]
        ts = np.array([each.ts for each in frames], np.int64)
        before = np.maximum.accumulate(np.concatenate((np.array([low]), ts)))
        low = int(before[-1])
        yield FrameBlock(
            np.frombuffer(b"".join(each.data for each in frames), np.uint8).copy(),
            np.cumsum([0, *lengths[:-1]]), np.array(lengths), np.array([each.length for each in frames]), ts,
            np.ones(len(frames), np.int32), before[:-1].copy(), low if stop < len(specs) else FOREVER,
        )  # fmt: skip


@dataclass
class Seen:
    """What readers of the results see."""

    rows: list[dict[str, object]] = field(default_factory=list)
    early: list[tuple[int, int]] = field(default_factory=list)  # step at which such a row came, and its window
    completes: list[Complete] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)

    def take(self, step: int, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, ResultRows):
                self.rows += shown_rows(output)
                self.early += [(step, output.window or 0)] * len(output.rows) * output.early
            elif isinstance(output, Complete):
                self.completes.append(output)
            elif isinstance(output, Correction):
                self.corrections.append(output)

    def check_counts(self) -> None:
        assert sum(complete.rows for complete in self.completes) == len(self.rows)
        assert all(complete.merged + complete.late >= complete.promised for complete in self.completes)

    @property
    def reasons(self) -> set[Reason]:
        return {reason for complete in self.completes for reason in complete.verdict.reasons}


def records_of(
    plan: QueryPlan, name: str, rank: int, specs: Sequence[Spec], cuts: Sequence[int], config: LowLevelConfig
) -> Iterator[list[tuple[int, Record]]]:
    """The records of a source with the real kernel, block by block: partition and record."""
    nodes = SourceNodes(plan.stage.nodes, stream="A", rank=rank, config=config, seed=1)
    nodes.start()
    outboxes = {
        node.name: Outbox(node, Origin(plan.stage.fingerprint, name, 0, node.name), plan.stage.buckets)
        for node in plan.stage.nodes
    }
    for block in blocks(specs, cuts):
        ending = Ending.END if block.low_after == FOREVER else Ending.NONE
        found: list[tuple[int, Record]] = []
        for output in nodes.take(block):
            for partition, record in outboxes[output.node].take(output, ending):
                if isinstance(record, Rows):
                    found.append((partition, Batch(record.origin, record.sequence, record.rows, record.tuples)))
                else:
                    wire = encode(record)
                    assert decode(wire.headers, wire.value) == record
                    found.append((partition, record))
        yield found


def run(
    text: str, sources: Sequence[Sequence[Spec]], cuts: Sequence[int], random: Random, *, buckets: int = 1,
    config: LowLevelConfig | None = None, stored: bool = True, in_turn: bool = False,
    late: Late = Late.COUNT,
) -> Seen:  # fmt: skip
    """Sources in random interleaving or in turn; a step is a block of one of them. Buckets begin anew from their state
    at random."""
    plan = compile_query(text, streams={"A": len(sources)}, buckets=buckets, late=late)
    names = tuple(f"s{rank}" for rank in range(len(sources)))
    lanes = [
        records_of(plan, name, rank, specs, cuts, config or LowLevelConfig(slots=64))
        for rank, (name, specs) in enumerate(zip(names, sources, strict=True))
    ]
    stores, seen, roster = [MemoryByteStore() for _ in range(buckets)], Seen(), Roster.of({"A": names})
    states = [PiecewiseState(store, plan.stage.fingerprint) for store in stores]
    drivers = [BucketDriver(plan.stage, (plan,), bucket, states[bucket], roster, 1) for bucket in range(buckets)]
    waiting, step = [iter(lane) for lane in lanes], 0
    while waiting:
        lane = waiting[step % len(waiting)] if in_turn else random.choice(waiting)
        records = next(lane, None)
        if records is None:
            waiting.remove(lane)
            continue
        for partition, record in records:
            drivers[partition].take(record, Arrival(step))
        for bucket in [*range(buckets)] * (2 if plan.exchanges else 1):
            outputs = drivers[bucket].flush().outputs
            seen.take(step, outputs)
            for sent in outputs:
                if isinstance(sent, Forward):
                    drivers[sent.partition].take(sent.record, Arrival(step))
        for bucket in range(buckets):
            states[bucket].commit()
            if stored and random.random() < 0.5:
                states[bucket] = PiecewiseState(stores[bucket], plan.stage.fingerprint)
                drivers[bucket] = BucketDriver(plan.stage, (plan,), bucket, states[bucket], roster, 1)
        step += 1
    return seen


def expected(text: str, sources: Sequence[Sequence[Spec]]) -> list[dict[str, object]]:
    packets = [decode_frames("A", rank, map(frame, specs))[0] for rank, specs in enumerate(sources)]
    return rows_of(text, {"A": packets})


def _end(row: dict[str, object]) -> int:
    return parse_time(str(row["window_end"]))


def every_second(specs: Sequence[Spec]) -> list[int]:
    return [place for place in range(1, len(specs)) if specs[place].ts // NS != specs[place - 1].ts // NS]


def conversation(client: int, begin: float, end: float, closing: str = "fin", six: bool = False) -> list[Spec]:
    specs = [packet(begin, client, SYN, six=six), packet(begin + 0.1, client, SYN | ACK, True, six)]
    specs += [packet(begin + 0.2, client, six=six), packet(end - 0.3, client, back=True, six=six)]
    match closing:
        case "fin":
            specs += [packet(end, client, FIN | ACK, six=six), packet(end + 0.1, client, FIN | ACK, True, six)]
            specs += [packet(end + 0.2, client, six=six)]
        case "half":
            specs += [packet(end, client, FIN | ACK, six=six)]
        case "rst":
            specs += [packet(end, client, RST, True, six)]
    return specs


def in_order(*parts: Sequence[Spec]) -> list[Spec]:
    return sorted((spec for part in parts for spec in part), key=lambda spec: spec.ts)


BEATS = [beat(seconds) for seconds in range(130)]


@pytest.mark.parametrize("flush", Flush)
def test_a_row_leaves_when_its_connection_has_been_closed_for_a_while(flush: Flush) -> None:
    specs = in_order(
        BEATS, conversation(1, 2, 5), conversation(2, 3, 7, six=True), conversation(3, 4, 9, "rst"),
        conversation(4, 1, 5, "half"), conversation(5, 61, 70),
    )  # fmt: skip
    text = PUNCTUATED["conn"]
    seen = run(text, [specs], every_second(specs), Random(1), config=LowLevelConfig(slots=64, flush=flush))
    seen.check_counts()
    assert not differences(seen.rows, expected(CONNECTIONS, [specs]))
    assert not seen.reasons
    first = min(step for step, _ in seen.early)
    assert [step - first for step, _ in seen.early] == [
        0,
        3,
        4,
        66,
    ]  # at the first low-watermark 2 s behind the last closing packet
    assert first <= 9
    windows = [complete for complete in seen.completes if complete.merged]
    assert [complete.rows for complete in windows] == [5, 2, 1]
    assert all(complete.merged == complete.promised for complete in windows)


@pytest.mark.parametrize("form", ["often", "seldom"])
@pytest.mark.parametrize("stored", [False, True])
def test_rows_of_all_sliding_windows_that_hold_a_connection_leave_when_it_has_closed(form: str, stored: bool) -> None:
    """The second one lies in panes of several windows, and one before them has closed before."""
    specs = in_order(BEATS, conversation(1, 2, 5), conversation(2, 15, 47), conversation(3, 30, 90, ""))
    seen = run(PUNCTUATED[form], [specs], every_second(specs), Random(1), stored=stored)
    seen.check_counts()
    assert not differences(seen.rows, expected(PLAIN[form], [specs]))
    assert not seen.reasons
    size, slide = SLIDE[form]
    by_step: dict[int, list[int]] = {}
    for step, window in seen.early:
        by_step.setdefault(step, []).append((window + 1) * slide - START // NS)
    ends = range(slide, 200, slide)
    assert [*by_step.values()] == [
        [end for end in ends if end - size <= 5],
        [end for end in ends if end > 49 and end - size <= 47],
    ]


def test_a_connection_whose_last_packets_lie_in_a_later_slide_leaves_with_its_windows() -> None:
    """Its promise ends with the windows of the closing packet."""
    ends = [packet(19.9, 1, FIN), packet(19.95, 1, FIN, back=True), packet(20.1, 1)]
    specs = in_order(BEATS, conversation(1, 2, 12, ""), ends)
    seen = run(PUNCTUATED["often"], [specs], every_second(specs), Random(1))
    assert not seen.early
    assert not seen.reasons
    assert not differences(seen.rows, expected(PLAIN["often"], [specs]))


def test_a_promise_meets_a_window_whose_groups_have_all_left() -> None:
    """Of later connections there are no rows, but they are promised, too."""
    later = (conversation(client, 10 * client, 10 * client + 2, six=True) for client in (2, 3, 4))
    specs = in_order(conversation(1, 10, 12), *later)
    plain = CONNECTIONS.replace("FROM A", "FROM A WHERE ip_version = 4")
    seen = run(f"{plain} PUNCTUATE ON conn", [specs], every_second(specs), Random(1))
    seen.check_counts()
    assert len(seen.early) == 1
    assert not differences(seen.rows, expected(plain, [specs]))
    assert not seen.reasons


def test_each_direction_closes_by_itself() -> None:
    specs = in_order(BEATS[:60], conversation(1, 2, 5), conversation(4, 1, 5, "half"))
    seen = run(PUNCTUATED["tuple"], [specs], every_second(specs), Random(1))
    seen.check_counts()
    assert len(seen.early) == 3
    assert not differences(seen.rows, expected(TUPLES, [specs]))


def test_a_connection_that_comes_again_in_a_later_window_is_untouched() -> None:
    specs = in_order(BEATS, conversation(1, 2, 5), conversation(1, 64, 66))
    seen = run(PUNCTUATED["conn"], [specs], every_second(specs), Random(1))
    assert not seen.reasons
    assert not differences(seen.rows, expected(CONNECTIONS, [specs]))


def test_a_connection_that_opens_again_before_the_promise_is_not_promised() -> None:
    specs = in_order(BEATS, conversation(1, 2, 5), conversation(1, 6, 50, ""))
    seen = run(PUNCTUATED["conn"], [specs], every_second(specs), Random(1))
    assert not seen.reasons
    assert not seen.early
    assert not differences(seen.rows, expected(CONNECTIONS, [specs]))


@pytest.mark.parametrize("stored", [False, True])
def test_what_comes_after_the_promise_is_late_and_said_to_be(stored: bool) -> None:
    again = conversation(1, 20, 30)
    specs = in_order(BEATS, conversation(1, 2, 5), again)
    seen = run(PUNCTUATED["conn"], [specs], every_second(specs), Random(1), stored=stored)
    seen.check_counts()
    assert not differences(seen.rows, expected(CONNECTIONS, [in_order(BEATS, conversation(1, 2, 5))]))
    first = next(complete for complete in seen.completes if complete.merged)
    assert first.verdict.reasons == {Reason.PUNCTUATED}
    assert first.late == len(again)
    assert first.merged + first.late == first.promised
    assert all(complete.verdict.exact for complete in seen.completes if complete is not first)


@pytest.mark.parametrize("stored", [False, True])
def test_what_a_row_that_leaves_early_overflows_is_said_of_its_window(stored: bool) -> None:
    """HAVING drops it long before the window closes."""
    specs = in_order(BEATS[:120], conversation(1, 2, 5))
    text = f"{CONNECTIONS} HAVING count(*) < 50 AND count(*) * 3000000000000000000 <> 1 PUNCTUATE ON conn"
    seen = run(text, [specs], every_second(specs), Random(1), stored=stored)
    reasons = [complete.verdict.reasons for complete in seen.completes if complete.merged]
    assert reasons == [{Reason.OVERFLOW}, set()]


def test_the_filter_of_the_operating_system_lets_closing_packets_through() -> None:
    """The FIN of a server does not go to its port."""
    asked = CONNECTIONS.replace("FROM A", "FROM A WHERE destPort = 443")
    kept = [frame_filter(compile_query(text).stage.nodes)[0] for text in (asked, f"{asked} PUNCTUATE ON conn")]
    assert [None if keep is None else {*fields(keep)} for keep in kept] == [
        {"destPort"}, {"destPort", "srcPort", "proto", "tcp_flags"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "promised"),
    [("", 3), ("WHERE srcPort = 40001", 1), ("WHERE destPort > 40001 AND len > 1", 2), ("WHERE proto = 17", 0)],
)
def test_connections_that_where_leaves_out_are_not_promised(where: str, promised: int) -> None:
    """The FIN of a server goes the other way than the packets that are counted."""
    specs = in_order(BEATS, *(conversation(client, client, client + 5) for client in range(1, 4)))
    plain = CONNECTIONS.replace("FROM A", f"FROM A {where}")
    (node,) = compile_query(f"{plain} PUNCTUATE ON conn", streams={"A": 1}, buckets=1).stage.nodes
    nodes = SourceNodes((node,), stream="A", config=LowLevelConfig(slots=64))
    nodes.start()
    outputs = [output for block in blocks(specs, every_second(specs)) for output in nodes.take(block)]
    assert sum(len(closed.values) for output in outputs for closed in output.closed) == promised
    seen = run(f"{plain} PUNCTUATE ON conn", [specs], every_second(specs), Random(1))
    assert not differences(seen.rows, expected(plain, [specs]))
    assert not seen.reasons


@pytest.mark.parametrize("taken_over", [(), ("conn",)])
def test_nodes_that_take_over_know_what_has_begun_to_close(
    taken_over: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr("lowlevel.node.Watcher", lambda *given: made.append(given) or Watcher(*given))
    specs = in_order(BEATS[:20], conversation(1, 2, 5))
    (node,) = compile_query(PUNCTUATED["conn"], streams={"A": 1}, buckets=1).stage.nodes
    (other,) = compile_query(PUNCTUATED["tuple"], streams={"A": 1}, buckets=1).stage.nodes
    both = replace(node, name="conn"), replace(other, name="tuple")
    old, new = (SourceNodes(of, stream="A", config=LowLevelConfig(slots=64)) for of in (both[:1], both[::-1]))
    old.start()
    new.start(taken_over=taken_over)
    assert len(made) == 3 - len(taken_over), "tables that are brought are not made"
    parts = list(blocks(specs, every_second(specs)))
    before = [output for part in parts[:6] for output in old.take(part)]
    assert not any(output.closed for output in before)
    before += old.let_go(())
    new.take_over(old)
    after = [output for part in parts[6:] for output in new.take(part)]
    told = [(output.node, len(closed.values)) for output in after for closed in output.closed]
    assert told == [("conn", 1)], "the other node has seen none of it begin to close"
    after += new.finish()
    assert sum(int(output.rows[:, 2].sum()) for output in (*before, *after) if output.node == "conn") == len(specs)


def test_a_correction_says_what_would_have_been() -> None:
    again = conversation(1, 20, 30)
    specs = in_order(BEATS, conversation(1, 2, 5), again)
    seen = run(PUNCTUATED["conn"], [specs], every_second(specs), Random(1), late=Late.CORRECT)
    (correction,) = seen.corrections
    assert correction.tuples == len(again)
    (delta,) = correction.deltas
    (row,) = [row for row in seen.rows if row["conn.aIP"] == "10.0.0.2"]
    (whole,) = [row for row in expected(CONNECTIONS, [specs]) if row["conn.aIP"] == "10.0.0.2"]
    assert [int(row[name]) + int(delta[name]) for name in ("n", "bytes")] == [whole["n"], whole["bytes"]]


def test_every_source_of_the_stream_promises_it() -> None:
    both = conversation(1, 2, 5)
    one, two = in_order(BEATS, both, conversation(2, 2, 5)), in_order(BEATS, both)
    seen = run(PUNCTUATED["conn"], [one, two], every_second(one), Random(1), in_turn=True)
    first, *others = [step for step, _ in seen.early]
    assert first < 20
    assert min(others, default=100) > 90, "the second has not seen the other one, until it is past the window"
    assert not differences(seen.rows, expected(CONNECTIONS, [one, two]))
    assert not seen.reasons


JOINED = (
    "SELECT s.conn, s.ts AS begun, r.len FROM A [RANGE 1 minute, WA ts] AS s, A [RANGE 5 s, WA ts] AS r "
    "WHERE s.tcp_flags = 2 AND s.conn = r.conn"
)


def test_a_join_on_connections_is_punctuated_and_has_the_same_rows() -> None:
    plan = compile_query(f"{JOINED} PUNCTUATE ON conn", streams={"A": 1})
    join = plan.steps[0].plan
    assert isinstance(join, Join)
    assert join.punctuated is not None
    assert join.punctuated.promising == (0, 1)
    endings = ("rst", "fin", "fin")
    talks = (conversation(client, 2 * client, 2 * client + 5, endings[client % 3]) for client in range(9))
    specs = in_order(BEATS, *talks)
    seen = run(f"{JOINED} PUNCTUATE ON conn", [specs], every_second(specs), Random(3), buckets=2)
    assert len(seen.rows) > 40
    assert not differences(seen.rows, expected(JOINED, [specs]))
    assert not seen.reasons


@pytest.mark.parametrize("window", [(60, 60), (40, 20)])
def test_groups_behind_a_join_leave_when_their_connection_has_closed(window: tuple[int, int]) -> None:
    size, slide = window
    grouped = JOINED.replace(
        "s.conn, s.ts AS begun, r.len",
        f"s.conn, count(*) AS n, sum(r.len) AS bytes [RANGE {size} s, SLIDE {slide} s, WA r.ts]",
    )
    text = f"{grouped} GROUP BY s.conn"
    talks = [conversation(client, 2 * client, 2 * client + 5) for client in range(1, 5)]
    specs = in_order(BEATS, *talks, conversation(5, 70, 100, ""))
    seen = run(f"{text} PUNCTUATE ON conn", [specs], every_second(specs), Random(3), buckets=2)
    seen.check_counts()
    assert not differences(seen.rows, expected(text, [specs]))
    assert not seen.reasons
    assert max(step for step, _ in seen.early) < 30
    assert len(seen.early) == len(talks) * (size // slide)


@pytest.mark.parametrize("late", ["count", "emit"])
def test_the_audit_counts_each_late_packet_once(tmp_path: Path, late: str) -> None:
    """One packet comes after its connection was promised, one behind the low-watermark."""
    between = frame(beat(10))
    frames = [frame(spec) for spec in conversation(1, 2, 5, "rst")]
    frames += [between._replace(ts=at(10 + number / 10_000)) for number in range(40_000)]  # blocks end in between
    frames += [frame(spec) for spec in (packet(20, 1), beat(70), packet(3, 2))]
    path = write_pcap(tmp_path / "closed.pcap", frames)
    run = lowmark("query", "-r", str(path), "--disorder", "ordered", "--late", late, PUNCTUATED["conn"])
    assert f"{len(frames):,} packets, 0 filtered, 2 late" in " ".join(run.error.split())
    assert "lossy: late, punctuated" in run.error


_IN_TURN = """CREATE STREAM j AS
SELECT {} s.conn.aIP AS a, s.conn.aPort AS b, s.conn.bIP AS c, s.conn.bPort AS d, s.conn.proto AS e, s.len, r.ts AS at
FROM A AS s [RANGE 40 s], A AS r [RANGE 40 s] WHERE s.tcp_flags = 2 AND s.conn = r.conn AND s.vlan = r.vlan;
SELECT a, b, c, d, e, count(*) AS n [RANGE 60 s, SLIDE 60 s, WA at] FROM j GROUP BY a, b, c, d, e"""


@pytest.mark.parametrize("hint", ["", "/*+ bucket(s.vlan) */"])
def test_a_join_in_a_created_stream_uses_promises_and_passes_them_on(hint: str) -> None:
    """With the hint, its rows go to the buckets of their groups through an exchange."""
    talks = [conversation(client, 2 * client, 2 * client + 5) for client in range(1, 5)]
    specs, text = in_order(BEATS, *talks), _IN_TURN.format(hint)
    plan = compile_query(f"{text} PUNCTUATE ON conn", streams={"A": 1}, buckets=3)
    assert (plan.exchanges is not None) == bool(hint)
    (join,) = (step.plan for step in plan.steps if isinstance(step.plan, Join))
    assert join.punctuated is not None
    assert join.punctuated.promising == (0, 1)
    seen = run(f"{text} PUNCTUATE ON conn", [specs], every_second(specs), Random(3), buckets=3)
    seen.check_counts()
    assert not differences(seen.rows, expected(text, [specs]))
    assert not seen.reasons
    assert len(seen.early) == len(talks)
    assert max(step for step, _ in seen.early) < 30


def test_groups_behind_an_exchange_wait_if_only_one_bucket_hears_the_promises() -> None:
    text = _IN_TURN.format("/*+ bucket(s.conn.aIP) */").replace("SELECT a, b", "SELECT /*+ bucket(c) */ a, b")
    specs = in_order(BEATS, conversation(1, 2, 5), conversation(2, 3, 6))
    plan = compile_query(f"{text} PUNCTUATE ON conn", streams={"A": 1}, buckets=3)
    assert plan.exchanges is not None
    assert not [step for step in plan.steps if getattr(step.plan, "closes", ())]
    seen = run(f"{text} PUNCTUATE ON conn", [specs], every_second(specs), Random(3), buckets=3)
    assert not seen.early
    assert not differences(seen.rows, expected(text, [specs]))


ENDINGS = st.sampled_from(("fin", "fin", "fin", "rst", "half", ""))
CONVERSATIONS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 100), st.integers(1, 40), ENDINGS, st.booleans(), st.integers(1, 3)),
    max_size=10,
)


def seen_by_two(drawn: list[tuple[int, int, int, str, bool, int]]) -> list[list[Spec]]:
    """The packets of two sources. The last number of a conversation says which of them see it."""
    sources: list[list[Spec]] = [[], []]
    for client, begin, length, ending, six, where in drawn:
        for rank in (0, 1):
            if where >> rank & 1:
                sources[rank] += conversation(client, begin, begin + length, ending, six)
    return [in_order(BEATS, specs) for specs in sources]


@given(
    drawn=CONVERSATIONS, cuts=st.lists(st.integers(1, 200), max_size=40), seed=st.integers(0, 2**32),
    buckets=st.sampled_from((1, 3)), form=st.sampled_from(sorted(PUNCTUATED)), slots=st.sampled_from((1, 4, 64)),
    flush=st.sampled_from(Flush),
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_the_traffic_no_row_is_wrong_without_a_word(
    drawn: list[tuple[int, int, int, str, bool, int]], cuts: list[int], seed: int, buckets: int, form: str, slots: int,
    flush: Flush,
) -> None:  # fmt: skip
    """Connections of the same addresses and ports overlap and follow each other; one or both sources see each."""
    sources = seen_by_two(drawn)
    plain, text = PLAIN[form], PUNCTUATED[form]
    config = LowLevelConfig(slots=slots, flush=flush)
    seen = run(text, sources, cuts, Random(seed), buckets=buckets, config=config)
    seen.check_counts()
    assert seen.reasons <= {Reason.PUNCTUATED}
    late: Counter[int] = Counter()
    promised: Counter[int] = Counter()
    lossy = set()
    for complete in seen.completes:
        assert complete.windows is not None
        late[complete.windows.first] += complete.late
        promised[complete.windows.first] += complete.promised
        assert complete.merged + complete.late == complete.promised
        assert complete.verdict.exact == (not complete.late)
        if not complete.verdict.exact:
            lossy.add(complete.end)
    size, slide = SLIDE[form]
    held = (range(spec.ts // NS // slide, (spec.ts // NS + size) // slide) for specs in sources for spec in specs)
    by_window = Counter(window for windows in held for window in windows)
    assert {window: count for window, count in promised.items() if count} == by_window
    certain = [row for row in seen.rows if _end(row) not in lossy]
    right = [row for row in expected(plain, sources) if _end(row) not in lossy]
    assert not differences(certain, right)
    keys = Counter(
        tuple(value for name, value in row.items() if name not in ("n", "bytes", "last")) for row in seen.rows
    )
    assert set(keys.values()) <= {1}, "each group has one row in a window"


@given(
    drawn=CONVERSATIONS, cuts=st.lists(st.integers(1, 200), max_size=40), seed=st.integers(0, 2**32),
    hint=st.sampled_from(("", "/*+ bucket(s.vlan) */")),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_row_behind_a_join_is_wrong_without_a_word(
    drawn: list[tuple[int, int, int, str, bool, int]], cuts: list[int], seed: int, hint: str
) -> None:
    """Also where addresses and ports come again in the window, and where rows go through an exchange."""
    sources = seen_by_two(drawn)
    text = _IN_TURN.format(hint)
    seen = run(f"{text} PUNCTUATE ON conn", sources, cuts, Random(seed), buckets=3)
    assert seen.reasons <= {Reason.PUNCTUATED}
    lossy = {complete.end for complete in seen.completes if not complete.verdict.exact}
    certain = [row for row in seen.rows if _end(row) not in lossy]
    assert not differences(certain, [row for row in expected(text, sources) if _end(row) not in lossy])
