"""What the kernel may leave out of a source that is asked to filter there: what no query on it would keep."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.live.bpf_condition import useful
from lowlevel.kernel.codegen.assemble import fields_of
from lowmark.query.expr.expressions import Expr
from lowmark.query.expr.simplify import disjoin
from lowmark.query.plan.nodes import Node

__all__ = ["OUTSIDE", "frame_filter"]

OUTSIDE = "what the kernel's filter left out was never received, and is in no count here"


def frame_filter(nodes: Sequence[Node]) -> tuple[Expr | None, str]:
    """The condition on frames that one of the nodes may want, and what to say of it once the kernel goes by it. None:
    it cannot help, and why."""
    conditions = [node.reduction.where for node in nodes]
    if any("row_num" in fields_of(node.reduction) for node in nodes):
        return None, "the kernel leaves no frame out: a query reads row_num, which counts all packets"
    known = [condition for condition in conditions if condition is not None]
    keep = disjoin(known) if len(known) == len(conditions) else None
    if keep is None or not useful(keep):
        return None, (
            "the kernel leaves no frame out: there is no WHERE on version, protocol, address or port that all queries "
            "of the source have, and that its filter has room for"
        )
    return keep, OUTSIDE
