"""What steps that follow others' windows make of news: of windows that wait, that are out, that were passed over."""

from __future__ import annotations

from highlevel.events import Closing
from highlevel.progress.ledger import Ledger
from highlevel.state import MemoryState
from highlevel.verdicts.exchanged_windows import FollowedSequence
from highlevel.verdicts.marks import EXACT, Finding
from highlevel.verdicts.unions import MeldedSequence
from highlevel.verdicts.window_sequence import WindowRun
from lowmark.wire.records.verdicts import Reason, Verdict
from tests.progress.harness import node, window

LATE = Finding(Verdict(frozenset({Reason.LATE})), late=1)


def span(first: int, to: int) -> WindowRun:
    return WindowRun(first, to, 1, EXACT)


def lossy(spans: list[WindowRun]) -> list[int]:
    return [number for one in spans if not one.finding.verdict.exact for number in one.windows]


def test_behind_an_exchange_news_of_windows_that_do_not_wait_are_of_such_as_are_not_to_come() -> None:
    sequence = FollowedSequence(window(1, 1), Ledger(node(), MemoryState(), returns=True))
    assert sequence.learn("a", range(2, 4), LATE) == range(2, 4), "before the first, of which nothing has come"
    sequence.follow("a", [span(5, 5), span(6, 6)])
    assert sequence.learn("a", range(3, 6), LATE) == range(3, 5)
    assert lossy(sequence.close([Closing(range(5, 6), 1)], 6)) == [5]
    assert sequence.learn("a", range(3, 7), LATE) == range(3, 6)
    assert lossy(sequence.close([Closing(range(6, 7), 1)], 7)) == [6]
    assert sequence.learn("a", range(6, 7), LATE) == range(6, 7)


def test_in_a_union_another_member_may_tell_what_one_has_passed_over() -> None:
    sequence = MeldedSequence(window(1, 1), ("a", "b"))
    assert not sequence.learn("a", range(3, 4), LATE), "nothing has been told: it is to come"
    sequence.follow("a", [span(6, 6), span(7, 7)])
    assert not sequence.learn("a", range(4, 7), LATE)
    sequence.follow("b", [span(2, 2), span(3, 5), span(6, 6)])
    spans = sequence.close([], 7)
    assert (spans[0].first, spans[-1].to, lossy(spans)) == (2, 6, [3, 4, 5, 6])
    assert sequence.learn("b", range(1, 8), LATE) == range(1, 7)
    sequence.follow("b", [span(7, 7)])
    assert lossy(sequence.close([], 8)) == [7]
