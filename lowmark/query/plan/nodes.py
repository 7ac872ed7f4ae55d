"""Plans: frozen, typed, serialisable descriptions of what a query runs.

A query is one low-level *stage* (its nodes run in the capture processes) and a graph of *steps* that run in a bucket.
Where rows must change buckets on the way, an *exchange* stands between two steps (`lowmark.query.plan.exchanges`).
A `Reduction` says what a node does with tuples; the same description above Kafka lifts an upstream step's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from lowmark.query.expr.expressions import Expr, Named, is_checked
from lowmark.query.options import DEFAULT_LIMITS, DEFAULT_RATES, Late, Limits, Rates, Strategy
from lowmark.query.plan.exchanges import Exchange, Exchanges, Gather, Send, Totals
from lowmark.query.plan.joins import AT, Extreme, Join, JoinInput, Probe, has_every_row, keeping
from lowmark.query.windows.panes import Pane
from lowmark.query.windows.window import Window
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = [
    "AT", "Aggregate", "AggregateCall", "Counted", "Exchange", "Exchanges", "Extreme", "Finish", "Fold", "FoldOp",
    "Gather", "Join", "JoinInput", "Node", "NodeInput", "NodeView", "Number", "Order", "Pane", "Probe", "QueryPlan",
    "Reduce", "Reduction", "Send", "SlideByTuple", "Stage", "Step", "StepInput", "StepPlan", "Total", "Totals",
    "has_every_row", "keeping",
]  # fmt: skip


class FoldOp(Enum):
    """How partials' columns of one group merge. Null is the neutral element of each."""

    ADD = auto()  # int64; a table evicts before it would overflow, a merge above that overflows is told as `overflow`
    ADD_WIDE = auto()  # columns (high, low): a signed 128-bit sum, high word first
    ADD_FLOAT = auto()  # columns (high, low): a sum of doubles, and what rounding has left out of it
    MIN = auto()  # by the order of the column's kind (IPv4 before IPv6)
    MAX = auto()
    BIT_AND = auto()
    BIT_OR = auto()
    FIRST = auto()  # columns (order…, value): the value of the least order, read from left to right
    LAST = auto()


@dataclass(frozen=True, slots=True)
class Fold:
    """One aggregate state: what a single tuple contributes (`lift`, one for each column), and how two merge."""

    op: FoldOp
    columns: tuple[Column, ...]
    lift: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Tuples to partials: filter, compute, and either fold the groups of each pane or keep every tuple as a row.

    Output rows are (pane, tuples, keys…, details…, folds' columns…). `details` split a group further (the values of
    holistic aggregates) but play no part in the choice of its bucket.
    """

    where: Expr | None
    pane: Pane
    keys: tuple[Named, ...]
    details: tuple[Named, ...]
    folds: tuple[Fold, ...]
    grouped: bool  # False: a selection: a row for each tuple, with the folds' lifted values
    strings: tuple[str, ...] = ()
    at_once: bool = False
    """A group without folds goes out with its first tuple of a pane, and once more with the rest of them, if any."""

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """What is computed of a tuple that passes: the columns behind pane and tuples."""
        named = (item.expr for item in (*self.keys, *self.details))
        return (*named, *(lift for fold in self.folds for lift in fold.lift))

    @property
    def checked(self) -> bool:
        """Whether something can be lost to an overflow."""
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


@dataclass(frozen=True, slots=True)
class Node:
    """The low-level part for one or more input streams of a stage; `name` is unique in the stage."""

    name: str
    streams: tuple[str, ...]
    reduction: Reduction
    bucket_by: tuple[str, ...]  # the keys whose hash chooses the bucket; of like kinds where rows of nodes meet


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
    """An aggregate's final value: which function, from which folds (indexes) and details (names), as which column."""

    function: str
    folds: tuple[int, ...]
    details: tuple[str, ...]
    parameters: tuple[str, ...]  # as written, for example the exact decimal of a quantile
    column: Column
    ties: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """Folds that find the same value from both sides of those that are first or last together. They differ where there
    is no such value."""


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
    """Without windows: the keys that progress. Each expression is non-decreasing over Field(PANE) and gives, of the
    first pane that has not ended, the least value that the key can still have."""
    crowded: bool = False
    """Many windows close at a time, each of few tuples."""
    at_once: bool = False
    """Without windows, and with nothing but keys to show: a group's row leaves with its first tuple."""
    strategy: Strategy = Strategy.PANED  # of sliding windows; of others it is the only one. State depends on it
    asked: Strategy = field(default=Strategy.AUTO, repr=False)  # by a hint of the query's text


