"""A bucket's status: how far it has come, and which sources let it go on or block it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from highlevel.progress.lanes import Lanes
from highlevel.progress.ledger import Ledger
from highlevel.progress.place import Witness
from highlevel.progress.roster import Roster
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
    heard: tuple[tuple[str, int], ...]  # by source: when its last record was appended, in ns; FOREVER: it has ended
    ended: bool  # all sources have ended: there will be no more output


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

    def hear(self, source: str, appended_ns: int | None) -> None:
        """A record of the source's current epoch has arrived; `appended_ns` is None without a broker."""
        if appended_ns is not None:
            self._heard_ns[source] = appended_ns

    def heard(self) -> Iterator[tuple[str, int]]:
        """When the last record of each source that has sent any was appended; FOREVER: the source has ended."""
        going = {lane.source for lane in self._lanes if lane.promised < FOREVER}
        for source, appended_ns in self._heard_ns.items():
            yield source, appended_ns if source in going else FOREVER

    def witness(self, nodes: tuple[str, ...]) -> Witness:
        """The sources that have promised everything below the frontiers of these nodes."""
        sources: list[str] = []
        since: int | None = None
        for name in nodes:
            if name not in self._nodes:
                continue
            front = self._ledgers[name].frontier.value
            for member in self._rosters()[name].members(self._nodes[name].streams):
                lane = self._lanes.find(member.source, name)
                if lane is None or lane.promised < front or member.source in sources:
                    continue
                sources.append(member.source)
                if lane.covered_ns is not None:
                    since = lane.covered_ns if since is None else max(since, lane.covered_ns)
        return Witness(tuple(sources), since)
