"""Promises about values: what holds for all inputs of a union, all sources of a node, all buckets of an exchange."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.build import Build, build
from highlevel.graph import Graph
from highlevel.interface import MarkOut, Operator, Out, State, Words
from highlevel.limits import GroupLimit
from highlevel.progress.driver import BucketDriver
from highlevel.progress.lanes import Lane, Lanes
from highlevel.progress.outputs import Forward
from highlevel.progress.promises.stored_values import LaneValues
from highlevel.progress.promises.values import ValuePromises, in_panes, news, of_all
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.row_marks import RowMark
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Aggregate, Join, Pane, QueryPlan, StepPlan
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import PANE, Origin
from lowmark.wire.records.punctuations import Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER

PANES = st.integers(-3, 6)
VALUES = st.lists(st.integers(-2, 4), max_size=4)


def about(column: str, values: Sequence[int], below: int | None = None) -> Promise:
    time = () if below is None else (Bound(PANE, below=below),)
    return Promise((Bound(column, values=ValueSet.of(values)), *time))


def about_pairs(values: Sequence[tuple[int, int]], below: int | None = None) -> Promise:
    time = () if below is None else (Bound(PANE, below=below),)
    return Promise((Bound(("a", "b"), values=ValueSet.of_tuples(values, 2)), *time))


PAIRS = st.lists(st.tuples(st.integers(-2, 1), st.integers(-1, 2)), max_size=4)
PROMISES = st.lists(
    st.builds(about, st.sampled_from("ab"), VALUES, st.none() | PANES)
    | st.builds(about_pairs, PAIRS, st.none() | PANES),
    max_size=6,
)


def bounds_of(promises: Sequence[Promise]) -> dict[tuple[str | tuple[str, ...], int | tuple[int, ...]], int]:
    """By column or columns and value: the pane below which no later row has it."""
    found: dict[tuple[str | tuple[str, ...], int | tuple[int, ...]], int] = {}
    for promise in promises:
        (named,) = (bound for bound in promise.bounds if bound.values is not None)
        below = next((bound.below for bound in promise.bounds if bound.below is not None), FOREVER)
        for value in named.values.integers() if named.values.columns == 1 else named.values.tuples():
            found[named.column, value] = max(below, found.get((named.column, value), NEVER))
    return found


def taken(promises: Sequence[Promise]) -> ValuePromises:
    kept = ValuePromises()
    for promise in promises:
        kept.take(promise)
    return ValuePromises.of_rows(json.loads(json.dumps(kept.rows())))


@given(st.lists(st.tuples(PANES | st.just(FOREVER), PROMISES), min_size=1, max_size=4))
def test_of_a_value_all_inputs_have_promised_the_least_of_their_bounds(inputs: list[tuple[int, list[Promise]]]) -> None:
    ended = min(front for front, _ in inputs)
    each = [(front, bounds_of(promises)) for front, promises in inputs]
    expected = {}
    for key in {key for _, bounds in each for key in bounds}:
        bound = min(max(front, bounds.get(key, NEVER)) for front, bounds in each)
        if bound > ended:
            expected[key] = bound
    found = of_all([(front, taken(promises)) for front, promises in inputs])
    assert bounds_of([*news(ValuePromises(), found)]) == expected


@given(PROMISES, PROMISES)
def test_news_are_what_was_not_known(first: list[Promise], more: list[Promise]) -> None:
    before, after = taken(first), taken([*first, *more])
    known, now = bounds_of(first), bounds_of([*first, *more])
    told = bounds_of([*news(before, after)])
    assert told == {key: bound for key, bound in now.items() if bound > known.get(key, NEVER)}


@given(PROMISES, PANES)
def test_what_says_no_more_than_the_front_is_forgotten(promises: list[Promise], front: int) -> None:
    kept = taken(promises)
    kept.prune(front)
    left = {key: bound for key, bound in bounds_of(promises).items() if bound > front}
    assert bounds_of([*news(ValuePromises(), kept)]) == left


def test_what_is_kept_is_bounded() -> None:
    kept = taken([about("a", range(1 << 14), 5), about("a", range(1 << 14, (1 << 14) + 10), 9)])
    bounds = bounds_of([*news(ValuePromises(), kept)])
    assert len(bounds) == 1 << 14
    assert all(bounds["a", value] == 9 for value in range(1 << 14, (1 << 14) + 10))


def test_a_source_that_names_ever_other_columns_takes_no_more_memory() -> None:
    kept = ValuePromises()
    found = [kept.take(about(f"c{number}", [1])) for number in range(100)]
    assert found == [True] * 16 + [False] * 84
    assert kept.take(about("c3", [2]))
    assert len(kept.rows()) == 16
    assert (kept.room(("c3",)), kept.room(("c16",))) == ((1 << 14) - 2, 0)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Kind.INT, [-(2**63), -1, 0, 2**63 - 1]), (Kind.MAC, [0, 2**48 - 1]),
        (Kind.IP, [4 << 128 | 0x0A000001, 6 << 128 | 2**128 - 1]), (Kind.COMMUNITY_ID, [0, 2**160 - 1]),
    ],
)  # fmt: skip
def test_sets_are_words_of_rows(kind: Kind, values: list[int]) -> None:
    words = ValueSet.of(values).words(kind)
    assert words.shape == (len(values), kind.words)
    assert ValueSet.of_words(words) == ValueSet.of(values)
    assert ValueSet.of_words(words).integers() == values


class Recording:
    """Passes everything to an operator, and notes the promises that it gets, with their port."""

    def __init__(self, inner: Operator, heard: list[tuple[int, Promise]]) -> None:
        self.inner, self.heard = inner, heard

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        self.heard.append((port, promise))
        self.inner.on_promise(port, promise, state, out)


def recording(kind: type, heard: list[tuple[int, Promise]]) -> Build:
    def made(plan: StepPlan, limit: GroupLimit) -> Operator:
        operator = build(plan, limit)
        return Recording(operator, heard) if isinstance(plan, kind) else operator

    return made


def values_heard(heard: Sequence[tuple[int, Promise]]) -> dict[tuple[str, int], int]:
    return bounds_of([promise for _, promise in heard if any(bound.values is not None for bound in promise.bounds)])


JOINED = "SELECT M1.srcPort AS p, count(*) AS c [RANGE 10 s, WA M1.ts] FROM {} AS M1 [RANGE 3 s, WA ts], C AS M2 [RANGE 2 s, WA ts] WHERE M1.destIP = M2.destIP GROUP BY M1.srcPort"  # noqa: E501


def compiled(source: str, counts: Mapping[str, int]) -> QueryPlan:
    return compile_query(JOINED.format(source), name="q", streams=dict(counts), buckets=2)


@pytest.mark.parametrize("stored", [False, True])
def test_a_node_promises_what_all_its_sources_have(stored: bool) -> None:
    plan = compiled("A", {"A": 2, "C": 1})
    node = next(node for node in plan.stage.nodes if node.streams == ("A",))
    heard: list[tuple[int, Promise]] = []
    roster, store = Roster.of({"A": ("one", "two"), "C": ("c",)}), MemoryByteStore()
    live, sequence = MemoryState(), {"one": 0, "two": 0}
    driver = BucketDriver(plan.stage, (plan,), 0, live, roster, 1, recording(Join, heard))
    position = 0

    def tell(source: str, promise: Promise) -> dict[tuple[str, int], int]:
        nonlocal driver, position
        heard.clear()
        origin = Origin(plan.stage.fingerprint, source, 0, node.name)
        record = decoded(Punctuation(origin, sequence[source], promise, LaneLedger()))
        sequence[source] += 1
        if stored:
            state = PiecewiseState(store, plan.stage.fingerprint)
            driver = BucketDriver(plan.stage, (plan,), 0, state, roster, 1, recording(Join, heard))
        driver.take(record, Arrival(position))
        position += 1
        if stored:
            driver.flush()
            state.commit()
        return values_heard(heard)

    width = node.reduction.pane.width
    ports = lambda *values: Bound("srcPort", values=ValueSet.of(values))  # noqa: E731
    assert tell("one", Promise((ports(53, 80), Bound("ts", below=9 * width)))) == {}
    assert tell("two", Promise((ports(80, 443), Bound("ts", below=7 * width + 1)))) == {("srcPort", 80): 7}
    assert tell("two", Promise((ports(53),))) == {("srcPort", 53): 9}
    # A source that promises nothing about a value contributes the panes that have ended.
    assert tell("two", Promise((Bound("ts", below=8 * width),))) == {("srcPort", 80): 8}
    # Without a bound on time nothing is told: a source that joins later has not promised it.
    assert tell("one", Promise((), last=True)) == {}


def decoded(record: Punctuation) -> Record:
    wire = encode(record)
    found = decode(wire.headers, wire.value)
    assert found == record
    assert isinstance(found, Punctuation)
    return found


def test_a_union_gets_what_all_its_members_have_promised() -> None:
    plan = compiled("A UNION (SELECT * FROM B WHERE proto = 6)", {"A": 1, "B": 1, "C": 1})
    heard: list[tuple[int, Promise]] = []
    graph = Graph((plan,), recording(Join, heard), MemoryState())
    one, other = (node.name for node in plan.stage.nodes if node.streams in (("A",), ("B",)))
    graph.promise_jointly(one, about("srcPort", (53, 80), 9))
    assert heard == []
    graph.promise_jointly(other, about("srcPort", (80, 443), 7))
    assert values_heard(heard) == {("srcPort", 80): 7}
    heard.clear()
    graph.promise(other, 8)
    assert values_heard(heard) == {("srcPort", 53): 8, ("srcPort", 80): 8}


class _Telling:
    """In the place of a join: with its first input's promise, says that values are over."""

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        pass

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        out.promise(0, Promise((Bound("M1.srcPort", values=ValueSet.of((53,))), Bound("M1.ts", below=25 * 10**9))))

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, mark)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


