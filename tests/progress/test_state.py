"""State in pieces, the roster's bounds, frontiers and marks: each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highlevel.interface import Space
from highlevel.piece_directory import Directory
from highlevel.progress.granules import granule_of_time, promised_granule
from highlevel.progress.promises.frontier import Frontier
from highlevel.rosters.roster import Member, Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState, ScopedState, StateRefused
from highlevel.verdicts.marks import Mark, Marks
from lowmark.query.plan.nodes import Pane
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.rosters import Exclusion, Return, RosterChange
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, NEVER
from tests.progress.harness import Sender


def together(parts: Sequence[list[int]]) -> list[int]:
    return [number for part in parts for number in part]


LISTS: Space[list[int]] = Space("lists", bytes, list)
OTHERS: Space[list[int]] = Space("others", bytes, list, together)


class Log:
    """Takes lines at its end, and tells those that are new."""

    def __init__(self, lines: Sequence[int]) -> None:
        self.lines, self.told = list(lines), len(lines)

    def news(self) -> Log | None:
        told, self.told = self.told, len(self.lines)
        return Log(self.lines[told:]) if told <= len(self.lines) else None


LOGS: Space[Log] = Space(
    "logs", lambda log: bytes(log.lines), lambda data: Log([*data]),
    lambda parts: Log(together([part.lines for part in parts])), Log.news,
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(["append", "append", "take", "replace", "drop"]), st.booleans()), max_size=40)
)
def test_a_piece_that_tells_its_news_is_stored_as_it_is(steps):
    """Whether it grows, loses lines, is replaced or leaves, in one micro-batch or another."""
    store, lines = MemoryByteStore(), list[int]()
    state = PiecewiseState(store, "beef")
    for number, (step, ends) in enumerate(steps):
        log = state.get(LOGS, 1) or Log([])
        if step == "drop":
            state.drop(LOGS, 1)
            lines = []
        else:
            if step == "replace":
                log, lines = Log([]), []
            if step == "take" and lines:
                del log.lines[0], lines[0]
                log.told = 1 << 30
            else:
                log.lines.append(number)
                lines.append(number)
            state.put(LOGS, 1, log)
        if ends:
            state.commit()
            state = PiecewiseState(store, "beef")
        found = state.get(LOGS, 1)
        assert ([] if found is None else found.lines) == lines


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "change", "commit", "reopen", "add", "add", "add and reopen"]),
        st.sampled_from([LISTS, OTHERS]),
        st.integers(-3, 3),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 2, 1 << 15]))
def test_pieces_over_bytes_are_those_of_live_objects(steps, small):
    """After a commit, whatever was changed and put is found again by who comes later. `small`: bytes of a tail."""
    with patch("highlevel.state._SMALL", small):
        follow(steps, MemoryByteStore(), MemoryState())


def follow(steps: list[tuple[str, Space[list[int]], int]], store: MemoryByteStore, live: MemoryState) -> None:
    state = PiecewiseState(store, "beef")
    for number, (step, space, key) in enumerate(steps):
        for target in (live, state):
            if step == "put":
                target.put(space, key, [number])
            elif step == "drop":
                target.drop(space, key)
            elif step == "change" and (piece := target.get(space, key)) is not None:
                piece.append(number)
                target.put(space, key, piece)
            elif step.startswith("add"):
                part = target.part(OTHERS, key)
                part = [] if part is None else part
                part.append(number)
                target.add(OTHERS, key, part)
        if step in ("commit", "reopen", "add and reopen"):
            state.commit()
        if step.endswith("reopen"):
            state = PiecewiseState(store, "beef")
        for each in (LISTS, OTHERS):
            assert state.keys(each) == live.keys(each) == sorted(live.keys(each))
            assert state.keys(each, 1) == [key for key in live.keys(each) if key < 1]
            assert [state.get(each, key) for key in range(-3, 4)] == [live.get(each, key) for key in range(-3, 4)]


def test_a_space_reads_the_version_before_and_writes_its_own():
    store = MemoryByteStore()
    first = PiecewiseState(store, "beef")
    for key in (1, 2):
        first.put(LISTS, key, [key])
    first.commit()

    def later(version):
        turned = replace(LISTS, encode=lambda of: bytes(of[::-1]), decode=lambda of: [*of[::-1]])
        return replace(turned, version=version, before=list)

    for expected in ([1], [1, 7]):
        state = PiecewiseState(store, "beef")
        assert state.get(later(2), 1) == expected
        state.put(later(2), 1, [1, 7])
        state.commit()
    assert PiecewiseState(store, "beef").get(later(2), 2) == [2]
    with pytest.raises(StateRefused, match=r"lists\) has version 2: this program reads 1"):
        PiecewiseState(store, "beef").get(LISTS, 1)
    with pytest.raises(StateRefused, match=r"lists\) has version 1: this program reads 4"):
        PiecewiseState(store, "beef").get(later(4), 2)


def test_a_commit_writes_what_was_put_and_no_more():
    store = MemoryByteStore()
    state = PiecewiseState(store, "beef")
    state.put(LISTS, 1, [1])
    state.put(LISTS, 2, [2])
    assert state.commit() > 0
    again = PiecewiseState(store, "beef")
    assert again.get(LISTS, 1) == [1]
    assert again.commit() == 0


class Counting(MemoryByteStore):
    """How many bytes were read, and how many written."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.written = 0

    def load(self, space: str, key: int) -> bytes | None:
        piece = super().load(space, key)
        self.read += len(piece or b"")
        return piece

    def store(self, space: str, key: int, piece: bytes) -> None:
        self.written += len(piece)
        super().store(space, key, piece)


