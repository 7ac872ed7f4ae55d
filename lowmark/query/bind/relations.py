"""The meaning of a FROM clause once names are resolved: columns, and the arms that compute them.

A chain of selections folds into expressions, so a relation is flat: each arm reads one base (the packets of some
streams, the groups of an aggregating SELECT, or a join), keeps what passes `where`, and computes each column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.expr.expressions import Call, Expr, Field, Named
from lowmark.query.expr.intervals import around, interval
from lowmark.query.expr.simplify import conjoin
from lowmark.query.options import Strategy
from lowmark.query.parse.syntax import JoinKind, Span
from lowmark.query.plan.joins import InOrder, Oblivious, Punctuated, Scheduling
from lowmark.query.plan.nodes import AggregateCall, Extreme, Fold, Order, Pane, Total
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.rows.schema import Column, Kind

__all__ = [
    "ARRIVAL", "ROW_NUM", "WINDOW_END", "WINDOW_START", "Arm", "Base", "Counting", "Grouped", "Joined", "Packets",
    "Relation", "Side", "Turn", "packets", "readers_first", "substitute",
]  # fmt: skip

ROW_NUM = "row_num"
WINDOW_START = "window_start"
WINDOW_END = "window_end"

ARRIVAL = (
    Named(".ts", Field("ts", Kind.TIME)),
    Named(".stream", Field("link", Kind.STR)),
    Named(".rank", Field("_rank", Kind.INT)),
    Named(".position", Field("_position", Kind.INT)),
)
"""The order of arrival over several sources, by fields that every packet has: `_rank` is the source's rank in its
stream, `_position` the packet's place in the source. Packets of a single source are ordered by `_position` alone. No
query can write these names, and no result shows the columns."""


@dataclass(frozen=True, slots=True)
class Packets:
    """The packets of streams, numbered by `row_num` across all `sources`, the number of capture points."""

    streams: tuple[str, ...]
    sources: int


class Turn(Enum):
    """How a window uses the tuples that it counts."""

    ROWS = auto()  # windows over rows
    ARRIVAL = auto()  # slide-by-tuple: a window ends at every n-th tuple that arrives
    RANK = auto()  # slide-by-tuple, in the order of RATTR


@dataclass(frozen=True, slots=True)
class Counting:
    """Properties of a window that counts tuples, beside its sizes. `partition`: the keys (PA); tuples are counted for
    each of their values. `rattr` is over the input's columns, None if rows are counted."""

    turn: Turn
    rattr: Expr | None
    partition: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grouped:
    """An aggregating SELECT up to its columns, as its Aggregate and Finish steps compute it.

    Expressions of `where`, `keys`, `folds` and `details` are over the input's columns; those of `totals`, `having` and
    `order` over `columns`: window_start and window_end (if windowed), the keys, the calls, the totals.
    """

    input: Relation
    where: Expr | None
    panes: tuple[Pane, ...]  # one for each arm of the input
    keys: tuple[Named, ...]
    details: tuple[Named, ...]
    folds: tuple[Fold, ...]
    calls: tuple[AggregateCall, ...]
    window: Window
    totals: tuple[Total, ...]
    having: Expr | None
    order: tuple[Order, ...]
    limit: int | None
    distinct: tuple[Named, ...]  # the selected columns, if rows of a window must differ in them
    makers: tuple[Named, ...]  # without a window: keys that progress with the pane, their least values over Field(PANE)
    within: tuple[str, ...]  # without a window: all progressing keys; groups that agree on them are one result
    columns: tuple[Column, ...]
    counting: Counting | None = None
    strategy: Strategy = Strategy.AUTO  # the one that the query asks for
    bucket: tuple[str, ...] = ()  # keys that a hint names to choose the bucket; (): all that its stages share
    span: Span | None = None  # of the SELECT

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @property
    def partition(self) -> tuple[str, ...]:
        """The keys that divide the windows: each of their values has windows of its own."""
        return () if self.counting is None else self.counting.partition

    @property
    def progress(self) -> tuple[str, ...]:
        """The columns of its rows that have bounds. Row numbers of partitions have none."""
        if self.counting is not None and self.counting.turn is Turn.ROWS and self.partition:
            return ()
        columns = {
            WindowKind.SLIDING: (WINDOW_START, WINDOW_END),
            WindowKind.SLIDE_BY_TUPLE: (WINDOW_START, WINDOW_END),
            WindowKind.LANDMARK: (WINDOW_END,),
            WindowKind.NONE: tuple(item.name for item in self.makers),
        }[self.window.kind]
        if not self.distinct:
            return columns
        return tuple(item.name for item in self.distinct if isinstance(item.expr, Field) and item.expr.name in columns)

    @property
    def at_once(self) -> bool:
        """Whether a group shows nothing but its keys, so that its row can be emitted at its first tuple."""
        computed = self.calls or self.totals or self.order or self.distinct
        return self.window.kind is WindowKind.NONE and not computed

    @property
    def closed(self) -> bool:
        """Whether no condition may move before its Finish, because that counts or compares rows."""
        return self.limit is not None or bool(self.distinct)


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join. Its window says how long its tuples wait for those of the others (`join_bands`)."""

    label: str  # as FROM writes it
    prefix: str  # of its columns' names in the join; "" if the input is a join, whose columns have one already
    relation: Relation
    attribute: Expr  # the attribute of its window: a time, over the relation's columns
    size: int  # of its window, in ns
    panes: tuple[Pane, ...]  # for each arm, with equal indexes: pane k holds the attribute from k·unit on
    unit: int  # ns
    progress: tuple[Named, ...]  # columns of the join that progress with the attribute, as functions of Field(AT)

    def named(self, column: str) -> str:
        """The join's name for a column of this input."""
        return self.prefix + column


