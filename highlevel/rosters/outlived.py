"""Decides which sources and exclusions a bucket may forget: those that no later record, window or witness needs.

A live source that has announced its stop sends nothing more in its epoch, and its next life has a greater one. Once it
has left its stream, and every frontier has passed the granule at which it left, it can be forgotten. A source that died
announces nothing, so the last such sources that left are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from highlevel.progress.granules import ROW_NUMBER, granule_of_time
from highlevel.progress.lanes import Lanes
from highlevel.progress.ledger import Ledger
from highlevel.rosters.roster import Member, Roster
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.values import FOREVER

__all__ = ["forget_outlived"]

_MOST_FORMER = 1_000
"""Most members kept of a stream that have left and may still send: their late rows amend windows."""


def forget_outlived(
    roster: Roster, nodes: Mapping[str, Node], ledgers: Mapping[str, Ledger], lanes: Lanes
) -> tuple[Roster, bool]:
    """Forget what is outlived, with its lanes. Returns the roster without it (the same object if nothing is outlived),
    and whether the next move of a frontier may outlive more; otherwise only a source that stops or a change of the
    roster can."""
    by_source = lanes.by_source()
    over = {source: all(lane.stopped for lane in of) for source, of in by_source.items()}
    streams = {
        stream: _kept(members, [ledgers[name] for name, node in nodes.items() if stream in node.streams], lanes, over)
        for stream, members in roster.streams.items()
    }
    members = [member for of in streams.values() for member in of]
    listed = {member.source for member in members}
    waiting = any(
        (member.left < FOREVER and over.get(member.source, True)) or any(stop < FOREVER for _, stop in member.excluded)
        for member in members
    )
    for source in by_source.keys() - listed:
        if over[source] and all(lane.promised <= ledgers[lane.node].frontier.value for lane in by_source[source]):
            lanes.forget(source)
        else:
            waiting |= over[source]
    return (roster if streams == roster.streams else replace(roster, streams=streams)), waiting


def _kept(
    members: tuple[Member, ...], readers: list[Ledger], lanes: Lanes, over: Mapping[str, bool]
) -> tuple[Member, ...]:  # fmt: skip
    """`over`: by source that has sent, whether its epoch is over. A node whose rows are numbered keeps all members,
    because numbers of rows are no times."""
    if not readers or any(ledger.node.reduction.pane.attribute == ROW_NUMBER for ledger in readers):
        return members
    kept, waiting = [], []
    for member in members:
        runs = tuple(run for run in member.excluded if not _is_over(member.source, run[1], readers, lanes))
        shorter = member if len(runs) == len(member.excluded) else replace(member, excluded=runs)
        if not all(_passed(ledger, member.left) for ledger in readers):
            kept.append(shorter)
        elif not over.get(member.source, True):
            kept.append(shorter)
            waiting.append(shorter)
    surplus = {id(member) for member in waiting[: max(0, len(waiting) - _MOST_FORMER)]}
    return tuple(member for member in kept if id(member) not in surplus)


def _is_over(source: str, stop: int, readers: list[Ledger], lanes: Lanes) -> bool:
    """Whether the frontiers of all nodes have passed the end of this exclusion, and the source has promised everything
    before it."""
    return all(
        _passed(ledger, stop)
        and lanes.promised(source, ledger.node.name) >= granule_of_time(ledger.node.reduction.pane, stop)
        for ledger in readers
    )


def _passed(ledger: Ledger, at: int) -> bool:
    """Whether the last ended granule begins at this time or later. Completions name the sources that count in that
    granule."""
    return at < FOREVER and granule_of_time(ledger.node.reduction.pane, at) < ledger.frontier.value