BYTES: Space[bytes] = Space("bytes", bytes, bytes, b"".join)


@pytest.mark.parametrize("size", [10, 100_000])
def test_keys_are_listed_without_a_look_at_the_pieces(size):
    store = Counting()
    state = PiecewiseState(store, "beef")
    for key in range(400):
        state.put(BYTES, 1_000 + key, bytes(size))
    state.commit()
    assert PiecewiseState(store, "beef").keys(BYTES) == [*range(1_000, 1_400)]
    assert store.read < 100


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_micro_batch_writes_what_is_new_and_not_what_is_held(size):
    store, batches, tail = Counting(), 240, 1 << 15
    for number in range(batches):
        state = PiecewiseState(store, "beef")
        part = state.part(BYTES, 1) or b""
        assert len(part) <= tail
        state.add(BYTES, 1, part + bytes([number]) * size)
        state.commit()
    assert store.written < batches * (5 * size + tail)  # rewriting it all each time would be 120 times
    assert store.read < batches * (5 * size + tail)
    state = PiecewiseState(store, "beef")
    assert state.get(BYTES, 1) == b"".join(bytes([number]) * size for number in range(batches))
    state.drop(BYTES, 1)
    state.commit()
    assert [name for name, _ in store.pieces] == [""]


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_piece_that_was_read_from_its_parts_is_written_in_one(size):
    store = Counting()
    for _ in range(3):
        state = PiecewiseState(store, "beef")
        state.add(BYTES, 1, (state.part(BYTES, 1) or b"") + bytes(size))
        state.commit()
    state = PiecewiseState(store, "beef")
    assert state.get(BYTES, 1) == bytes(3 * size)
    state.commit()
    assert len([name for name, _ in store.pieces if name]) == 1
    written = store.written
    state = PiecewiseState(store, "beef")
    assert state.get(BYTES, 1) == bytes(3 * size)
    state.commit()
    assert store.written == written


def test_a_piece_read_from_its_parts_and_dropped_is_not_written():
    store = Counting()
    for _ in range(2):
        state = PiecewiseState(store, "beef")
        state.add(BYTES, 1, bytes(100_000))
        state.commit()
    written = store.written
    state = PiecewiseState(store, "beef")
    assert state.get(BYTES, 1) == bytes(200_000)
    state.drop(BYTES, 1)
    state.commit()
    assert store.written - written < 100
    assert [name for name, _ in store.pieces] == [""]


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=8), st.sets(st.integers(-9, 9)), st.integers(-1, 12))
def test_a_directory_knows_every_key_and_its_parts_again(any_keys, near, part):
    directory = Directory()
    for key in any_keys | near:
        directory.parts("some").add(key, part)
    for key in near:
        directory.parts("some").remove(key, part)
        directory.parts("more").add(key, part)
    again = Directory.decode(directory.encode())
    assert not directory.changed
    assert again.parts("some").keys() == sorted(any_keys - near)
    assert again.parts("more").keys() == sorted(near)
    assert all(again.parts("more").of(key) == [part] for key in near)
    assert again.encode() == directory.encode()


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"\0\x07\0\x01\0\x04beef", "has version 7: this program reads 11"),
        (b"\0\x0b\0\x01\0\x04cafe", "another stage than beef"),
        (b"\0\x0b\0\x02\0\x04beef", "has version 2: this program reads 1"),
    ],
)
def test_state_of_another_kind_is_refused(stored, message):
    store = MemoryByteStore()
    store.store("", 0, stored)
    with pytest.raises(StateRefused, match=message):
        PiecewiseState(store, "beef").get(LISTS, 1)


def test_operators_of_one_chain_do_not_meet():
    state = MemoryState()
    one, other = ScopedState(state, "q.0."), ScopedState(state, "q.1.")
    one.put(LISTS, 1, [1])
    assert other.get(LISTS, 1) is None
    assert (list(one.keys(LISTS)), list(other.keys(LISTS))) == ([1], [])