@dataclass(frozen=True, slots=True)
class Joined:
    """The combinations of rows of several inputs that lie in each other's windows and pass a condition; with two inputs
    it may be another kind of join."""

    sides: tuple[Side, ...]
    tumbling: bool  # if not, each pair of inputs has a band
    where: Expr | None  # over the `columns` of matched rows; it decides whether rows match
    columns: tuple[Column, ...]  # Label.column of every side, in order, including those that `*` does not show
    equal: tuple[tuple[Expr | None, ...], ...] = ()
    """Equalities taken out of `where` when predicates are pushed down: for each side, the expression over its own
    columns that must be equal; None: the side takes no part."""
    kind: JoinKind = JoinKind.INNER
    windowless: bool = False
    """No input has a window in the text: the windows of `sides` follow from an equality of times, also in `where`."""
    oblivious: Oblivious | None = None  # an inner join without windows, unless a hint asks for another algorithm
    punctuated: Punctuated | None = None  # an inner join of two sides for which a hint asks for it
    probes: tuple[tuple[int, ...], ...] = ()
    """Probe orders that hints ask for: first the side of the new row, then all others."""
    bucket: tuple[tuple[str, Span], ...] = ()
    """Columns that a hint names to choose the bucket, with their places in the query. Each is in an equality of all
    sides. (): all such columns."""
    extremes: tuple[Extreme, ...] = ()
    """In an inner join, those of `columns` that are the greatest or the least of others."""
    time: str | None = None
    """In a FULL JOIN, one of `columns`: the time of the first side with a row in the output row, which waits by it."""
    in_order: InOrder | None = None  # if its rows come out in order of time
    scheduling: Scheduling | None = None  # the schedule that a hint asks for in a shared join
    plain: bool = False  # a hint asks for OA-Join
    span: Span | None = None  # its place in FROM

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return tuple(side.relation for side in self.sides)

    @property
    def progress(self) -> tuple[str, ...]:
        """The columns that have bounds in its rows."""
        names = dict.fromkeys(named.name for side in self.sides for named in side.progress)
        return (*names, *(extreme.name for extreme in self.extremes))


