"""The filter by which the kernel discards frames of a source that no query on it would keep."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.live.bpf_condition import useful
from lowlevel.kernel.codegen.assemble import fields_of
from lowmark.query.expr.expressions import Expr
from lowmark.query.expr.simplify import disjoin
from lowmark.query.plan.closings import closing_packets
from lowmark.query.plan.nodes import Node

__all__ = ["OUTSIDE", "frame_filter"]

OUTSIDE = "frames that the kernel's filter discarded were never received, and no count includes them"


def frame_filter(nodes: Sequence[Node]) -> tuple[Expr | None, str]:
    """The condition that a frame satisfies if some node may want it, and a note to show when the kernel applies it.
    None: the kernel cannot filter, and the note says why."""
    watching = [closing_packets(node.closing) for node in nodes if node.closing is not None]
    conditions = [reduction.where for reduction in (*(node.reduction for node in nodes), *watching)]
    if any("row_num" in fields_of(node.reduction) for node in nodes):
        return None, "the kernel discards no frame: a query reads row_num, which counts all packets"
    known = [condition for condition in conditions if condition is not None]
    keep = disjoin(known) if len(known) == len(conditions) else None
    if keep is None or not useful(keep):
        return None, (
            "the kernel discards no frame: not every query of the source has a WHERE on version, protocol, address or "
            "port, or its filter has no room for them"
        )
    return keep, OUTSIDE