def test_values_travel_through_reductions_and_exchanges() -> None:
    """A bucket hears of a value when all buckets have promised it, in the panes of the exchange."""
    plan = compiled("A", {"A": 1, "C": 1})
    heard: list[tuple[int, Promise]] = []
    roster = Roster.of({"A": ("a",), "C": ("c",)})

    def made(step: StepPlan, limit: GroupLimit) -> Operator:
        return _Telling() if isinstance(step, Join) else recording(Aggregate, heard)(step, limit)

    drivers = [BucketDriver(plan.stage, (plan,), bucket, MemoryState(), roster, 1, made) for bucket in (0, 1)]
    origin = Origin(plan.stage.fingerprint, "a", 0, plan.stage.nodes[0].name)
    position = 0
    for driver in drivers:
        assert values_heard(heard) == {}
        driver.take(Punctuation(origin, 0, Promise((Bound("ts", below=10**9),)), LaneLedger()), Arrival(0))
        for output in driver.flush().outputs:
            assert isinstance(output, Forward)
            position += 1
            assert isinstance(output.record, Punctuation)
            drivers[output.partition].take(decoded(output.record), Arrival(position))
    assert values_heard(heard) == {("p", 53): 2}


def test_a_bound_on_the_attribute_is_one_on_panes() -> None:
    promise = Promise((Bound("a", values=ValueSet.of((1,))), Bound("ts", below=29)))
    assert in_panes(promise, Pane(10)) == about("a", (1,), 2)
    kept = ValuePromises()
    kept.take(promise)
    assert not kept, "of another column than panes nothing is kept"