@dataclass(frozen=True, slots=True)
class Order:
    expr: Expr
    descending: bool


@dataclass(frozen=True, slots=True)
class Total:
    """`total(x)`: the sum of x over all groups of the window, as a column of that name for what follows."""

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
    """Columns of the input: rows that agree on them are one unit for totals, ORDER BY, DISTINCT and LIMIT. Without any:
    window_start and window_end, where the input begins with them. Queries without windows name the progressing
    expressions here, windows over rows with PA the partition's fields too."""
    window: Window | None = None
    """Of the input's rows, where they show one (groups without windows: the key that is cut into panes): it tells the
    windows in which something overflows."""


@dataclass(frozen=True, slots=True)
class Number:
    """Put tuples into the order of arrival and number them, from 1, in the output's column `number` (None: they are
    put in order only). Tuples of several sources go by the columns named in `order`, the first of which is what panes
    are cut of; those of one source come in order, and `order` is ()."""

    input: Schema
    order: tuple[str, ...]
    output: Schema
    number: str | None = "row_num"
    panes: bool = False  # of one source: it also promises panes, below which no row will come out any more


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction above the low level, over the rows of an upstream step."""

    input: Schema
    reduction: Reduction


@dataclass(frozen=True, slots=True)
class SlideByTuple:
    """Windows (w − size, w], one for the value w of `at` in every slide-th tuple: as they come, or in the order of `at`
    (`ranked`). In a pane p or later no tuple has an `at` below p·pane_ns + shift_ns."""

    ranked: bool
    pane_ns: int
    shift_ns: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows whose extents tuples decide: over rows that each partition numbers for itself, or `slides` by tuple.

    Rows of the input, each a partial of one tuple, come in the order of arrival (but where ranks are counted): (pane,
    tuples, at, partition…, keys…, details…, folds…). `keys` begin with the partition: each value of these keys counts
    its own tuples. The output is (window_start, window_end, keys…, calls…)."""

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
    """Panes: a partition in which, by the latest of them, no tuple came for longer begins anew. Its windows over rows
    close as at the end of the input. Slide-by-tuple: the pane of `at`. None: its tuples are counted for ever."""


StepPlan = Aggregate | Counted | Finish | Gather | Join | Number | Reduce | Send | Totals


@dataclass(frozen=True, slots=True)
class Step:
    plan: StepPlan
    inputs: tuple[NodeInput | StepInput, ...]
    ports: tuple[int, ...] = ()
    """The operator's port that each input feeds; inputs of one port are a union. (): port 0, all of them."""

    def port(self, number: int) -> int:
        return self.ports[number] if self.ports else 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """How a query reads a node whose rows carry more than it asked for: its steps get rows of `schema`, whose columns
    are these of the node's, in this order."""

    node: str
    columns: tuple[str, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A whole query: the last step's port 0 is the answer. `steps` stand in an order in which inputs come first."""

    name: str
    sql: str
    stage: Stage
    steps: tuple[Step, ...]
    output: Schema  # result columns, in order, with their shown names
    window: Window | None  # of the answer: what completions speak of; None: there are none, or not in one sequence
    ordered: bool  # ORDER BY: the rows of one window come in this order
    notes: tuple[str, ...]  # what `explain` says of choices made: one bucket and why, growth of state
    late: Late = Late.COUNT  # of the stage only where tuples are counted: what tells late ones comes with all
    strategy: Strategy = Strategy.AUTO  # as asked for; each step has its own
    rates: Rates = DEFAULT_RATES
    exchanges: Exchanges | None = None  # between the buckets of the stage, where keys of steps disagree
    limits: Limits = DEFAULT_LIMITS  # no part of what state is kept for: it can be raised, and the state gone on with
    limit: int | None = None  # it ends with so many rows, the first that come; None: with its streams
    views: tuple[NodeView, ...] = ()  # of nodes that it shares with queries of other aggregates; others it reads whole

    def rows_of(self, node: str) -> Schema:
        """What its steps are given of a node of the stage."""
        schemas = {item.name: item.reduction.schema for item in self.stage.nodes}
        return (schemas | {view.node: view.schema for view in self.views})[node]

    def exchange(self, node: str) -> Exchange | None:
        """The exchange whose rows come as those of this node; None: it is a node of the capture processes."""
        each = () if self.exchanges is None else self.exchanges.each
        return next((exchange for exchange in each if exchange.node.name == node), None)
