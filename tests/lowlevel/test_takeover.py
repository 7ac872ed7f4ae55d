"""Between two blocks other nodes take over: what both have goes on as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from lowlevel.config import Flush, LowLevelConfig
from lowlevel.node import NodeOutput, SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock
from lowmark.wire.rows.values import FOREVER
from tests.lowlevel.naive import block
from tests.naive.frames import Spec, frame

SECOND = 10**9


def node(name: str, sql: str) -> Node:
    (found,) = compile_query(sql, name=name, streams={"Main": 1}, buckets=1).stage.nodes
    return Node(name, found.streams, found.reduction, found.bucket_by)


STAYS = node("stays", "SELECT srcIP, count(*) [RANGE 5 s] FROM Main GROUP BY srcIP")
GOES = node("goes", "SELECT destPort, count(*) [RANGE 5 s] FROM Main GROUP BY destPort")
COMES = node("comes", "SELECT row_num, ts FROM Main")


def blocks() -> list[FrameBlock]:
    """A packet a second; each block promises its last one's time."""
    found = []
    for start in range(0, 40, 4):
        times = [second * SECOND for second in range(start, start + 4)]
        data = [frame(Spec(ts=ts, source=f"10.0.0.{ts // SECOND % 3 + 1}")).data for ts in times]
        found.append(block(data, ts=times, low=times, low_after=times[-1]))
    return found


def started(nodes: Sequence[Node], flush: Flush, taken_over: Sequence[str] = ()) -> SourceNodes:
    made = SourceNodes(nodes, stream="Main", config=LowLevelConfig(slots=4, flush=flush))
    made.start(taken_over=taken_over)
    return made


def tuples(outputs: Iterable[NodeOutput], name: str) -> Counter[tuple[int, ...]]:
    """Tuples by pane and key."""
    found: Counter[tuple[int, ...]] = Counter()
    for output in outputs:
        if output.node == name:
            for row in output.rows.tolist():
                found[(row[1], *row[3:])] += row[2]
    return found


def promised(outputs: Iterable[NodeOutput], name: str) -> list[int]:
    return [item.progress.promised_ns for item in outputs if item.node == name and item.progress is not None]


@pytest.mark.parametrize("flush", Flush)
def test_others_take_over(flush: Flush) -> None:
    all_blocks = blocks()
    alone = started([STAYS], flush)
    expected = [output for item in all_blocks for output in alone.take(item)] + list(alone.finish())
    for cut in (0, 3, 7):
        before, after = started([GOES, STAYS], flush), started([COMES, STAYS], flush, ["stays"])
        outputs = [output for item in all_blocks[:cut] for output in before.take(item)]
        outputs += before.let_go(["goes"])
        after.take_over(before)
        outputs += [output for item in all_blocks[cut:] for output in after.take(item)]
        outputs += after.finish()
        assert tuples(outputs, "stays") == tuples(expected, "stays")
        bounds = promised(outputs, "stays")
        assert bounds == sorted(set(bounds))
        assert bounds[-1] == FOREVER
        # What is no more has put out all it had, and what is new has seen all that came, by its place in the stream.
        assert tuples(outputs, "goes").total() == 4 * cut
        assert sorted(row[1] for row in tuples(outputs, "comes")) == list(range(4 * cut + 1, 41))
        assert (after.received, after.decoded) == (40, 40)
        counts = after.counts()["stays"]
        assert (counts.put_out, counts.resident, counts.late) == (40, 0, 0)
