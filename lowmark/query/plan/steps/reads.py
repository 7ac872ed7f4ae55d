"""Collects what all readers read of a join's rows, or of numbered packets, before the first reader is planned: the
step is then made once."""

from __future__ import annotations

from collections.abc import Iterable

from lowmark.query.bind.relations import ROW_NUM, Arm, Joined, Packets
from lowmark.query.expr.expressions import Expr, fields

__all__ = ["Reads", "is_above"]


class Reads:
    """Expressions over the columns of each base. Joins are compared by identity; packets are numbered once for all
    places in which a query names the same streams."""

    def __init__(self) -> None:
        self._joins: dict[int, list[Expr]] = {}
        self._packets: dict[Packets, list[Expr]] = {}

    def add(self, arm: Arm, exprs: Iterable[Expr]) -> None:
        """Note that, besides its condition, these expressions are computed of an arm's rows above the low level."""
        read = [*exprs, *(() if arm.where is None else (arm.where,))]
        match arm.base:
            case Joined() as joined:
                self._joins.setdefault(id(joined), []).extend(read)
            case Packets() as packets:
                self._packets.setdefault(packets, []).extend(read)

    @property
    def number_packets(self) -> bool:
        """Whether packets are numbered above the low level."""
        return bool(self._packets)

    def of(self, base: Joined | Packets) -> list[Expr]:
        return self._joins[id(base)] if isinstance(base, Joined) else self._packets[base]


def is_above(arm: Arm, exprs: Iterable[Expr]) -> bool:
    """Whether an arm's rows are made above the low level: its base is no packets, or row_num is read and the packets
    come from several sources."""
    if not isinstance(arm.base, Packets):
        return True
    if arm.base.sources == 1:
        return False
    read = [*exprs, *(() if arm.where is None else (arm.where,))]
    return any(ROW_NUM in fields(expr) for expr in read)