@given(st.integers(0, 9), st.integers(0, 9), st.lists(st.integers(0, 12), max_size=6, unique=True), st.integers(-2, 14))
def test_a_member_holds_up_the_first_granule_in_which_it_counts(joined, more, edges, promised):
    edges = sorted(edges)[: len(edges) // 2 * 2]
    runs = tuple(zip(edges[::2], edges[1::2], strict=True))
    member = Member("a", joined, joined + more, runs)

    def free(granule: int) -> bool:
        return not member.belongs(granule) or any(start <= granule < stop for start, stop in runs)

    held = next((granule for granule in range(promised, 40) if not free(granule)), FOREVER)
    assert member.bound(promised) == held


SOURCES = st.sampled_from("abc")
GRANULES = st.integers(0, 20)
ROSTERS = st.lists(SOURCES, unique=True).map(tuple)
CONTROLS = st.one_of(
    st.builds(RosterChange, st.just("job"), st.just("Main"), st.integers(0, 9), GRANULES, ROSTERS),
    st.builds(Exclusion, st.just("job"), st.just("Main"), st.integers(0, 9), GRANULES, SOURCES),
    st.builds(Return, st.just("job"), st.just("Main"), st.integers(0, 9), GRANULES, SOURCES),
)


@given(st.lists(CONTROLS, max_size=8))
def test_a_roster_survives_and_its_runs_stay_in_order(controls):
    roster = Roster.of({"Main": ("a", "b")})
    for control in controls:
        roster = roster.changed(control)
    assert Roster.decode(roster.encode()) == roster
    for member in roster.members(("Main",)):
        edges = [edge for run in member.excluded for edge in run]
        assert edges == sorted(edges)


def test_frontiers_never_regress():
    frontier = Frontier()
    assert frontier.advance(5) == (NEVER, 5)
    assert frontier.advance(5) is None
    assert frontier.advance(3) is None
    assert frontier.is_late(4)
    assert not frontier.is_late(5)


MOVES = st.lists(st.one_of(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 9)),
    st.tuples(st.just("exclude"), st.integers(0, 9)),
    st.tuples(st.just("return"), st.integers(0, 9)),
), max_size=30)  # fmt: skip


@given(MOVES)
def test_a_frontier_that_looks_only_when_it_must_misses_nothing(moves):
    roster = Roster.of({"Main": ("a", "b", "c", "d")})
    promised = dict.fromkeys("abcd", NEVER)
    frontier, value = Frontier(), NEVER
    for what, granule in moves:
        if what in promised:
            promised[what] = max(promised[what], granule)
        else:
            roster = roster.changed(
                (Exclusion if what == "exclude" else Return)("job", "Main", roster.versions["Main"] + 1, granule, "b")
            )
        bounds = [member.bound(promised[member.source]) for member in roster.members(("Main",))]
        value = max(value, min(bounds))
        if what not in promised or frontier.passed_by(what, promised[what]):
            frontier.advance(frontier.closed_by(roster, ("Main",), promised.__getitem__))
        assert frontier.value == value


@pytest.mark.parametrize(
    ("promise", "granule"),
    [
        (Promise((Bound("ts", 49),)), 4), (Promise((Bound("ts", 50),)), 5), (Promise((Bound("pane", 7),)), 7),
        (Promise((), last=True), FOREVER), (Promise((Bound("ts", FOREVER),)), FOREVER),
        (Promise((Bound("ts", 50), Bound("other", 5))), None),
        (Promise((Bound("ts", values=ValueSet.of((1,))),)), None),
        (Promise((Bound("other", 50),)), None),
    ],
)  # fmt: skip
def test_only_an_individual_bound_on_the_attribute_moves_a_frontier(promise, granule):
    assert promised_granule(promise, Pane(10)) == granule


@given(st.integers(1, 9), st.integers(-9, 9), st.integers(-99, 99))
def test_a_granule_counts_as_covered_from_its_first_instant(width, origin, time):
    pane = Pane(width, origin)
    granule = granule_of_time(pane, time)
    assert pane.start(granule - 1) < time <= pane.start(granule)


VERDICTS = st.builds(Verdict, st.frozensets(st.sampled_from([Reason.GAP, Reason.LATE]), max_size=2), st.booleans())
MARKS = st.builds(
    lambda start, length, verdict, late: Mark(start, start + length, verdict, 0, late),
    st.integers(0, 12), st.integers(0, 4), VERDICTS, st.sampled_from([0, 0, 2]),
)  # fmt: skip


@given(st.lists(MARKS, max_size=8), st.integers(0, 12))
def test_marks_say_of_a_granule_what_was_said_of_it(made, granule):
    marks = Marks()
    for mark in made:
        marks.add(mark)
    marks = Marks.of_rows(marks.rows())
    said = [mark for mark in made if mark.start <= granule < mark.stop]
    found = marks.finding(granule, granule + 1)
    assert found.late == sum(mark.late for mark in said)
    expected = Verdict()
    for mark in said:
        expected |= mark.verdict
    assert found.verdict == expected
    marks.prune(granule)
    assert marks.finding(granule, granule + 1) == found


@given(st.one_of(st.none(), st.integers(-(2**62), 2**62)))
def test_a_punctuation_says_from_when_on_its_epoch_covers(start_ns):
    record = Sender("a", start_ns=start_ns).promise(3)
    wire = encode(record)
    assert decode(wire.headers, wire.value) == record
