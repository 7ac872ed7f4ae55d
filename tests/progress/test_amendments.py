"""What steps that follow others' windows make of news: of windows that wait, that are out, that were passed over."""

from __future__ import annotations

from highlevel.events import Closing
from highlevel.progress.ledger import Ledger
from highlevel.state import MemoryState
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.marks import EXACT, Finding, Mark
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowRun
from lowmark.wire.records.verdicts import Reason, Verdict
from tests.progress.harness import node, window

LATE = Verdict(frozenset({Reason.LATE}))


def span(first: int, to: int) -> WindowRun:
    return WindowRun(first, to, 1, EXACT)


def lossy(spans: list[WindowRun]) -> list[int]:
    return [number for one in spans if not one.finding.verdict.exact for number in one.windows]


Merging = FollowedSequence | MeldedSequence


def learn(sequence: Merging, windows: range) -> range:
    """A step below has closed or skipped these windows. Returns those that are out or not to come."""
    sequence.marks.add(Mark(windows.start, windows.stop, LATE, late=1))
    return sequence.closed_with(windows.start, windows.stop)


def test_behind_an_exchange_news_of_windows_that_do_not_wait_are_of_such_as_are_not_to_come() -> None:
    sequence = FollowedSequence(window(1, 1), Ledger(node(), MemoryState(), returns=True))
    assert learn(sequence, range(2, 4)) == range(2, 4), "before the first, of which nothing has come"
    sequence.follow("a", [span(5, 5), span(6, 6)])
    assert learn(sequence, range(3, 6)) == range(3, 5)
    (five,) = sequence.close([Closing(range(5, 6), 1)], 6)
    assert (five.windows, five.finding) == (range(5, 6), Finding(LATE, late=1))
    assert learn(sequence, range(3, 7)) == range(3, 6)
    assert lossy(sequence.close([Closing(range(6, 7), 1)], 7)) == [6]
    assert learn(sequence, range(6, 7)) == range(6, 7)


def test_in_a_union_another_member_may_tell_what_one_has_passed_over() -> None:
    sequence = MeldedSequence(window(1, 1), ("a", "b"))
    assert not learn(sequence, range(3, 4)), "nothing has been told: it is to come"
    sequence.follow("a", [span(6, 6), span(7, 7)])
    assert not learn(sequence, range(4, 7))
    sequence.follow("b", [span(2, 2), span(3, 5), span(6, 6)])
    spans = sequence.close([], 7)
    assert (spans[0].first, spans[-1].to, lossy(spans)) == (2, 6, [3, 4, 5, 6])
    assert learn(sequence, range(1, 8)) == range(1, 7)
    sequence.follow("b", [span(7, 7)])
    assert lossy(sequence.close([], 8)) == [7]
