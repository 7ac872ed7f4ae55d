"""Plans: frozen, typed, serialisable descriptions of what a query runs.

A query is one low-level *stage*, whose nodes run in the capture processes, and a graph of *steps* that run in a bucket.
If rows must change buckets on the way, an *exchange* stands between two steps (`lowmark.query.plan.exchanges`).
A `Reduction` says what a node does with tuples; above Kafka, the same description reduces the rows of an earlier step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lowmark.query.expr.expressions import Expr, Named, is_checked
from lowmark.query.options import DEFAULT_LIMITS, DEFAULT_RATES, Late, Limits, Rates, Strategy
from lowmark.query.plan.exchanges import Exchange, Exchanges, Gather, Send, Totals
from lowmark.query.plan.joins import AT, SHAPES_NO_ROW, Extreme, Join, JoinInput, Probe, has_every_row, keeping
from lowmark.query.windows.panes import Pane
from lowmark.query.windows.window import Window
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = [
    "AT", "Aggregate", "AggregateCall", "ClosePromises", "Counted", "Exchange", "Exchanges", "Extreme", "Finish",
    "Fold", "FoldOp", "Gather", "Join", "JoinInput", "MakesWindows", "Node", "NodeInput", "NodeView", "Number",
    "Order", "Pane", "Probe", "QueryPlan", "Reduce", "Reduction", "Send", "SlideByTuple", "Stage", "Step",
    "StepInput", "StepPlan", "Total", "Totals", "has_every_row", "keeping",
]  # fmt: skip


class FoldOp(Enum):
    """How the partial columns of one group merge. Null is the neutral element of each operation."""

    ADD = auto()  # int64; a table evicts before it would overflow, a merge above that overflows reports `overflow`
    ADD_WIDE = auto()  # columns (high, low): a signed 128-bit sum, high word first
    ADD_FLOAT = auto()  # columns (high, low): a sum of doubles, and its rounding error
    MIN = auto()  # by the order of the column's kind (IPv4 before IPv6)
    MAX = auto()
    BIT_AND = auto()
    BIT_OR = auto()
    FIRST = auto()  # columns (order…, value): the value with the least order, compared from left to right
    LAST = auto()


@dataclass(frozen=True, slots=True)
class Fold:
    """One aggregate state: what a single tuple contributes (`lift`, one per column), and how two states merge."""

    op: FoldOp
    columns: tuple[Column, ...]
    lift: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Tuples to partials: filter, compute, then fold the groups of each pane, or keep every tuple as a row.

    Output rows are (pane, tuples, keys…, details…, folds' columns…). `details` split a group further (by the values of
    holistic aggregates) but do not affect the choice of its bucket.
    """

    where: Expr | None
    pane: Pane
    keys: tuple[Named, ...]
    details: tuple[Named, ...]
    folds: tuple[Fold, ...]
    grouped: bool  # False: a selection, with one row for each tuple that has the folds' lifted values
    strings: tuple[str, ...] = ()
    at_once: bool = False
    """A group without folds is sent with its first tuple of a pane, and again with any further tuples."""

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions computed for a tuple that passes: the columns after pane and tuples."""
        named = (item.expr for item in (*self.keys, *self.details))
        return (*named, *(lift for fold in self.folds for lift in fold.lift))

    @property
    def checked(self) -> bool:
        """Whether an overflow can make a value lost."""
        return any(map(is_checked, (*self.exprs, *(() if self.where is None else (self.where,)))))

    @property
    def schema(self) -> Schema:
        named = (*self.keys, *self.details)
        return Schema(
            (
                Column(PANE, Kind.INT),
                Column(TUPLES, Kind.INT),
                *(Column(item.name, item.expr.kind, item.expr.nullable) for item in named),
                *(column for fold in self.folds for column in fold.columns),
            ),
            self.strings,
        )


T = TypeVar("T", int, npt.NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class ClosePromises:
    """The promises that a source makes about the rows of a node when a connection has closed (`closings`)."""

    columns: tuple[str, ...]  # of the node's rows
    fields: tuple[str, ...]  # fields of packets in these columns: a connection, or one direction of it
    linger_ns: int  # from the closing packet to the promise, by the data's time
    size_ns: int  # of the windows that hold the node's rows, like slide and origin
    slide_ns: int
    origin_ns: int
    where: Expr | None = None  # condition on packets of connections that the node may have rows of; None: all

    def until(self, closed_ns: T) -> T:
        """The end of the last window that holds this time. The promise is about rows before it."""
        return (closed_ns - self.origin_ns + self.size_ns) // self.slide_ns * self.slide_ns + self.origin_ns


@dataclass(frozen=True, slots=True)
class Node:
    """The low-level part for one or more input streams of a stage; `name` is unique in the stage."""

    name: str
    streams: tuple[str, ...]
    reduction: Reduction
    bucket_by: tuple[str, ...]  # keys whose hash chooses the bucket; of equal kinds where rows of several nodes meet
    closing: ClosePromises | None = None  # None: its sources promise time alone

    @property
    def tells_one_bucket(self) -> bool:
        """Whether a promise about values goes to one bucket alone: no other one gets rows with these values."""
        return self.closing is not None and bool(self.bucket_by) and {*self.bucket_by} <= {*self.closing.columns}


@dataclass(frozen=True, slots=True)
class Stage:
    """All nodes that feed one partials topic."""

    fingerprint: str
    nodes: tuple[Node, ...]
    buckets: int


@dataclass(frozen=True, slots=True)
class NodeInput:
    node: str


@dataclass(frozen=True, slots=True)
class StepInput:
    """Output `port` of an earlier step of the same query."""

    step: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate's final value: the function, the folds (indexes) and details (names) that it reads, its column."""

    function: str
    folds: tuple[int, ...]
    details: tuple[str, ...]
    parameters: tuple[str, ...]  # as written, for example the exact decimal of a quantile
    column: Column
    ties: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """Pairs of folds with the least and the greatest value of the tuples that tie for first or last. If they differ,
    the value is undecided."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Partials to the rows of closed windows: (window_start, window_end)?, keys…, calls' columns…"""

    input: Schema
    keys: tuple[str, ...]
    details: tuple[str, ...]
    folds: tuple[Fold, ...]
    calls: tuple[AggregateCall, ...]
    window: Window
    output: Schema
    progress: tuple[Named, ...] = ()
    """Without windows: the keys that progress. Each expression is non-decreasing over Field(PANE); for the first pane
    that has not ended, it gives the least value that the key can still have."""
    crowded: bool = False
    """Many windows close at a time, each with few tuples."""
    at_once: bool = False
    """Without windows, if rows show nothing but keys: a group's row is emitted at its first tuple."""
    closes: tuple[str, ...] = ()
    """Keys: a group whose values of them are promised for its whole window is emitted before the window closes."""
    strategy: Strategy = Strategy.PANED  # for sliding windows; others have only this one. State depends on it
    asked: Strategy = field(default=Strategy.AUTO, repr=False, metadata=SHAPES_NO_ROW)  # by a hint in the query's text


