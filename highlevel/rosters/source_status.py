"""A bucket's status: its progress, and the sources that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from highlevel.join.oblivious.usage import Buffer
from highlevel.join.punctuated import FreedRows
from highlevel.progress.bucket_identity import Witness
from highlevel.progress.lanes import Lanes
from highlevel.progress.ledger import Ledger
from highlevel.rosters.roster import Roster
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.values import FOREVER

__all__ = ["BucketProgress", "Standing"]


@dataclass(frozen=True, slots=True)
class BucketProgress:
    """Progress of a bucket. Bounds are values of the nodes' attribute (`ts`: ns since 1970)."""

    complete_to: tuple[tuple[str, int | None], ...]  # by query; FOREVER: its sources have ended; None: nothing promised
    open_windows: tuple[tuple[str, int], ...]  # by query: upper limit of windows that hold tuples and are not closed
    fronts: tuple[tuple[str, int], ...]  # by node: the first granule that has not ended
    waiting: tuple[tuple[str, str], ...]  # (node, source): sources whose promise the node's frontier waits for
    returned: tuple[tuple[str, str], ...]  # (node, source): excluded sources whose promise has reached the frontier
    open_panes: int  # most panes of a node from its frontier to its last tuple
    heard: tuple[tuple[str, int], ...]  # by source: when its last record was appended, in ns; FOREVER: it has ended
    ended: bool  # all sources have ended: no more output will come
    buffers: tuple[tuple[str, Buffer], ...] = ()  # by query: the buffers of its joins without windows
    freed: tuple[tuple[str, FreedRows], ...] = ()  # by query: the freed rows of its punctuated joins


_Known = tuple[tuple[tuple[int, Mapping[str, int]], ...], Witness, tuple[tuple[str, str], ...]]
"""Frontiers and roster versions; the witness without excluded sources; (node, source) of each excluded source."""


class Standing:
    """Status of the capture nodes only: whatever blocks these also blocks the rows that come back through exchanges."""

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
        self._witnesses: dict[tuple[str, ...], _Known] = {}  # by nodes: the last witness and its frontiers

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
        """The greatest number of open panes of a node: from its frontier, or its first tuple if later, to its last
        tuple."""
        ledgers = [self._ledgers[name] for name in self._nodes]
        spans = ((max(each.frontier.value, each.low), each.high) for each in ledgers if each.low is not None)
        return max((high + 1 - low for low, high in spans if high is not None and high >= low), default=0)

    def hear(self, source: str, appended_ns: int | None) -> None:
        """Note a record of the source's current epoch; `appended_ns` is None without a broker."""
        if appended_ns is not None:
            self._heard_ns[source] = appended_ns

    def heard(self) -> Iterator[tuple[str, int]]:
        """When the last record of each source that has sent any was appended; FOREVER: the source has ended. A source
        whose lanes are forgotten has stopped, and may come again."""
        ended = {lane.source: True for lane in self._lanes}
        ended |= {lane.source: False for lane in self._lanes if lane.promised < FOREVER}
        for source, appended_ns in self._heard_ns.items():
            yield source, FOREVER if ended.get(source) else appended_ns

    def witness(self, nodes: tuple[str, ...]) -> Witness:
        """The sources that have promised everything below the frontiers of these nodes. The part without excluded
        sources is cached, because examining every source for each completion would cost their product. Promises of
        excluded sources may change while the frontier stays."""
        own = tuple(name for name in nodes if name in self._nodes)
        rosters = self._rosters()
        now = tuple((self._ledgers[name].frontier.value, rosters[name].versions) for name in own)
        known = self._witnesses.get(own)
        if known is None or known[0] != now:
            known = self._witnesses[own] = now, *self._look(own)
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

    def _look(self, nodes: tuple[str, ...]) -> tuple[Witness, tuple[tuple[str, str], ...]]:
        """The witness without the sources that were ever excluded, and (node, source) of each of those. The sources are
        those that their stream lists in the last granule below the frontier."""
        versions: dict[str, int] = {}
        excluded: list[tuple[str, str]] = []
        since: int | None = None
        for name in nodes:
            streams, roster = self._nodes[name].streams, self._rosters()[name]
            last = self._ledgers[name].frontier.value - 1
            versions |= {stream: roster.versions.get(stream, 0) for stream in streams}
            for member in roster.members(streams):
                if not member.belongs(last):
                    continue
                if member.excluded:
                    excluded.append((name, member.source))
                elif (lane := self._lanes.find(member.source, name)) is not None and lane.covered_ns is not None:
                    since = lane.covered_ns if since is None else max(since, lane.covered_ns)
        return Witness(tuple(sorted(versions.items())), (), since), tuple(excluded)
