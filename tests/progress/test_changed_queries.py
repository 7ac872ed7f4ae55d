"""Queries that come, go, change and come back while a bucket runs: every window once, contiguous, and exact or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.records import Arrival, Record
from highlevel.progress.served import served, sweep
from highlevel.rosters.roster import Roster
from highlevel.spark.checkpoint.checkpoint import Completed
from highlevel.spark.sink.suppression import Suppression
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.options import Late
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.verdicts import Complete
from tests.acceptance.bucketrun import records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic
from tests.progress.harness import FINGERPRINT, STAGE, CountingOperator, Sender, plan, window
from tests.spark.test_query_changes import NAMES

WINDOWS = (window(1, 1), window(3, 1), window(4, 2))  # in panes; the query's text
ROSTER = Roster.of({"Main": ("s",)})
STEPS = 24

steps = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 2), st.integers(1, 5), max_size=2),  # tuples by pane, from the front on
        st.integers(0, 2),  # how far the front moves
        st.one_of(st.none(), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WINDOWS), max_size=3)),
    ),
    min_size=1, max_size=STEPS,
)  # fmt: skip


class Job:
    """One bucket, with the queries of each start, as a job and its checkpoint give them to it."""

    def __init__(self) -> None:
        self.store = MemoryByteStore()
        self.queries: dict[str, object] = {}
        self.lives: dict[str, int] = {}
        self.newest = 1
        self.completed: dict[str, Completed] = {}
        self.told: dict[str, list[tuple[int, object]]] = {}  # by query: its life and what it told

    def start(self, queries: Mapping[str, object]) -> None:
        other = {name for name in queries if queries[name] != self.queries.get(name)}
        self.newest += 1
        self.lives = {name: self.newest if name in other else self.lives[name] for name in queries}
        for name in other:
            ends = [output.end for _, output in self.told.get(name, ()) if isinstance(output, Complete)]
            self.completed.pop(name, None)
            if ends:
                self.completed[name] = Completed(ends[-1])
        self.queries = dict(queries)

    def batch(self, records: list[object]) -> None:
        plans = tuple(plan(over, name) for name, over in self.queries.items())
        state = PiecewiseState(self.store, FINGERPRINT)
        sweep(state, STAGE, plans, served(plans, self.lives.__getitem__))
        suppress = Suppression(self.queries, {name: of for name, of in self.completed.items() if name in self.queries},
                               {}, state)  # fmt: skip
        driver = BucketDriver(STAGE, plans, 1, state, ROSTER, 1, CountingOperator, lives=self.lives)
        for record in records:
            driver.take(record, Arrival(0))
        for output in driver.flush().outputs:
            for left in suppress(output, 1):
                self.told.setdefault(left.query, []).append((self.lives[left.query], left))
        state.commit()

    def spaces(self) -> set[str]:
        return {space for space, _ in self.store.pieces}


@settings(max_examples=100)
@given(steps)
def test_every_window_is_told_once_contiguously_and_exactly_if_it_says_so(steps):
    job, sender, tuples, front = Job(), Sender("s"), dict[int, int](), 0
    met: dict[tuple[str, int], tuple[object, int]] = {}  # by query and life: its window, and the first whole pane
    job.start({"a": WINDOWS[0], "b": WINDOWS[2]})
    steps = [({0: 1}, 1, None), *steps]
    for number, (coming, advance, queries) in enumerate(steps):
        if queries is not None and number:
            job.start({**queries, "a": WINDOWS[0]})  # one query stays
        whole = max([front, *(pane + 1 for pane in tuples)]) if number else -1000
        for name, life in job.lives.items():
            met.setdefault((name, life), (job.queries[name], whole))
        panes = {front + pane: count for pane, count in coming.items()}
        for pane, count in panes.items():
            tuples[pane] = tuples.get(pane, 0) + count
        front += advance
        job.batch([*([sender.batch(panes)] if panes else []), sender.promise(front)])
    for name, told in job.told.items():
        completions = [(life, output) for life, output in told if isinstance(output, Complete)]
        rows = [(life, output) for life, output in told if isinstance(output, ResultRows)]
        ends = [output.end for _, output in completions]
        assert ends == sorted(set(ends)), "told once"
        for (old, before), (new, after) in pairwise(completions):
            over = met[name, new][0]
            expected = before.windows.to + 1 if old == new else over.first_after(before.end)
            assert after.windows.first == expected, "contiguous"
        shown = [(life, output.window) for life, output in rows]
        assert len(shown) == len(set(shown))
        for life, complete in completions:
            over, whole = met[name, life]
            first = over.extent(complete.windows.first).start
            if first >= whole:
                assert complete.verdict.exact, "full"
                assert not complete.verdict.partial
            if complete.verdict.exact and not complete.verdict.partial:
                for number in range(complete.windows.first, complete.windows.to + 1):
                    count = sum(tuples.get(pane, 0) for pane in over.extent(number))
                    found = [output.rows[0][3] for at, output in rows if (at, output.window) == (life, number)]
                    assert [int(of) for of in found] == ([count] if count else [])
        if completions and job.lives.get(name) == completions[-1][0]:
            over = job.queries[name]
            assert ends[-1] == over.end(over.closed_by(front) - 1), "none is missing"
    assert len([name for name, _ in met if name == "a"]) == 1, "the query that stays has one life"


@settings(max_examples=100)
@given(steps)
def test_a_query_that_stays_says_the_same_as_without_the_others(steps):
    told = []
    for others in (True, False):
        job, sender, front = Job(), Sender("s"), 0
        job.start({"a": WINDOWS[1]})
        job.lives = {"a": 1}
        for coming, advance, queries in [({0: 1}, 1, None), *steps]:
            if queries is not None and others:
                life = job.lives["a"]
                job.start({**queries, "a": WINDOWS[1]})
                assert job.lives["a"] == life
            panes = {front + pane: count for pane, count in coming.items()}
            front += advance
            job.batch([*([sender.batch(panes)] if panes else []), sender.promise(front)])
        told.append([repr(output) for _, output in job.told.get("a", [])])
    assert told[0] == told[1]


def test_what_a_query_has_stored_leaves_with_it():
    job, sender = Job(), Sender("s")
    job.start({"a": WINDOWS[0]})
    job.batch([sender.batch({0: 3}), sender.promise(0)])
    alone = job.spaces()
    job.start({"a": WINDOWS[0], "b": WINDOWS[1]})
    job.batch([sender.batch({1: 3, 2: 1}), sender.promise(2)])
    both = job.spaces()
    assert both > alone
    job.start({"a": WINDOWS[0]})
    job.batch([sender.promise(2)])
    assert job.spaces() == alone


HEAVY = "SELECT srcIP, count(*) AS n [RANGE 3 s, SLIDE 1 s] FROM B GROUP BY srcIP HAVING count(*) > {}"


Part = tuple[QueryPlan, int, int]


def told_by(records: Sequence[Record], *parts: Part) -> list[list[Output]]:
    """What the bucket tells of each part of the records, with the query that it serves then."""
    store, found = MemoryByteStore(), []
    for life, (served_now, start, stop) in enumerate(parts, 1):
        state = PiecewiseState(store, served_now.stage.fingerprint)
        sweep(state, served_now.stage, (served_now,), served((served_now,), lambda query, life=life: life))
        driver = BucketDriver(
            served_now.stage, (served_now,), 0, state, Roster.of({"B": ("B-0",)}), 1, lives={served_now.name: life}
        )
        for at in range(start, stop):
            driver.take(records[at], Arrival(at))
        found.append(list(driver.flush().outputs))
        state.commit()
    return found


@pytest.mark.parametrize("name", ["q", "r"])
def test_another_having_or_name_tells_the_windows_that_are_open_whole(name: str) -> None:
    before, after = (
        compile_query(HEAVY.format(most), name=called, streams={"B": 1}, buckets=1)
        for most, called in ((0, "q"), (2, name))
    )
    assert before.stage.fingerprint == after.stage.fingerprint
    (packets,) = packets_of(Traffic(5, (("B", 300),), 0, True))["B"]
    records = records_of(before, before.stage.nodes[0], "B", 0, packets, Random(2))[0]
    cut = len(records) // 2

    def windows(outputs: list[Output]) -> list[object]:
        return [(one.windows, one.verdict, one.merged) for one in outputs if isinstance(one, Complete)]

    def rows(outputs: list[Output]) -> dict[int | None, list[list[int]]]:
        return {one.window: one.rows.tolist() for one in outputs if isinstance(one, ResultRows)}

    first, second = told_by(records, (before, 0, cut), (after, cut, len(records)))
    (whole,) = told_by(records, (before, 0, len(records)))
    (other,) = told_by(records, (after, 0, len(records)))
    assert windows(first + second) == windows(whole)
    assert rows(first).items() <= rows(whole).items()
    assert rows(second) == {window: of for window, of in rows(other).items() if window not in rows(first)}
    assert len(rows(second)) > 5


@pytest.mark.parametrize(
    ("text", "late", "lasts"),
    [
        ("SELECT srcIP, count(*) [RANGE 3 s] FROM B GROUP BY srcIP", Late.COUNT, True),
        ("SELECT srcIP, count(*) [RANGE 3 s] FROM B GROUP BY srcIP", Late.CORRECT, False),
        ("SELECT conn, count(*) [RANGE 3 s] FROM B GROUP BY conn", Late.COUNT, True),
        ("SELECT conn, count(*) [RANGE 3 s] FROM B GROUP BY conn PUNCTUATE ON conn", Late.COUNT, False),
        (
            "SELECT count(*) [RANGE 3 s, WA x.ts] FROM B AS x [RANGE 2 s], B AS y [RANGE 2 s] WHERE x.len = y.len",
            Late.COUNT,
            False,
        ),
    ],
)
def test_only_steps_whose_state_says_all_go_on(text: str, late: Late, lasts: bool) -> None:
    made = compile_query(text, name="q", streams={"B": 1}, buckets=1, late=late)
    assert bool(served((made,), lambda query: 1).steps) == lasts
