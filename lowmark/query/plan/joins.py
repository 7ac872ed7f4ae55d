"""Joins in a plan: their inputs, what must be equal, and the order in which rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from lowmark.query.expr.expressions import Expr, Named
from lowmark.query.options import DEFAULT_JOINS, Buffering, Memory
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.windows.join_bands import Bands
from lowmark.wire.rows.schema import Schema

__all__ = [
    "AT",
    "DEFAULT_GAIN",
    "SHAPES_NO_ROW",
    "Algorithm",
    "Extreme",
    "InOrder",
    "Join",
    "JoinInput",
    "Oblivious",
    "Probe",
    "Punctuated",
    "Release",
    "Scheduling",
    "has_every_row",
    "keeping",
]

SHAPES_NO_ROW = {"shapes_no_row": True}
"""Metadata of a plan's field on which no row depends: estimates, hints and texts for people. Steps that differ only
in such fields are one step."""

AT = "at"
"""In expressions of a join: the attribute of an input's window."""


def keeping(kind: JoinKind) -> frozenset[int]:
    """The inputs of a two-input join whose rows are emitted if they match none."""
    return _KEEPING.get(kind, frozenset())


def has_every_row(kind: JoinKind, number: int) -> bool:
    """Whether every output row of a join has a row of this input."""
    return number == 0 if kind is JoinKind.SEMI else keeping(kind) <= {number}


_KEEPING = {
    JoinKind.LEFT: frozenset({0}),
    JoinKind.RIGHT: frozenset({1}),
    JoinKind.FULL: frozenset({0, 1}),
    JoinKind.ANTI: frozenset({0}),
}


@dataclass(frozen=True, slots=True)
class Extreme:
    """A column of a join's output: the greatest or the least of other columns, which are times of several inputs."""

    name: str
    greatest: bool
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """The order in which a new row of one input meets the other inputs. With estimates: the number of combinations
    after each of them, and in total in the most expensive order."""

    order: tuple[int, ...]
    meets: tuple[float, ...]
    most: float
    hinted: bool  # whether the query's text asks for this order


DEFAULT_GAIN = 0.3
"""ADAPTIVE uses FILTER from this load on, at which results come about a quarter sooner (α / (1 + α), section 6)."""


class Release(Enum):
    """When rows meet their partners. The order in which rows come out is the same for all."""

    SYNC = "sync"  # Sync-Filter: when all inputs have passed them; only rows of the inputs are kept
    FILTER = "filter"  # Filter-Order: at once; results are kept until all inputs have passed them
    ADAPTIVE = "adaptive"  # SYNC while it costs little time, else FILTER


class Scheduling(Enum):
    """Which waiting row a join of several windows serves next, and with which window. No order changes a row of the
    answer."""

    LWO = "lwo"  # largest window only: each row meets all its partners before the next one begins
    SWF = "swf"  # smallest window first: a row meets a larger window only while none waits for a smaller one
    MQT = "mqt"  # maximum query throughput: the row and window that serve most queries for the least work
    ALONE = "alone"  # the join of this query runs by itself


class Algorithm(Enum):
    """How an inner join finds its rows. The rows are the same for all."""

    OA = "oa"  # a row meets the kept rows when it comes, and is kept until its window has passed (Li 7.1)
    OBLIVIOUS = "oblivious"  # without windows: a row is kept as long as the data require (Wu)
    PUNCTUATED = "punctuated"  # a row is kept until its window has passed, or its values will not come again (Ding)


@dataclass(frozen=True, slots=True)
class Oblivious:
    """How a window-oblivious join runs. `scrambling`: how many rows late a row of each input may come; None: measured
    while it runs; (): measured for all inputs."""

    memory: Memory = Memory.FRONTIER
    scrambling: tuple[int | None, ...] = ()
    buffer: Buffering | None = None  # how rows wait before they enter the join; None: the bound decides
    bound: int | None = field(default=None, metadata=SHAPES_NO_ROW)  # bytes of its rows in a bucket; None: no bound
    disk: int = field(default=DEFAULT_JOINS.disk, metadata=SHAPES_NO_ROW)  # bytes of the process's file
    asked: bool = field(default=False, metadata=SHAPES_NO_ROW)  # by a hint in the query's text
    chosen: bool = field(default=False, metadata=SHAPES_NO_ROW)  # whether a hint says what is kept

    @property
    def waits(self) -> bool:
        """Whether rows may have to wait on disk."""
        return self.bound is not None or self.buffer in (Buffering.DISK, Buffering.HYBRID)


@dataclass(frozen=True, slots=True)
class Punctuated:
    """How a join uses promises about values. `by`: the equalities whose columns are promised together; () are all.
    `promising`: the inputs that promise them."""

    by: tuple[int, ...] = ()
    promising: tuple[int, ...] = field(default=(), metadata=SHAPES_NO_ROW)
    asked: bool = field(default=False, metadata=SHAPES_NO_ROW)  # by a hint in the query's text


