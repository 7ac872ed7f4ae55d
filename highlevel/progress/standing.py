"""Where a bucket stands: how far it has come, and which sources let it go on or hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from highlevel.progress.lanes import Lanes
from highlevel.progress.ledger import Ledger
from highlevel.progress.place import Witness
from highlevel.progress.roster import Roster
from lowmark.query.plan import Node
from lowmark.wire.promises import FOREVER

__all__ = ["Progress", "Standing"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a bucket stands. Bounds are values of the nodes' attribute (`ts`: ns since 1970)."""

    complete_to: tuple[tuple[str, int | None], ...]  # by query; FOREVER: its sources have ended; None: nothing promised
    open_windows: tuple[tuple[str, int], ...]  # by query: at most so many hold tuples and are not closed
    waiting: tuple[tuple[str, str], ...]  # (node, source): those without whose promise the node's frontier stays
    ended: bool  # all sources have ended: nothing more will come out


class Standing:
    """Of the nodes of the capture processes: what comes back through exchanges is held by what holds them."""

    def __init__(
        self, nodes: Iterable[Node], ledgers: Mapping[str, Ledger], lanes: Lanes, roster: Callable[[], Roster]
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._ledgers = ledgers
        self._lanes = lanes
        self._roster = roster

    def waiting(self) -> Iterator[tuple[str, str]]:
        """(node, source): those without whose promise the node's frontier stays."""
        for name, node in self._nodes.items():
            front = self._ledgers[name].frontier.value
            for member in self._roster().members(node.streams):
                if member.bound(self._lanes.promised(member.source, name)) <= front < FOREVER:
                    yield name, member.source

    def witness(self, nodes: tuple[str, ...]) -> Witness:
        """Who vouches for what the frontiers of these nodes have passed."""
        sources: list[str] = []
        since: int | None = None
        for name in nodes:
            if name not in self._nodes:
                continue
            front = self._ledgers[name].frontier.value
            for member in self._roster().members(self._nodes[name].streams):
                lane = self._lanes.find(member.source, name)
                if lane is None or lane.promised < front or member.source in sources:
                    continue
                sources.append(member.source)
                if lane.covered_ns is not None:
                    since = lane.covered_ns if since is None else max(since, lane.covered_ns)
        return Witness(tuple(sources), since)
