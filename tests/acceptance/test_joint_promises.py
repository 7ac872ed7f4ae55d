"""Groups over the times of all inputs of a join (Li 7.2, Q7-1) close when these have passed them, and not a window's
length later: in one bucket, behind an exchange, in a union."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from highlevel.interface import Words
from highlevel.progress.outputs import Output, ResultRows
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.words import column_of
from tests.acceptance.bucketrun import Streams, matrix, reduced
from tests.acceptance.paced import NS, Feed, paced
from tests.acceptance.traffic import START
from tests.naive.compare import differences
from tests.naive.evaluate import ResultRow, rows_of
from tests.naive.frames import Spec, frame
from tests.naive.packets import decode_frames

PAIRS = (
    "SELECT {one}.ts AS syn_ts, {two}.ts AS ack_ts FROM {one} [RANGE {window} s, WA ts], "
    "{two} [RANGE {window} s, WA ts] WHERE {one}.srcIP = {two}.destIP AND {one}.srcPort = {two}.destPort"
)
COUNTED = "SELECT syn_ts, ack_ts, count(*) FROM {} GROUP BY syn_ts, ack_ts"
G = "CREATE STREAM g AS " + PAIRS.format(one="S0", two="S1", window=60)
K = "CREATE STREAM k AS " + PAIRS.format(one="S2", two="S1", window=20)
L = "CREATE STREAM l AS " + PAIRS.format(one="S1", two="S2", window=60)
REVERSED = (
    "CREATE STREAM k AS SELECT S2.ts AS syn_ts, S1.ts AS ack_ts FROM S1 [RANGE 45 s, WA ts], S2 [RANGE 45 s, WA ts] "
    "WHERE S2.srcIP = S1.destIP AND S2.srcPort = S1.destPort"
)
QUERIES = {
    "a join": f"{G}; {COUNTED.format('g')}",
    "a union": f"{G}; {K}; {COUNTED.format('g UNION k')}",
    "a union, its times the other way round": f"{G}; {REVERSED}; {COUNTED.format('g UNION k')}",
    "with packets": f"{G}; CREATE STREAM k AS SELECT ts AS syn_ts, ts AS ack_ts FROM S2; {COUNTED.format('g UNION k')}",
    "of the union of two joins with a third": f"{G}; {K}; {L}; {COUNTED.format('g UNION k UNION l')}",
    "a share of its pair of minutes": f"{G}; SELECT m, n, syn_ts, ack_ts, count(*) AS c, total(count(*)) AS t FROM g "
    "GROUP BY syn_ts / 60 AS m, ack_ts / 60 AS n, syn_ts, ack_ts",
}
BUCKETS = (1, 2, 4)
PACKETS = 20


def sent() -> Streams:
    """A packet every five seconds in S0, answered after 300 ms in S1; S2 has the same as S0, half a second later."""
    streams: Streams = {}
    for name, after, back in (("S0", 0, False), ("S1", 300, True), ("S2", 500, False)):
        specs = []
        for number in range(PACKETS):
            ends, ports = ("10.0.0.1", "10.0.0.2"), (1000 + number % 7, 80)
            source, destination = ends[::-1] if back else ends
            specs.append(
                Spec(
                    ts=(START + 5 * number) * NS + after * 10**6, source=source, destination=destination, proto=6,
                    ports=ports[::-1] if back else ports,
                )
            )  # fmt: skip
        streams[name] = [decode_frames(name, 0, map(frame, specs))[0]]
    return streams


def fed(streams: Streams) -> Feed:
    def feed(node: Node, stream: str, second: int) -> Words:
        packets = [packet for packet in streams[stream][0] if packet.arrival.ts // NS == second]
        return reduced(node, matrix(packets, 0, node.reduction.strings))[0]

    return feed


def late(outputs: list[tuple[int, list[Output]]]) -> Iterator[float]:
    """Of each row, how many seconds after the later of its times it came out."""
    for second, given in outputs:
        for each in given:
            if isinstance(each, ResultRows):
                times = (column_of(each.schema, each.rows, name)[0] for name in ("syn_ts", "ack_ts"))
                yield from ((second * NS - np.maximum(*times)) / NS).tolist()


def shown(outputs: list[tuple[int, list[Output]]]) -> list[ResultRow]:
    given = (each for _, some in outputs for each in some if isinstance(each, ResultRows))
    return [json.loads(line) for each in given for line in json_writer(each.schema).write(each.rows)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("name", QUERIES)
def test_groups_close_when_both_inputs_have_passed_them(name: str, buckets: int, again: bool) -> None:
    text, streams = QUERIES[name], sent()
    plan = compile_query(text, streams=dict.fromkeys(streams, 1), buckets=buckets)
    seconds = range(START, START + 5 * PACKETS + 3)
    outputs = list(paced(plan, fed(streams), seconds, again=again))
    assert max(late(outputs)) <= 1
    found = shown(outputs)
    assert not differences(found, rows_of(text, streams))
    completes = [each for _, given in outputs for each in given if isinstance(each, Complete)]
    assert all(complete.verdict.exact for complete in completes)
    assert sum(complete.rows for complete in completes) == len(found)


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("name", ["a join", "a union"])
def test_an_input_that_has_ended_holds_nothing_up(name: str, buckets: int) -> None:
    """S0 ends in the middle; its rows still meet what comes later in the others."""
    text, streams = QUERIES[name], sent()
    half = START + 5 * PACKETS // 2
    streams["S0"] = [[packet for packet in streams["S0"][0] if packet.arrival.ts // NS <= half]]
    plan = compile_query(text, streams=dict.fromkeys(streams, 1), buckets=buckets)
    outputs = list(paced(plan, fed(streams), range(START, START + 5 * PACKETS + 3), ends={"S0": half}))
    assert max(late(outputs)) <= 1
    found = shown(outputs)
    assert not differences(found, rows_of(text, streams))
    end = "2024-05-01T12:00:51"
    assert any(str(row["syn_ts"]) < end < str(row["ack_ts"]) for row in found)


@pytest.mark.parametrize("buckets", BUCKETS)
def test_a_loss_is_told_behind_all_groups_that_may_lack_it(buckets: int) -> None:
    """In every bucket from when it is known until the windows of the join have passed it, though groups of its time
    are long out."""
    text, streams = QUERIES["a join"], sent()
    plan = compile_query(text, streams=dict.fromkeys(streams, 1), buckets=buckets)
    seconds, loss = range(START, START + 5 * PACKETS + 3), START + 50
    outputs = list(paced(plan, fed(streams), seconds, lost={("S0", loss)}))
    assert max(late(outputs)) <= 1
    told = [(second, each) for second, given in outputs for each in given if isinstance(each, Complete)]
    assert {each.bucket for _, each in told} == {*range(buckets)}
    for second, complete in told:
        assert complete.verdict.reasons == ({Reason.GAP} if second > loss else frozenset()), complete
    missing = [row for row in rows_of(text, streams) if row not in shown(outputs)]
    assert missing
    assert {row["syn_ts"] for row in missing} == {"2024-05-01T12:00:50Z"}
