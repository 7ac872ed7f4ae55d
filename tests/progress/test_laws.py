"""What holds whatever happens to records on the way: never a wrong `exact`, contiguity, and no trace of the cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.punctuations import Account, Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows.values import FOREVER
from tests.progress.harness import (
    WIDTH,
    Item,
    Sender,
    change,
    completes,
    contiguous,
    dropped,
    exclusion,
    finite,
    outputs,
    plain,
    plan,
    readmission,
    run,
    run_live,
    window,
)  # fmt: skip

WINDOWS = st.one_of(
    st.builds(window, st.integers(1, 4), st.integers(1, 4)),
    st.builds(lambda slide: window(0, slide, WindowKind.LANDMARK), st.integers(1, 3)),
)
STEPS = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 3), st.integers(1, 5), max_size=3), st.integers(0, 3)), max_size=6
)
CONTROLS = st.lists(
    st.one_of(
        st.tuples(st.just(exclusion), st.sampled_from("ab"), st.integers(18, 30)),
        st.tuples(st.just(readmission), st.sampled_from("ab"), st.integers(18, 30)),
    ),
    max_size=3,
).map(lambda made: [make(version, source, at) for version, (make, source, at) in enumerate(made, 1)])


def control_of(version: int, make, whom, granule: int) -> Record:
    return change(version, granule, *sorted(whom)) if make is change else make(version, whom, granule)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just(exclusion), st.sampled_from("abc"), st.integers(18, 34)),
        st.tuples(st.just(readmission), st.sampled_from("abc"), st.integers(18, 34)),
        st.tuples(st.just(change), st.sets(st.sampled_from("abc"), min_size=1), st.integers(18, 34)),
    ),
    max_size=5,
).map(lambda drawn: [control_of(version, *each) for version, each in enumerate(drawn, 1)])


@dataclass
class Life:
    """A lane's records in order, and the tuples that its source saw."""

    kind: SourceKind
    records: list[Record]
    seen: Counter[int] = field(default_factory=Counter)


def life(sender: Sender, steps, start: int, ended: bool, resident: dict[int, int]) -> Life:
    """Batches and promises by turns; `resident` was in the table when the process died, and never left it."""
    sender.promised = start
    made = Life(sender.kind, [])
    for content, ahead in steps:
        panes = {sender.promised + pane: tuples for pane, tuples in content.items()}
        if panes:
            made.records.append(sender.batch(panes))
            made.seen.update(panes)
        if ahead:
            made.records.append(sender.promise(sender.promised + ahead))
    if ended:
        made.records.append(sender.end() if sender.kind is SourceKind.FINITE else sender.promise(sender.promised + 9))
    else:
        made.seen.update({sender.promised + pane: tuples for pane, tuples in resident.items()})
    return made


def draw_lives(draw, name: str, restarts: bool) -> list[Life]:
    """The lives of one source, one after the other."""
    resident = st.dictionaries(st.integers(0, 3), st.integers(1, 5), max_size=2)
    start = draw(st.integers(20, 22))
    if draw(st.booleans()):
        # A finite source: each life reads the same from the beginning.
        steps = draw(STEPS)
        lives = []
        if restarts and draw(st.booleans()):
            kept = steps[: draw(st.integers(0, len(steps)))]
            lives.append(life(Sender(name, 1), kept, start, False, {}))
        lives.append(life(Sender(name, 2), steps, start, True, {}))
        for before in lives[:-1]:
            before.seen.clear()  # nothing but what the whole reading holds
        return lives
    lives, epochs = [], draw(st.integers(1, 3)) if restarts else 1
    for epoch in range(1, epochs + 1):
        begins = start * WIDTH + draw(st.integers(-WIDTH + 1, 0))
        sender = Sender(name, epoch, SourceKind.LIVE, begins)
        made = life(sender, draw(STEPS), start, epoch == epochs, draw(resident))
        if epoch < epochs and not made.records:
            made.records.append(sender.promise(sender.promised))
        lives.append(made)
        start = max([sender.promised, *(pane + 1 for pane in made.seen)]) + draw(st.integers(0, 2))
    return lives


