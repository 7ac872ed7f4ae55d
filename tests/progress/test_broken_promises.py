"""Rows that a promise about values excludes are late with the reason `punctuated`, whoever sends them. All others
count, whatever the order in which sources are heard and wherever batches are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import RosterChange
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.words import Words
from tests.progress.harness import Item, Sender

WIDTH = 10**10
COLUMNS = ("srcPort", "destPort")
QUERY = "SELECT srcPort, destPort, count(*) AS n [RANGE 10 s, SLIDE 10 s, WA ts] FROM A GROUP BY srcPort, destPort"

Key = tuple[int, int]


def plan_of(text: str = QUERY, **options: object) -> QueryPlan:
    return compile_query(text, name="q", streams={"A": 2}, buckets=1, **options)  # type: ignore[arg-type]


@dataclass
class Talker(Sender):
    """A source that also promises values."""

    plan: QueryPlan = field(default_factory=plan_of)

    def __post_init__(self) -> None:
        self.stage, self.width = self.plan.stage.fingerprint, WIDTH
        self.node = self.plan.stage.nodes[0].name

    def send(self, groups: Mapping[tuple[int, Key], int]) -> Batch:
        """By pane and key: tuples."""
        panes: Counter[int] = Counter()
        for (pane, _), tuples in groups.items():
            panes[pane] += tuples
        rows: Words = np.array([[0, pane, tuples, *key] for (pane, key), tuples in groups.items()], np.int64).view(
            np.uint64
        )
        return self.words(rows, panes)

    def close(self, keys: Sequence[Key], below: int | None) -> Punctuation:
        """No later row has one of the keys in a pane below this one."""
        time = () if below is None else (Bound("ts", below=below * WIDTH),)
        bounds = (Bound(COLUMNS, values=ValueSet.of_tuples(keys, 2)), *time)
        return Punctuation(self._origin(), self._number(), Promise(bounds), LaneLedger(dict(self.counters)))


def run(
    items: Sequence[Item], plan: QueryPlan, sources: tuple[str, ...], cuts: Sequence[int] = ()
) -> list[list[Output]]:
    """The outputs of each micro-batch; each has a driver made from the bytes of the state before it."""
    store, found = MemoryByteStore(), []
    for start, stop in pairwise((0, *sorted(cuts), len(items))):
        state = PiecewiseState(store, plan.stage.fingerprint)
        driver = BucketDriver(plan.stage, (plan,), 0, state, Roster.of({"A": sources}), 1)
        for record, arrival in items[start:stop]:
            driver.take(record, arrival)
        found.append(list(driver.flush().outputs))
        state.commit()
    return found


def arrived(records: Sequence[Record], kind: SourceKind = SourceKind.FINITE) -> list[Item]:
    return [(record, Arrival(position, kind)) for position, record in enumerate(records)]


@dataclass
class Answer:
    """What consumers of the results see."""

    rows: dict[int, list[tuple[Key, int]]] = field(default_factory=dict)  # by window
    completes: dict[int, Complete] = field(default_factory=dict)
    early: Counter[int] = field(default_factory=Counter)  # rows before the completion of their window

    @classmethod
    def of(cls, outputs: Sequence[Output]) -> Answer:
        found = cls()
        for output in outputs:
            if isinstance(output, ResultRows):
                assert output.window is not None
                for row in output.rows.view(np.int64).tolist():
                    assert row[2] == (output.window + 1) * WIDTH
                    found.rows.setdefault(output.window, []).append(((row[3], row[4]), row[5]))
            elif isinstance(output, Complete):
                assert output.windows is not None
                for window in range(output.windows.first, output.windows.to + 1):
                    assert window not in found.completes
                    found.completes[window] = output
        return found

    def counts(self) -> dict[int, dict[Key, int]]:
        for window, rows in self.rows.items():
            assert len(dict(rows)) == len(rows), "no group is told twice"
            assert self.completes[window].rows == len(rows)
        return {window: dict(rows) for window, rows in self.rows.items()}

    def reasons(self, window: int) -> set[Reason]:
        return set(self.completes[window].verdict.reasons)


KEYS = st.tuples(st.integers(0, 1), st.integers(0, 2))
MOVES = st.lists(
    st.tuples(st.just("send"), st.integers(0, 2), KEYS, st.integers(1, 3))
    | st.tuples(st.just("close"), st.lists(KEYS, min_size=1, max_size=2), st.none() | st.integers(1, 3))
    | st.tuples(st.just("pass"), st.integers(0, 3)),
    max_size=12,
)


def told_by(name: str, moves: Sequence[tuple], merged: Counter, broken: Counter) -> list[Record]:  # type: ignore[type-arg]
    """The records of a source, lies about values and all; by (pane, key), the tuples that count, and those that do
    not."""
    talker, passed, promised = Talker(name), 0, {}
    records: list[Record] = [talker.promise(0)]
    for move in moves:
        match move:
            case ("send", pane, key, tuples):
                pane = max(pane, passed)
                records.append(talker.send({(pane, key): tuples}))
                (broken if promised.get(key, -1) > pane else merged)[pane, key] += tuples
            case ("close", keys, below):
                records.append(talker.close(keys, below))
                for key in keys:
                    promised[key] = max(promised.get(key, -1), 1 << 60 if below is None else below)
            case ("pass", pane) if pane > passed:
                passed = pane
                records.append(talker.promise(pane))
    return [*records, talker.end()]


@given(st.lists(MOVES, min_size=1, max_size=3), st.data())
def test_what_counts_depends_on_each_source_alone(sources: list[list[tuple]], data: st.DataObject) -> None:  # type: ignore[type-arg]
    merged: Counter[tuple[int, Key]] = Counter()
    broken: Counter[tuple[int, Key]] = Counter()
    names = tuple(f"s{number}" for number in range(len(sources)))
    waiting = [told_by(name, moves, merged, broken) for name, moves in zip(names, sources, strict=True)]
    order = data.draw(st.permutations([at for at, records in enumerate(waiting) for _ in records]))
    items = arrived([waiting[at].pop(0) for at in order])
    cuts = data.draw(st.lists(st.integers(0, len(items)), max_size=4))
    answer = Answer.of([output for outputs in run(items, plan_of(), names, cuts) for output in outputs])
    expected: dict[int, dict[Key, int]] = {}
    for (pane, key), tuples in merged.items():
        expected.setdefault(pane, {})[key] = tuples
    assert answer.counts() == expected
    for window, complete in answer.completes.items():
        late = sum(tuples for (pane, _), tuples in broken.items() if pane == window)
        assert complete.late == late
        assert answer.reasons(window) == ({Reason.PUNCTUATED} if late else set())
        total = sum(tuples for (pane, _), tuples in (merged + broken).items() if pane == window)
        assert complete.merged == total - late
        assert complete.promised == total


def test_a_source_that_joins_later_is_bound_by_what_the_operators_were_told() -> None:
    one, two = Talker("one"), Talker("two")
    key = (1, 2)
    records: list[Record] = [
        one.promise(0), one.send({(0, key): 3}), one.close([key], 1),
        RosterChange("job", "A", 1, 0, ("one", "two")),
        two.promise(0), two.send({(0, key): 5, (1, key): 1}), two.end(), one.end(),
    ]  # fmt: skip
    for cuts in ((), (3,), (4, 6)):
        answer = Answer.of([o for outputs in run(arrived(records), plan_of(), ("one",), cuts) for o in outputs])
        assert answer.counts() == {0: {key: 3}, 1: {key: 1}}
        assert Reason.PUNCTUATED in answer.reasons(0)
        assert answer.completes[0].late == 5
        assert Reason.PUNCTUATED not in answer.reasons(1)


def test_a_source_that_begins_again_repeats_nothing_that_was_told() -> None:
    key, other = (1, 2), (1, 3)
    first, again = Talker("one"), Talker("one", epoch=1)
    records: list[Record] = [
        first.promise(0), first.send({(0, key): 3, (0, other): 1}), first.close([key], 1),
        again.promise(0), again.send({(0, key): 3, (0, other): 1}), again.end(),
    ]  # fmt: skip
    for cuts in ((), (3,), (2, 4)):
        answer = Answer.of([o for outputs in run(arrived(records), plan_of(), ("one",), cuts) for o in outputs])
        assert {k: n for k, n in answer.counts()[0].items() if k == key} == {key: 3}
        assert Reason.PUNCTUATED in answer.reasons(0)
