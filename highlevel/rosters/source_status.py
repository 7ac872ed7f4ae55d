"""A bucket's status: how far it has come, and which sources let it go on or block it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from highlevel.join.oblivious.usage import Buffer
from highlevel.progress.lanes import Lanes
from highlevel.progress.ledger import Ledger
from highlevel.progress.place import Witness
from highlevel.rosters.roster import Member, Roster
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.values import FOREVER

__all__ = ["Progress", "Standing"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a bucket. Bounds are values of the nodes' attribute (`ts`: ns since 1970)."""

    complete_to: tuple[tuple[str, int | None], ...]  # by query; FOREVER: its sources have ended; None: nothing promised
    open_windows: tuple[tuple[str, int], ...]  # by query: upper limit of windows that hold tuples and are not closed
    fronts: tuple[tuple[str, int], ...]  # by node: the first granule that has not ended
    waiting: tuple[tuple[str, str], ...]  # (node, source): sources whose promise the node's frontier waits for
    returned: tuple[tuple[str, str], ...]  # (node, source): excluded sources whose promise has reached the frontier
    open_panes: int  # most panes of a node from its frontier to its last tuple
    heard: tuple[tuple[str, int], ...]  # by source: when its last record was appended, in ns; FOREVER: it has ended
    ended: bool  # all sources have ended: there will be no more output
    buffers: tuple[tuple[str, Buffer], ...] = ()  # by query: of its joins without windows


_Known = tuple[tuple[tuple[int, Mapping[str, int]], ...], Witness, tuple[tuple[str, str], ...]]
"""Frontiers and versions of rosters; the witness without excluded sources; (node, source) of these."""


class Standing:
    """Status of the capture nodes only; whatever blocks these also blocks what comes back through exchanges."""

    def __init__(
        self,
        nodes: Iterable[Node],
        ledgers: Mapping[str, Ledger],
        lanes: Lanes,
        rosters: Callable[[], Mapping[str, Roster]],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._ledgers = ledgers
        self._lanes = lanes
        self._rosters = rosters
        self._heard_ns: dict[str, int] = {}
        self._witnesses: dict[tuple[str, ...], _Known] = {}  # by nodes: the last one, and of which frontiers it is

    def fronts(self) -> Iterator[tuple[str, int]]:
        """By node, the first granule that has not ended."""
        for name in self._nodes:
            yield name, self._ledgers[name].frontier.value

    def waiting(self) -> Iterator[tuple[str, str]]:
        """(node, source): the sources whose promise the node's frontier waits for."""
        for name, node in self._nodes.items():
            front = self._ledgers[name].frontier.value
            for member in self._rosters()[name].members(node.streams):
                if member.bound(self._lanes.promised(member.source, name)) <= front < FOREVER:
                    yield name, member.source

    def returned(self) -> Iterator[tuple[str, str]]:
        """(node, source): the excluded sources that have promised as much as the node's frontier."""
        for name, node in self._nodes.items():
            front = self._ledgers[name].frontier.value
            for member in self._rosters()[name].members(node.streams):
                if member.open_excluded and self._lanes.promised(member.source, name) >= front:
                    yield name, member.source

    def open_panes(self) -> int:
        """The most panes of a node that are open, from its frontier, or its first tuple, to its last tuple."""
        ledgers = [self._ledgers[name] for name in self._nodes]
        spans = ((max(each.frontier.value, each.low), each.high) for each in ledgers if each.low is not None)
        return max((high + 1 - low for low, high in spans if high is not None and high >= low), default=0)

    def hear(self, source: str, appended_ns: int | None) -> None:
        """A record of the source's current epoch has arrived; `appended_ns` is None without a broker."""
        if appended_ns is not None:
            self._heard_ns[source] = appended_ns

    def heard(self) -> Iterator[tuple[str, int]]:
        """When the last record of each source that has sent any was appended; FOREVER: the source has ended. One whose
        lanes are forgotten has stopped, and may come again."""
        ended = {lane.source: True for lane in self._lanes}
        ended |= {lane.source: False for lane in self._lanes if lane.promised < FOREVER}
        for source, appended_ns in self._heard_ns.items():
            yield source, FOREVER if ended.get(source) else appended_ns

    def witness(self, nodes: tuple[str, ...]) -> Witness:
        """Who has promised everything below the frontiers of these nodes. All completions of one advance share most of
        it: to look at every source for each would cost their product. What excluded sources have promised may change
        while the frontier stays."""
        own = tuple(name for name in nodes if name in self._nodes)
        rosters = self._rosters()
        now = tuple((self._ledgers[name].frontier.value, rosters[name].versions) for name in own)
        known = self._witnesses.get(own)
        if known is None or known[0] != now:
            known = self._witnesses[own] = now, self._look(own), self._excluded(own)
        _, witness, excluded = known
        missing: dict[str, None] = {}
        since = [] if witness.covered_from_ns is None else [witness.covered_from_ns]
        for name, source in excluded:
            lane = self._lanes.find(source, name)
            if lane is None or lane.promised < self._ledgers[name].frontier.value:
                missing[source] = None
            elif lane.covered_ns is not None:
                since.append(lane.covered_ns)
        return Witness(witness.rosters, tuple(missing), max(since, default=None)) if excluded else witness

    def _counted(self, nodes: tuple[str, ...]) -> Iterator[tuple[str, Member]]:
        """(node, member): those that their stream lists in the last granule below the frontier."""
        for name in nodes:
            last = self._ledgers[name].frontier.value - 1
            members = self._rosters()[name].members(self._nodes[name].streams)
            yield from ((name, member) for member in members if member.belongs(last))

    def _excluded(self, nodes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, member.source) for name, member in self._counted(nodes) if member.excluded)

    def _look(self, nodes: tuple[str, ...]) -> Witness:
        """As if there were no source that was ever excluded."""
        versions: dict[str, int] = {}
        for name in nodes:
            of = self._rosters()[name].versions
            versions |= {stream: of.get(stream, 0) for stream in self._nodes[name].streams}
        lanes = (self._lanes.find(member.source, name) for name, member in self._counted(nodes) if not member.excluded)
        since = [lane.covered_ns for lane in lanes if lane is not None and lane.covered_ns is not None]
        return Witness(tuple(sorted(versions.items())), (), max(since, default=None))
