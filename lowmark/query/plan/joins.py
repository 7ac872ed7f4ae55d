"""Joins in a plan: their inputs, what must be equal, in which order rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowmark.query.expr.expressions import Expr, Named
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.windows.join_bands import Bands
from lowmark.wire.rows.schema import Schema

__all__ = ["AT", "Extreme", "Join", "JoinInput", "Probe", "has_every_row", "keeping"]

AT = "at"
"""In expressions of a join: the attribute that an input's window goes over."""


def keeping(kind: JoinKind) -> frozenset[int]:
    """The inputs of a join of two whose rows come out when they match none."""
    return _KEEPING.get(kind, frozenset())


def has_every_row(kind: JoinKind, number: int) -> bool:
    """Whether every row of a join has one of this input."""
    return number == 0 if kind is JoinKind.SEMI else keeping(kind) <= {number}


_KEEPING = {
    JoinKind.LEFT: frozenset({0}),
    JoinKind.RIGHT: frozenset({1}),
    JoinKind.FULL: frozenset({0, 1}),
    JoinKind.ANTI: frozenset({0}),
}


@dataclass(frozen=True, slots=True)
class Extreme:
    """A column of a join's output: the greatest, or the least, of others, times of several inputs."""

    name: str
    greatest: bool
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """In which order a new row of a join's input meets the others; and, as it was estimated, how many combinations
    there are of it after each, and how many in all in the most laborious order."""

    order: tuple[int, ...]
    meets: tuple[float, ...]
    most: float
    hinted: bool  # the query's text asks for this order


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One port of a join. Its rows are of pane k where the attribute lies from k·unit up to (k + 1)·unit, in ns."""

    label: str
    schema: Schema  # (pane, tuples, columns…)
    attribute: str  # the column that its window goes over
    unit: int
    size: int  # of its window, in ns
    output: tuple[tuple[str, str], ...]
    """Columns that the join's rows show, and how they are called there. One that several inputs show is that of the
    first of them which a row has a row of."""
    progress: tuple[Named, ...]  # columns of the output that progress with the attribute: non-decreasing over Field(AT)
    rate: float | None = field(default=None, repr=False)  # rows a second that are expected
    needs: tuple[str, ...] = field(default=(), repr=False)  # inputs whose rates it would follow from: not known
    estimated: bool = field(default=False, repr=False)  # the rate, of what has been joined before
    prefix: str = field(default="", repr=False)  # how FROM tells its columns from those of others

    def named(self, column: str) -> str:
        """A column, for people."""
        return dict(self.output).get(column, self.prefix + column)


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of several inputs to those combinations that lie in each other's windows, agree in the columns that must be
    equal, and pass `where`. Or, of two inputs, to what the kind makes of them; columns that a row has no value of are
    null, and of a semi or anti join the second input's always are.

    What is expected of the inputs, and `probes`, which follow from it, are no part of a plan's text: state can be
    carried on with whatever they are."""

    inputs: tuple[JoinInput, ...]
    tumbling: bool
    equal: tuple[tuple[str | None, ...], ...]  # of each input its column in an equality; None: it takes no part
    where: Expr | None  # over the output: what decides whether rows match
    output: Schema
    kind: JoinKind = JoinKind.INNER  # any other is of two inputs
    probes: tuple[Probe, ...] = field(kw_only=True, repr=False)  # of a new row of each input
    extremes: tuple[Extreme, ...] = field(default=(), repr=False)  # their names, in the output, tell what they are

    def keys(self, port: int) -> tuple[str, ...]:
        """The columns of an input that must equal others."""
        return tuple(name for columns in self.equal if (name := columns[port]) is not None)

    def tied(self, met: Sequence[int], port: int) -> list[tuple[str, int, str]]:
        """The columns of a port that must equal one of the ports that were met before: of which port, which column."""
        found = []
        for columns in self.equal:
            column = columns[port]
            known = next(((other, name) for other in met if (name := columns[other]) is not None), None)
            if column is not None and known is not None:
                found.append((column, *known))
        return found

    def keeps(self, port: int) -> bool:
        """Whether rows of an input that match none come out."""
        return port in keeping(self.kind)

    @property
    def granule(self) -> int:
        """In ns: the grid on which all inputs lie in panes of theirs."""
        return max(port.unit for port in self.inputs)

    @property
    def bands(self) -> Bands:
        return Bands(tuple(port.size for port in self.inputs), self.tumbling)