def interleave(draw, lanes: Sequence[Sequence[tuple[Record, SourceKind]]]) -> list[Item]:
    order = draw(st.permutations([index for index, lane in enumerate(lanes) for _ in lane]))
    queues = [iter(lane) for lane in lanes]
    merged = [next(queues[index]) for index in order]
    return [(record, Arrival(position, kind)) for position, (record, kind) in enumerate(merged)]


def truth(extent: range, over: Window, lives: Sequence[Life]) -> int:
    def inside(pane: int) -> bool:
        return pane < extent.stop if over.kind is WindowKind.LANDMARK else pane in extent

    return sum(tuples for one in lives for pane, tuples in one.seen.items() if inside(pane))


def no_wrong_exact(found: Sequence[Complete], over: Window, lives: Sequence[Life]) -> None:
    for complete in found:
        assert complete.windows is not None
        if not complete.verdict.exact:
            continue
        held = [truth(over.extent(k), over, lives) for k in range(complete.windows.first, complete.windows.to + 1)]
        if len(held) == 1:
            assert (complete.merged, complete.promised) == (held[0], held[0]), complete
        else:
            assert over.kind is WindowKind.LANDMARK or not any(held), complete


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_undisturbed_records_give_exact_windows_that_hold_every_tuple(data):
    over = data.draw(WINDOWS)
    lives = [draw_lives(data.draw, name, restarts=False)[0] for name in "ab"]
    items = interleave(data.draw, [[(record, one.kind) for record in one.records] for one in lives])
    found = completes([run_live(items, [plan(over)], Roster.of({"Main": ("a", "b")}))])
    assert contiguous(found)
    assert all(complete.verdict.exact for complete in found)
    no_wrong_exact(found, over, lives)
    closed = [bound(one) for one in lives]
    told = {wid for c in found if c.rows for wid in range(c.windows.first, c.windows.to + 1)}
    panes = {pane for one in lives for pane in one.seen}
    due = {wid for pane in panes for wid in over.wids(pane) if over.extent(wid).stop <= min(closed)}
    assert due <= told