Base = Packets | Grouped | Joined


@dataclass(frozen=True, slots=True)
class Arm:
    """One source of a relation's rows. Expressions are over the base's columns; `values` has one for each column of the
    relation and, if the base is packets, one for each of ARRIVAL."""

    base: Base
    where: Expr | None
    values: Mapping[str, Expr]

    @property
    def plain(self) -> bool:
        """Whether the columns are the base's own."""
        fields = (item for item in self.values.items() if not item[0].startswith("."))
        return all(isinstance(expr, Field) and expr.name == name for name, expr in fields)

    def lowered(self, expr: Expr) -> Expr:
        """An expression over the relation's columns, turned into one over the base's."""
        return substitute(expr, self.values)

    def filtered(self, where: Expr | None) -> Expr | None:
        """This arm's condition and another one, over the relation's columns, as one condition."""
        parts = [part for part in (self.where, None if where is None else self.lowered(where)) if part is not None]
        return conjoin(parts) if parts else None


@dataclass(frozen=True, slots=True)
class Relation:
    columns: tuple[Column, ...]
    arms: tuple[Arm, ...]
    derived: bool = True  # False: captured packets, which are ordered in time
    order: tuple[Order, ...] = ()  # order of its rows, over values of the arms that no query can name
    hidden: tuple[Column, ...] = ()  # columns that `*` does not show

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def known(self) -> tuple[Column, ...]:
        """All columns, including those that `*` does not show."""
        return (*self.columns, *self.hidden)

    def column(self, name: str) -> Column | None:
        """The column with this name, in any case; None if there is none."""
        folded = name.casefold()
        return next((item for item in self.known if item.name.casefold() == folded), None)

    def field(self, column: Column) -> Field:
        """One of the columns, with the range of its values over all arms."""
        known = around(interval(arm.values[column.name]) for arm in self.arms)
        return Field(column.name, column.kind, column.nullable, known)

    def group(self, name: str) -> tuple[str, ...]:
        """The hidden columns whose names begin with this name and a point, ignoring case."""
        start = f"{name.casefold()}."
        return tuple(column.name for column in self.hidden if column.name.casefold().startswith(start))

    def filtered(self, where: Expr | None) -> Relation:
        """The rows that pass a condition over the columns."""
        return replace(self, arms=tuple(replace(arm, where=arm.filtered(where)) for arm in self.arms))


def readers_first(relation: Relation) -> list[Grouped | Joined]:
    """The groupings and joins in a relation, each once and after all of its readers. A named stage with several readers
    is one object, which is planned once for all of them."""
    found: list[Grouped | Joined] = []
    seen: set[int] = set()

    def visit(reader: Relation) -> None:
        for arm in reader.arms:
            base = arm.base
            if not isinstance(base, Packets) and id(base) not in seen:
                seen.add(id(base))
                for below in base.inputs:
                    visit(below)
                found.append(base)

    visit(relation)
    return found[::-1]


def packets(streams: tuple[str, ...], sources: int) -> Relation:
    columns = tuple(Column(field.name, field.kind) for field in PACKET_FIELDS)
    hidden = tuple(Column(field.name, field.kind, field.nullable) for field in DERIVED_FIELDS)
    values: dict[str, Expr] = {
        field.name: Field(field.name, field.kind, field.nullable, field.range)
        for field in (*PACKET_FIELDS, *DERIVED_FIELDS)
    }
    values |= {item.name: item.expr for item in ARRIVAL}
    return Relation(columns, (Arm(Packets(streams, sources), None, values),), derived=False, hidden=hidden)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with its fields replaced."""
    match expr:
        case Field(name=name):
            return values[name]
        case Call(args=args):
            return replace(expr, args=tuple(substitute(arg, values) for arg in args))
    return expr