@dataclass(frozen=True, slots=True)
class Order:
    expr: Expr
    descending: bool


@dataclass(frozen=True, slots=True)
class Total:
    """`total(x)`: the sum of x over all groups of the window, as a column of that name for the next parts."""

    column: Column
    expr: Expr


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a SELECT, inside one window: totals, HAVING, ORDER BY, DISTINCT, LIMIT, the selected columns."""

    input: Schema
    totals: tuple[Total, ...]
    having: Expr | None
    order: tuple[Order, ...]
    limit: int | None
    distinct: bool
    columns: tuple[Named, ...]
    output: Schema
    within: tuple[str, ...] = ()
    """Columns of the input: rows that agree on them form one unit for totals, ORDER BY, DISTINCT and LIMIT. If empty:
    window_start and window_end, where the input begins with them. Queries without windows list the progressing
    expressions here; windows over rows with PA list window_start, window_end and the partition's fields."""
    window: Window | None = None
    """The window that the input's rows show (for groups without windows: the key that is cut into panes). Overflows
    are reported for its windows."""


@dataclass(frozen=True, slots=True)
class Number:
    """Sorts tuples by arrival and numbers them from 1 in the output's column `number` (None: only sorts them).
    Tuples of several sources are sorted by the columns named in `order`, the first of which gives the panes. Tuples of
    one source arrive in order, and `order` is ()."""

    input: Schema
    order: tuple[str, ...]
    output: Schema
    number: str | None = "row_num"
    panes: bool = False  # with one source: also promise panes, below which no row will be emitted any more


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction above the low level, over the rows of an earlier step."""

    input: Schema
    reduction: Reduction


@dataclass(frozen=True, slots=True)
class SlideByTuple:
    """Windows (w − size, w], where w is the value of `at` in every slide-th tuple, counted on arrival or in the order
    of `at` (`ranked`). In pane p and later no tuple has an `at` below p·pane_ns + shift_ns."""

    ranked: bool
    pane_ns: int
    shift_ns: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows whose extents tuples decide: over rows that each partition numbers for itself, or `slides` by tuple.

    Rows of the input are partials of one tuple each, in the order of arrival (except where ranks are counted): (pane,
    tuples, at, partition…, keys…, details…, folds…). `keys` begin with the partition: each of its values counts its
    own tuples. The output is (window_start, window_end, keys…, calls…)."""

    input: Schema
    at: str  # the column of row numbers, or of RATTR
    partition: tuple[str, ...]
    keys: tuple[str, ...]
    details: tuple[str, ...]
    folds: tuple[Fold, ...]
    calls: tuple[AggregateCall, ...]
    window: Window
    output: Schema
    slides: SlideByTuple | None = None
    expire: int | None = None
    """In panes: a partition starts anew if no tuple came for longer than this, measured by the latest panes. Its
    windows over rows close as at the end of the input. Slide-by-tuple: panes of `at`. None: never."""


