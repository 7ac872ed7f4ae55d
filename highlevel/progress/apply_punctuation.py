"""Applies a punctuation to its lane and to the node's ledger: coverage, accounts, and what a gap may have hidden."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.progress.granules import ROW_NUMBER, granule_of_time, promised_granule
from highlevel.progress.lanes import Lane, accounted_losses, loss_counters
from highlevel.progress.ledger import Ledger, account_reasons
from highlevel.progress.promises.values import about_values, in_panes
from highlevel.rosters.roster import Roster
from highlevel.verdicts.marks import Finding
from lowmark.wire.records.punctuations import Account, Ending, LaneLedger, Punctuation, Taint
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.values import NEVER

__all__ = ["News", "receive"]

_GAP = frozenset({Reason.GAP})
_PARTIAL = Finding(Verdict(partial=True))
_NOT_COVERED = Finding(Verdict(frozenset({Reason.NOT_COVERED})))
_REPLAYED = Finding(Verdict(frozenset({Reason.REPLAYED})))


News = tuple[int, int, Finding]
"""A finding about the granules from … up to …, which have ended."""


def receive(record: Punctuation, lane: Lane, ledger: Ledger, roster: Roster) -> list[News]:
    """Apply a punctuation: it moves the lane's promise. On return, findings about granules that have already ended are
    in the ledger; the caller must announce them."""
    granule = promised_granule(record.promise, ledger.node.reduction.pane)
    after = lane.promised if granule is None else max(lane.promised, granule)
    if granule is not None and roster.lists(lane.source, ledger.node.streams):
        ledger.promised(lane, granule)
    _cover(lane, ledger, record.start_ns, granule, roster)
    news: list[News] = []
    for account in record.ledger.accounts:
        if account.granule >= lane.floor and roster.belongs(lane.source, ledger.node.streams, account.granule):
            news += _account(lane, ledger, account, lane.promised <= account.granule < after)
    for taint in record.ledger.taints:
        news += _taint(lane, ledger, taint, roster)
    if granule is not None:
        news += _settle_suspicion(lane, ledger, after, record.ledger, roster)
    lane.promised = after
    lane.stopped = record.ending is Ending.STOP  # work that a capture has removed may come back
    if about_values(record.promise):
        lane.values.take(in_panes(record.promise, ledger.node.reduction.pane))
    elif ledger.returns:
        lane.joint.take(record.promise)
    lane.values.prune(after)
    return news


def _cover(lane: Lane, ledger: Ledger, start_ns: int | None, granule: int | None, roster: Roster) -> None:
    """Set the time from which the lane's epoch covers its source, as its first punctuation states it. A live source
    that states no time covers nothing before its first promise. If an epoch begins before the previous one had ended,
    the time until then may have been seen twice."""
    if lane.covered or lane.kind is SourceKind.FINITE:
        return
    pane = ledger.node.reduction.pane
    if pane.attribute == ROW_NUMBER:
        touched, start = NEVER, NEVER
        if lane.resumes is not None:
            touched, start = lane.resumes, lane.resumes + 1
    elif start_ns is not None:
        touched, start = pane.index(start_ns), granule_of_time(pane, start_ns)
    elif granule is not None:
        touched, start = granule, granule
    else:
        return
    lane.covered = True
    lane.covers_from = start
    if lane.resumes is None:
        lane.covered_ns = start_ns
        missing = [(NEVER, start, _PARTIAL)]
    else:
        missing = [(lane.resumes, start, _NOT_COVERED), (touched, lane.resumes, _REPLAYED)]
    for first, stop, finding in missing:
        for run in _listed(lane, first, stop, ledger, roster):
            ledger.taint(*run, finding)


def _taint(lane: Lane, ledger: Ledger, taint: Taint, roster: Roster) -> Iterator[News]:
    """Mark the taint only where the source counts, because a source that began again repeats what it sent below its
    floor."""
    found = Finding(Verdict(frozenset(map(Reason, taint.reasons)), taint.partial), dropped=taint.dropped)
    for start, stop in _listed(lane, max(taint.start, lane.floor), taint.stop, ledger, roster):
        ledger.taint(start, stop, found)
        ended = min(stop, ledger.frontier.value)
        if start < ended:
            yield start, ended, found


def _listed(lane: Lane, start: int, stop: int, ledger: Ledger, roster: Roster) -> Iterator[tuple[int, int]]:
    """The runs within these granules in which the source counts."""
    for joined, left in roster.runs(lane.source, ledger.node.streams):
        if max(start, joined) < min(stop, left):
            yield max(start, joined), min(stop, left)


def _account(lane: Lane, ledger: Ledger, account: Account, final: bool) -> list[News]:
    ended = ledger.frontier.is_late(account.granule)
    if final and not ended:
        ledger.account(lane, account)
        return []
    # A granule ends without its lane's final account only when the lane was excluded, and that is marked. If a second
    # account promises tuples for a granule that the lane had promised already, they cannot be distinguished from lost
    # ones.
    reasons = account_reasons(account) | (_GAP if account.here and not final else frozenset())
    if not reasons:
        return []
    if not ended:
        ledger.supplement(lane, account, reasons)
        return []
    found = Finding(Verdict(reasons), late=account.late)
    ledger.taint(account.granule, account.granule + 1, found)
    return [(account.granule, account.granule + 1, found)]


def _settle_suspicion(lane: Lane, ledger: Ledger, after: int, told: LaneLedger, roster: Roster) -> list[News]:
    """Resolve a suspicion when a promise arrives. After a gap, a lost record may have held the missing accounts, and
    losses in granules promised before; the counters reveal the latter."""
    counters = loss_counters(told.counters)
    news: list[News] = []
    if lane.suspect is not None:
        why = Finding(Verdict(frozenset({lane.suspect})))
        for first, end in tuple(ledger.unaccounted(lane, lane.promised, after)):
            for start, stop in _listed(lane, first, end, ledger, roster):
                ledger.taint(start, stop, why)
        grown = tuple(now - then for now, then in zip(counters, lane.counters, strict=True))
        if grown != accounted_losses(told):
            for start, stop in _listed(lane, NEVER, after, ledger, roster):
                ledger.taint(start, stop, why)
                news.append((start, min(stop, ledger.frontier.value), why))
    lane.suspect, lane.counters = None, counters
    return news