@dataclass(frozen=True, slots=True)
class InOrder:
    """How the rows of a join come out in order of time (Hammad 2005): by the greatest time in each."""

    release: Release = Release.ADAPTIVE
    cost_ns: float = field(default=DEFAULT_JOINS.pair_ns, metadata=SHAPES_NO_ROW)  # c
    gain: float = field(default=DEFAULT_GAIN, metadata=SHAPES_NO_ROW)  # α
    asked: bool = field(default=False, metadata=SHAPES_NO_ROW)  # by a hint in the query's text

    def __post_init__(self) -> None:
        if not 0 <= self.gain < 1:
            raise ValueError(f"a gain is from 0 up to 1, not {self.gain:g}")

    def load(self, sizes: Sequence[int], rates: Sequence[float]) -> float:
        """c·|w|·λ1·λ2 (eq. 1), from the window in ns and the rows a second of each input, or of the two inputs that
        bring most."""
        seconds = sum(sizes) / len(sizes) / 1e9
        *_, one, other = sorted(rates)
        return self.cost_ns / 1e9 * seconds * one * other


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One port of a join. Its rows are in pane k if the attribute is from k·unit up to (k + 1)·unit, in ns."""

    label: str
    schema: Schema  # (pane, tuples, columns…)
    attribute: str  # the column of its window
    unit: int
    size: int  # of its window, in ns
    output: tuple[tuple[str, str], ...]
    """Columns that the join's rows show, and their names there. A column that several inputs show is taken from the
    first of them that has a row in the output row."""
    progress: tuple[Named, ...]  # columns of the output that progress with the attribute: non-decreasing over Field(AT)
    rate: float | None = field(default=None, repr=False, metadata=SHAPES_NO_ROW)  # expected rows a second
    needs: tuple[str, ...] = field(default=(), repr=False, metadata=SHAPES_NO_ROW)
    """Inputs whose unknown rates make `rate` unknown."""
    estimated: bool = field(default=False, repr=False, metadata=SHAPES_NO_ROW)
    """Whether the rate is computed from earlier joins."""
    prefix: str = field(default="", repr=False, metadata=SHAPES_NO_ROW)
    """Distinguishes its columns from those of other inputs in FROM."""

    def named(self, column: str) -> str:
        """The name of a column for people."""
        return dict(self.output).get(column, self.prefix + column)


@dataclass(frozen=True, slots=True)
class Join:
    """Combines rows of several inputs that lie in each other's windows, agree in the columns that must be equal, and
    pass `where`. With two inputs, `kind` may ask for another result; columns without a value are then null, and those
    of the second input of a semi or anti join always are.

    The expected rates, and the `probes` that follow from them, are not part of a plan's text: state stays valid when
    they change."""

    inputs: tuple[JoinInput, ...]
    tumbling: bool
    equal: tuple[tuple[str | None, ...], ...]  # by equality, the column of each input; None: it takes no part
    where: Expr | None  # over the output; it decides whether rows match
    output: Schema
    kind: JoinKind = JoinKind.INNER  # any other kind has two inputs
    windowless: bool = False
    """The text names no windows: they follow from an equality of times, which is in `equal` too."""
    oblivious: Oblivious | None = None
    punctuated: Punctuated | None = None
    probes: tuple[Probe, ...] = field(kw_only=True, repr=False, metadata=SHAPES_NO_ROW)  # for a new row of each input
    extremes: tuple[Extreme, ...] = field(default=(), repr=False)  # their names in the output tell which
    in_order: InOrder | None = None  # of an inner join, if its rows come out in order of time
    scheduling: Scheduling | None = field(default=None, metadata=SHAPES_NO_ROW)  # what a hint asks for
    plain: bool = field(default=False, repr=False, metadata=SHAPES_NO_ROW)  # a hint asks for OA-Join

    def keys(self, port: int) -> tuple[str, ...]:
        """The columns of an input that must equal columns of others."""
        return tuple(name for columns in self.equal if (name := columns[port]) is not None)

    @property
    def promised_keys(self) -> tuple[tuple[str, ...], ...]:
        """For each input, the columns whose promises of values the join uses."""
        chosen = self.punctuated.by if self.punctuated is not None and self.punctuated.by else range(len(self.equal))
        return tuple(
            tuple(name for number in chosen if (name := self.equal[number][port]) is not None)
            for port in range(len(self.inputs))
        )

    @property
    def promised_names(self) -> tuple[tuple[str, ...], ...]:
        """The names under which the output of two inputs shows all `promised_keys`: one set for each input that shows
        them all, else a set of both inputs together."""
        shown = [dict(port.output) for port in self.inputs]
        ways = [[shown[port].get(column) for column in keys] for port, keys in enumerate(self.promised_keys)]
        either = [one or other for one, other in zip(*ways, strict=True)]
        whole = [way for way in ways if None not in way] or [either]
        return tuple(dict.fromkeys(tuple(name for name in way if name is not None) for way in whole if None not in way))

    def tied(self, met: Sequence[int], port: int) -> list[tuple[str, int, str]]:
        """A port's columns that must equal a column of a port met before, each with that port and its column."""
        found = []
        for columns in self.equal:
            column = columns[port]
            known = next(((other, name) for other in met if (name := columns[other]) is not None), None)
            if column is not None and known is not None:
                found.append((column, *known))
        return found

    def keeps(self, port: int) -> bool:
        """Whether rows of an input that match none are emitted."""
        return port in keeping(self.kind)

    @property
    def granule(self) -> int:
        """The common grid, in ns, on which every input's panes lie."""
        return max(port.unit for port in self.inputs)

    @property
    def bands(self) -> Bands:
        return Bands(tuple(port.size for port in self.inputs), self.tumbling)
