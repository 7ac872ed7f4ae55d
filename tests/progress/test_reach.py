"""How far an answer comes by promises: what is foretold is what buckets do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward
from highlevel.progress.promises.reach import Reach
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.verdicts import Complete
from lowmark.wire.rows.values import FOREVER
from tests.progress.harness import Sender

SECOND = 10**9
BOTH = "Main [RANGE 2 s] AS A, Other [RANGE 3 s] AS B"
UNITED = "Main UNION Other AS A [RANGE 2 s], Main AS B [RANGE 3 s]"
PAIRS = f"SELECT A.ts, B.ts AS other FROM {BOTH} WHERE A.srcIP = B.destIP"
PER_SOURCE = "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP;"
COUNTED = "SELECT A.srcIP, count(*) [RANGE 10 s, WA A.ts]"
JOINED = (
    f"{COUNTED} FROM {BOTH} WHERE A.srcIP = B.destIP GROUP BY A.srcIP",
    f"SELECT count(*) [RANGE 10 s, WA greatest(A.ts, B.ts)] FROM {BOTH} WHERE A.srcIP = B.destIP",
    "SELECT count(*) [RANGE 10 s, WA A.ts] FROM Main AS A, Other AS B [RANGE TUMBLING 7 s] WHERE A.srcIP = B.destIP",
    f"{COUNTED} FROM Main AS A [RANGE 2 s] LEFT JOIN Other AS B [RANGE 3 s] ON A.srcIP = B.destIP GROUP BY A.srcIP",
    f"{COUNTED} FROM {UNITED} WHERE A.srcIP = B.destIP GROUP BY A.srcIP",
)
OF_AN_AGGREGATE = f"""{PER_SOURCE}
SELECT A.srcIP, count(*) [RANGE 20 s, WA A.window_end] FROM p AS A [RANGE 20 s, WA window_end], Other AS B [RANGE 4 s]
WHERE A.srcIP = B.srcIP GROUP BY A.srcIP
"""
SHARES = """
SELECT srcIP, sum(len) / total(sum(len)) AS share [RANGE 10 s, SLIDE 5 s] FROM Main
GROUP BY srcIP ORDER BY share DESC LIMIT 3
"""
WINDOWED = (
    *JOINED,
    OF_AN_AGGREGATE,
    SHARES,
    "SELECT srcIP, count(*) [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP",
    "SELECT srcIP, count(*) [RANGE 1 minute, WA ts + 5 s] FROM Main GROUP BY srcIP",
    "SELECT srcIP, count(*) [RANGE ALL, SLIDE 30 s] FROM Main GROUP BY srcIP",
    f"{PER_SOURCE} SELECT srcIP, max(n) [RANGE 30 s, WA window_end] FROM p GROUP BY srcIP",
    f"{PER_SOURCE} SELECT n, count(*) [RANGE 20 s, SLIDE 10 s, WA window_end] FROM p GROUP BY n",
)
NESTED = """
SELECT a.ts, b.ts AS n, c.ts AS o FROM Main AS a [RANGE 4 s] LEFT JOIN Other AS b [RANGE 2 s] ON a.srcIP = b.srcIP
LEFT JOIN Other AS c [RANGE 1 s] ON a.srcIP = c.srcIP
"""
PLAIN = (
    NESTED,
    PAIRS,
    f"{PAIRS} ORDER BY A.ts",
    "SELECT ts, srcIP FROM Main",
    "SELECT srcIP, count(*) FROM Main GROUP BY srcIP, ts/60 AS minute",
    "SELECT count(*) [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR row_num] FROM Main",
    "SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main GROUP BY srcIP",
)


class Buckets:
    """Of a query that is sent no rows."""

    def __init__(self, plan: QueryPlan) -> None:
        roster = Roster.of({"Main": ("m",), "Other": ("o",)})
        self.plan = plan
        numbers = range(plan.stage.buckets)
        self.drivers = [BucketDriver(plan.stage, (plan,), number, MemoryState(), roster, 1) for number in numbers]
        self.open: list[int | None] = [None for _ in numbers]
        self._position = 0
        self._senders = {
            (node.name, stream): Sender(
                stream[0].lower(), stage=plan.stage.fingerprint, node=node.name, width=node.reduction.pane.width
            )
            for node in plan.stage.nodes
            for stream in node.streams
        }

    def promise(self, granules: Mapping[str, int]) -> None:
        for (node, _), sender in self._senders.items():
            if granules[node] > sender.promised:
                record = sender.promise(granules[node])
                for driver in self.drivers:
                    self._take(driver, record)
        self._exchange()

    def _take(self, driver: BucketDriver, record: Record) -> None:
        self._position += 1
        driver.take(record, Arrival(self._position))

    def _exchange(self) -> None:
        while forwards := list(self._flush()):
            for forward in forwards:
                self._take(self.drivers[forward.partition], forward.record)

    def _flush(self) -> Iterator[Forward]:
        for number, driver in enumerate(self.drivers):
            for output in driver.flush().outputs:
                if isinstance(output, Complete) and output.windows is not None:
                    self.open[number] = output.windows.to + 1
                elif isinstance(output, Forward):
                    yield output


def compiled(sql: str) -> QueryPlan:
    return compile_query(sql, name="q", streams={"Main": 1, "Other": 1}, buckets=2)


def steps(plan: QueryPlan) -> list[dict[str, int]]:
    """By node the granules promised: now the one node is ahead, now the other."""
    times = [(20, 21), (22, 47), (65, 48), (66, 66), (90, 140), (200, 141), (201, 260)]
    return [
        {node.name: node.reduction.pane.index(at[number % 2] * SECOND) for number, node in enumerate(plan.stage.nodes)}
        for at in times
    ]


@pytest.mark.parametrize("sql", WINDOWED)
def test_the_first_open_window_is_foretold(sql: str) -> None:
    plan = compiled(sql)
    buckets, reach = Buckets(plan), Reach(plan)
    assert reach.window == plan.window
    seen = 0
    for granules in steps(plan):
        buckets.promise(granules)
        if None not in buckets.open:
            assert set(buckets.open) == {reach.of(granules)}
            seen += 1
    assert seen > 3


@pytest.mark.parametrize("sql", PLAIN)
def test_up_to_where_an_answer_without_windows_is_complete_is_foretold(sql: str) -> None:
    plan = compiled(sql)
    buckets, reach = Buckets(plan), Reach(plan)
    for granules in steps(plan):
        buckets.promise(granules)
        assert {dict(driver.progress().complete_to)["q"] for driver in buckets.drivers} == {reach.of(granules)}


@pytest.mark.parametrize("sql", [*WINDOWED, PAIRS])
def test_what_is_needed_is_the_least_that_is_enough(sql: str) -> None:
    plan = compiled(sql)
    reach = Reach(plan)
    goal = reach.of({node.name: node.reduction.pane.index(300 * SECOND) for node in reach.nodes})
    for node in reach.nodes:
        granule = node.reduction.pane.index(reach.needed(node.name, goal))
        assert reach.of({node.name: granule}) >= goal > reach.of({node.name: granule - 1})


@pytest.mark.parametrize("sql", WINDOWED)
def test_an_answer_comes_as_far_as_the_node_that_lets_it_come_least(sql: str) -> None:
    """So sources can be held against what is needed of each alone."""
    plan = compiled(sql)
    reach = Reach(plan)
    for granules in steps(plan):
        assert reach.of(granules) == min(reach.of({node: granule}) for node, granule in granules.items())


def test_an_end_promises_everything() -> None:
    plan = compiled(PAIRS)
    assert Reach(plan).of({}) == FOREVER


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        ("RANGE 5 rows", [5, 10]),
        ("RANGE 6 rows, SLIDE 4 rows", [4, 8]),
        ("RANGE ALL, SLIDE 3 rows", [3, 6]),
    ],
)
def test_windows_over_rows_need_the_rows_up_to_their_end(size: str, rows: list[int]) -> None:
    reach = Reach(compiled(f"SELECT count(*) [{size}, WA row_num] FROM Main"))
    assert reach.numbers_rows
    assert [reach.needed_rows(goal) for goal in (1, 2)] == rows
