"""What joins of every kind have: a port for each input, rows that are kept, and what they promise."""

from __future__ import annotations

from highlevel.interface import Port, Space
from highlevel.join.bins import Bin
from highlevel.join.kept import Kept
from highlevel.join.output import Combine
from highlevel.join.promising import Promising
from lowmark.query.plan import Join
from lowmark.wire.partials import PANE

__all__ = ["WindowJoin"]


class WindowJoin:
    def __init__(self, plan: Join) -> None:
        self._plan = plan
        self._schemas = [port.schema for port in plan.inputs]
        self._kept = Kept(plan)
        self._combine = Combine(plan)
        self._promising = Promising(plan)

    @property
    def inputs(self) -> tuple[Port, ...]:
        return tuple(Port(schema, (PANE,)) for schema in self._schemas)

    @property
    def outputs(self) -> tuple[Port, ...]:
        return (Port(self._plan.output, self._promising.columns),)

    def rows_of(self, port: int) -> Space[Bin]:
        """The rows that are kept of a port, for audits."""
        return self._kept.bins(port)

    @property
    def bin_width(self) -> int:
        """The time of one such piece, in ns: that of key k begins at k times as much."""
        return self._kept.width
