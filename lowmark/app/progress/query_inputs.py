"""The promises of one query's sources at the nodes that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from lowmark.app.progress.promises_seen import LaneSeen, PromisesSeen
from lowmark.app.progress.query_progress import SourceProgress
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["QueryInputs"]


class QueryInputs:
    """A snapshot at `now_ns`."""

    def __init__(
        self, stage: str, nodes: tuple[Node, ...], rosters: Mapping[str, tuple[str, ...]], promises: PromisesSeen,
        now_ns: int,
    ) -> None:  # fmt: skip
        self._promises = promises
        self.now_ns = now_ns
        self._nodes = nodes
        self.sources: dict[str, list[tuple[Node, LaneSeen | None]]] = {}
        for node in nodes:
            for source in dict.fromkeys(source for stream in node.streams for source in rosters.get(stream, ())):
                self.sources.setdefault(source, []).append((node, promises.lane(stage, node.name, source)))

    @property
    def _lanes(self) -> Iterator[tuple[str, LaneSeen | None]]:
        """All lanes, each with the name of its node."""
        for lanes in self.sources.values():
            yield from ((node.name, lane) for node, lane in lanes)

    @property
    def frontier_ns(self) -> int | None:
        """The least promise of all sources; None: a source has promised nothing."""
        bounds = [None if lane is None else lane.promised_ns for _, lane in self._lanes]
        return None if not bounds or None in bounds else min(bound for bound in bounds if bound is not None)

    @property
    def ended(self) -> bool:
        return self.frontier_ns == FOREVER

    @property
    def furthest_ns(self) -> int | None:
        """The greatest promise of a source that has not ended; None: there is none."""
        return max((lane.promised_ns for _, lane in self._lanes if lane is not None and not lane.ended), default=None)

    def granules(self) -> dict[str, int]:
        """The frontier of each node; NEVER: a source has promised nothing there."""
        found = dict.fromkeys((node.name for node in self._nodes), FOREVER)
        for node, lane in self._lanes:
            found[node] = min(found[node], NEVER if lane is None else lane.granule)
        return found

    @cached_property
    def tuples(self) -> tuple[int | None, int]:
        """Tuples before the frontier (None: not known), and promised tuples beyond it."""
        front = self.frontier_ns
        panes = {node.name: node.reduction.pane for node in self._nodes}
        lanes = [
            (NEVER if front is None else FOREVER if front == FOREVER else panes[node].index(front), lane)
            for node, lane in self._lanes
            if lane is not None
        ]
        known = [lane.before(granule) for granule, lane in lanes]
        before = None if None in known else sum(count for count in known if count is not None)
        return before, sum(lane.ahead(granule) for granule, lane in lanes)

    def first_granules(self) -> dict[str, int]:
        """By node: the first granule with reported tuples."""
        found: dict[str, int] = {}
        for node, lane in self._lanes:
            if lane is not None and lane.low is not None:
                found[node] = min(lane.low, found.get(node, lane.low))
        return found

    def last_granule(self) -> int | None:
        """The last granule with reported tuples, over all nodes; their panes must be alike."""
        return max((max(lane.tuples) for _, lane in self._lanes if lane is not None and lane.tuples), default=None)

    def has_tuples(self, start_ns: int, stop_ns: int) -> bool:
        """Whether a granule between these times has reported tuples."""
        found = ((node.reduction.pane, lane) for lanes in self.sources.values() for node, lane in lanes)
        return any(
            start_ns <= pane.start(granule) and pane.start(granule + 1) <= stop_ns
            for pane, lane in found
            if lane is not None
            for granule in lane.tuples
        )

    def progress(self) -> Iterator[SourceProgress]:
        for source, lanes in self.sources.items():
            found = [lane for _, lane in lanes if lane is not None]
            if len(found) < len(lanes):
                yield SourceProgress(source, "silent" if self._promises.known(source) else "never seen")
            elif (bound := min(lane.promised_ns for lane in found)) == FOREVER:
                yield SourceProgress(source, "ended")
            else:
                heard = max(lane.heard_ns for lane in found)
                behind = max(0, (self.furthest_ns or bound) - bound)
                yield SourceProgress(source, self._state(lanes), bound, behind, heard, max(0, self.now_ns - heard))

    def _state(self, lanes: list[tuple[Node, LaneSeen | None]]) -> str:
        """State of a source that has promised something at each of its nodes and has not ended."""
        found = [(node.reduction.pane, lane) for node, lane in lanes if lane is not None]
        if any(lane.stopped for _, lane in found):
            return "stopped"
        return "overdue" if any(lane.overdue(pane, self.now_ns) for pane, lane in found) else "promising"