MakesWindows = Aggregate | Gather | Totals
"""Steps that make windows, in one sequence."""

StepPlan = Aggregate | Counted | Finish | Gather | Join | Number | Reduce | Send | Totals


@dataclass(frozen=True, slots=True)
class Step:
    plan: StepPlan
    inputs: tuple[NodeInput | StepInput, ...]
    ports: tuple[int, ...] = ()
    """The operator's port that each input feeds; inputs of one port form a union. (): all feed port 0."""

    def port(self, number: int) -> int:
        return self.ports[number] if self.ports else 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """How a query reads a node whose rows carry more than the query needs: its steps get rows of `schema`, made of
    these columns of the node, in this order."""

    node: str
    columns: tuple[str, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A whole query: the last step's port 0 is the answer. In `steps`, inputs come before their readers."""

    name: str
    sql: str
    stage: Stage
    steps: tuple[Step, ...]
    output: Schema  # result columns, in order, with their shown names
    window: Window | None  # the answer's, which completions name; None: no windows, or not in one sequence
    ordered: bool  # ORDER BY: the rows of one window come in this order
    notes: tuple[str, ...]  # for `explain`, on choices made: one bucket and why, growth of state
    late: Late = Late.COUNT  # part of the stage only if tuples are counted: all rows then carry what late tuples show
    strategy: Strategy = Strategy.AUTO  # as asked for; each step has its own
    rates: Rates = DEFAULT_RATES
    exchanges: Exchanges | None = None  # between the buckets of the stage, if keys of steps differ
    limits: Limits = DEFAULT_LIMITS  # not part of the state's identity: state stays valid when they are raised
    limit: int | None = None  # the query ends after this many rows; None: with its streams
    views: tuple[NodeView, ...] = ()  # of nodes shared with queries of other aggregates; other nodes are read whole

    def rows_of(self, node: str) -> Schema:
        """The schema of the rows that its steps get from a node of the stage."""
        schemas = {item.name: item.reduction.schema for item in self.stage.nodes}
        return (schemas | {view.node: view.schema for view in self.views})[node]

    def exchange(self, node: str) -> Exchange | None:
        """The exchange whose rows arrive as rows of this node; None if the node is one of the capture processes."""
        each = () if self.exchanges is None else self.exchanges.each
        return next((exchange for exchange in each if exchange.node.name == node), None)