def test_equal_sets_have_equal_hashes() -> None:
    assert {ValueSet.of((1, 2)), ValueSet.of(np.array([1, 2]).tolist())} == {ValueSet.of((1, 2))}
    assert ValueSet.of((1, 2)) != ValueSet.of((2, 1))


def test_a_micro_batch_writes_what_came_in_it() -> None:
    """Few pieces, each promise written a few times; what lanes have promised is there again, and leaves with its
    panes."""
    store, stored, rounds = MemoryByteStore(), Lanes().encode(), 200
    written = 0
    for at in range(rounds):
        state, lanes = PiecewiseState(store, "stage"), Lanes.decode(stored)
        values = LaneValues(state, "values", lanes)
        for source in ("a", "b"):
            lane, _ = entered(lanes, source, at)
            promise = about("c", range(10 * at, 10 * at + 10), at + 20)
            lane.values.take(promise)
            values.add(lane, promise)
        values.save()
        written += state.commit()
        stored = lanes.encode()
        assert len(store.pieces) < 10
    size = sum(map(len, store.pieces.values()))
    assert written < 10 * size
    lanes = Lanes.decode(stored)
    values = LaneValues(PiecewiseState(store, "stage"), "values", lanes)
    for lane in lanes:
        assert len(bounds_of([*news(ValuePromises(), lane.values)])) == 10 * rounds
        lane.promised = rounds + 20
    state = PiecewiseState(store, "stage")
    values = LaneValues(state, "values", lanes)
    assert not any(lane.values for lane in lanes)
    values.save()
    state.commit()
    assert "values" not in {name for name, _ in store.pieces}


def test_what_a_lane_has_lost_for_other_promises_does_not_come_back() -> None:
    store, lanes = MemoryByteStore(), Lanes()
    many = 1 << 14
    for at, (values, below) in enumerate([(range(many), 5), (range(many, many + 10), 9)]):
        state = PiecewiseState(store, "stage")
        lanes = Lanes.decode(lanes.encode())
        log = LaneValues(state, "values", lanes)
        lane, _ = entered(lanes, "a", at)
        lane.values.take(about("c", values, below))
        log.add(lane, about("c", values, below))
        kept = bounds_of([*news(ValuePromises(), lane.values)])
        log.save()
        state.commit()
    again = Lanes.decode(lanes.encode())
    LaneValues(PiecewiseState(store, "stage"), "values", again)
    (lane,) = again
    assert bounds_of([*news(ValuePromises(), lane.values)]) == kept


def entered(lanes: Lanes, source: str, number: int) -> tuple[Lane, int | None]:
    origin = Origin("stage", source, 1, "node")
    lanes.fence(origin, SourceKind.LIVE)
    return lanes.enter(origin, number, SourceKind.LIVE)
