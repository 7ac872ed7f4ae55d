"""A query made by hand, for tests that need no analysis."""

from __future__ import annotations

from lowmark.query.expr.expressions import Field, Named
from lowmark.query.plan.nodes import Node, Pane, QueryPlan, Reduction, Stage
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.rows.schema import Column, Kind, Schema

SECOND = 10**9

OUTPUT = Schema(
    (
        Column("window_start", Kind.TIME),
        Column("window_end", Kind.TIME),
        Column("len", Kind.INT),
        Column("count", Kind.INT),
    )
)


def window(size: int, slide: int) -> Window:
    return Window(WindowKind.SLIDING, size, slide, Axis("ts", Kind.TIME, SECOND))


def plan(name: str = "q", fingerprint: str = "abc123", buckets: int = 4, over: Window | None = None) -> QueryPlan:
    """Without steps: what a checkpoint, a topic and a sink know of a query."""
    reduction = Reduction(None, Pane(SECOND), (Named("len", Field("len", Kind.INT)),), (), (), True)
    stage = Stage(fingerprint, (Node("n", ("Main",), reduction, ("len",)),), buckets)
    return QueryPlan(name, "SELECT …", stage, (), OUTPUT, over or window(1, 1), False, ())