def bound(one: Life) -> int:
    """Up to which pane the lane's promises reach."""
    reached = -1000
    for record in one.records:
        if isinstance(record, Punctuation):
            reached = FOREVER if record.promise.last else max(reached, record.promise.below("ts") // WIDTH)
    return reached


@settings(max_examples=90, deadline=None)
@given(st.data())
def test_never_a_wrong_exact(data):
    over = data.draw(WINDOWS)
    lives, lanes = [], []
    for name in "ab":
        for one in draw_lives(data.draw, name, restarts=True):
            lives.append(one)
            records = []
            for record in one.records:
                fate = data.draw(st.sampled_from(["kept"] * 8 + ["lost", "twice"]))
                records += [(record, one.kind)] * {"kept": 1, "lost": 0, "twice": 2}[fate]
            lanes.append(records)
    lanes.append([(control, SourceKind.FINITE) for control in data.draw(CONTROLS)])
    items = interleave(data.draw, lanes)
    outcome = run_live(items, [plan(over)], Roster.of({"Main": ("a", "b")}))
    found = completes([outcome])
    assert contiguous(found)
    amended = {
        wid for o in outcome.outputs if isinstance(o, Amendment) for wid in range(o.windows.first, o.windows.to + 1)
    }
    # Of lives before the first that it hears of, a bucket knows nothing: windows that reach there say `partial`.
    claims = [c for c in found if c.windows.first not in amended and not c.verdict.partial]
    no_wrong_exact(claims, over, lives)
    assert all(complete.merged <= complete.promised or not complete.verdict.exact for complete in found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cuts_and_stored_state_leave_no_trace(data):
    plans = [plan(data.draw(WINDOWS), name) for name in "pq"]
    lanes = []
    for name in "abc":
        for one in draw_lives(data.draw, name, restarts=True):
            records = [(r, one.kind) for r in one.records if data.draw(st.integers(0, 9))]
            lanes.append(records)
    lanes.append([(control, SourceKind.FINITE) for control in data.draw(CHANGES)])
    items = interleave(data.draw, lanes)
    roster = Roster.of({"Main": ("a", "b")})
    cuts = data.draw(st.lists(st.integers(0, len(items)), max_size=4))
    whole = run_live(items, plans, roster)
    pieces = run(items, plans, roster, cuts)
    assert [plain(output) for output in outputs(pieces)] == [plain(output) for output in whole.outputs]
    for name in ("merged", "late", "duplicates", "gaps", "fenced", "replayed", "unlisted", "rows_in"):
        assert sum(getattr(piece.counts, name) for piece in pieces) == getattr(whole.counts, name)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_the_source_says_against_a_granule_reaches_exactly_its_windows(data):
    over = data.draw(st.builds(window, st.integers(1, 4), st.integers(1, 4)))
    losses = data.draw(st.dictionaries(st.integers(20, 29), st.tuples(*[st.integers(0, 2)] * 3), max_size=3))
    a = Sender("a")
    records: list[Record] = [a.batch(dict.fromkeys(range(20, 30), 1))]
    accounts = [Account(granule, 1, 1, late, given) for granule, (late, _, given) in losses.items()]
    taints = [dropped(granule, frames) for granule, (_, frames, _) in losses.items() if frames]
    cut = data.draw(st.integers(20, 30))
    records += [a.promise(cut, *taints, *(account for account in accounts if account.granule < cut))]
    records += [a.promise(30, *(account for account in accounts if account.granule >= cut)), a.end()]
    found = completes(run(finite(records), [plan(over)], Roster.of({"Main": ("a",)})))
    for complete in found:
        assert complete.windows is not None
        held = [losses[pane] for pane in over.extent(complete.windows.first) if pane in losses]
        late, lost, given_up = (sum(counts[index] for counts in held) for index in range(3))
        assert (complete.late, complete.dropped) == (late, lost)
        said = {reason.value for reason in complete.verdict.reasons}
        assert said == {name for name, n in (("late", late), ("dropped", lost), ("given-up", given_up)) if n}


def listed_tuples(extent: range, over: Window, lives: Mapping[str, Sequence[Life]], roster: Roster) -> int:
    """The tuples in a window of the sources that the roster lists for their granule."""
    within = range(-1000, extent.stop) if over.kind is WindowKind.LANDMARK else extent
    return sum(
        tuples
        for source, each in lives.items()
        for one in each
        for pane, tuples in one.seen.items()
        if pane in within and roster.belongs(source, ("Main",), pane * WIDTH)
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_exact_window_holds_exactly_the_tuples_of_the_sources_that_its_roster_lists(data):
    """Whatever the job decides, wherever the decision stands among the records, wherever they are cut."""
    over = data.draw(WINDOWS)
    lives = {name: draw_lives(data.draw, name, restarts=True) for name in "abc"}
    lanes = [[(record, one.kind) for one in each for record in one.records] for each in lives.values()]
    decided = data.draw(CHANGES)
    lanes.append([(control, SourceKind.FINITE) for control in decided])
    items = interleave(data.draw, lanes)
    roster = after = Roster.of({"Main": ("a", "b")})
    for control in decided:
        after = after.changed(control)
    cuts = data.draw(st.lists(st.integers(0, len(items)), max_size=3))
    outcomes = run(items, [plan(over)], roster, cuts)
    found = completes(outcomes)
    assert contiguous(found)
    amended = {o.windows.first + n for o in outputs(outcomes) if isinstance(o, Amendment) for n in _run(o)}
    for complete in found:
        wids = [wid for wid in range(complete.windows.first, complete.windows.to + 1) if wid not in amended]
        if not complete.verdict.exact or complete.verdict.partial or not wids:
            continue
        held = [listed_tuples(over.extent(wid), over, lives, after) for wid in wids]
        if complete.windows.first == complete.windows.to:
            assert complete.merged == held[0], (complete, after)
        else:
            assert over.kind is WindowKind.LANDMARK or not any(held), (complete, after)


def _run(amendment: Amendment) -> range:
    return range(amendment.windows.to + 1 - amendment.windows.first)
