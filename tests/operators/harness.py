"""Plans, tuples and runs for the tests of aggregation; results as plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from highlevel.interface import State, Words
from highlevel.operators.reduce import ReduceOperator
from highlevel.row_marks import RowMark
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.aggregates.calls import CallPlanner
from lowmark.query.expr.expressions import Expr, Field, Named
from lowmark.query.plan.nodes import Aggregate, AggregateCall, Pane, Reduce, Reduction
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import column_of

Value = int | float | None
Row = dict[str, Value]

TUPLE = Schema(
    (
        Column("ts", Kind.INT),
        Column("position", Kind.INT),
        Column("host", Kind.IP),
        Column("port", Kind.INT, nullable=True),
        Column("ratio", Kind.FLOAT),
        Column("len", Kind.INT),
        Column("gap", Kind.DURATION, nullable=True),
        Column("load", Kind.FLOAT, nullable=True),
        Column("link", Kind.STR),
    ),
    ("Main1", "Main2"),
)
ORDER = (Named("ts", Field("ts", Kind.INT)), Named("position", Field("position", Kind.INT)))


@dataclass(frozen=True)
class AskedCall:
    """A call as a query has it: a function of columns of TUPLE."""

    function: str
    columns: tuple[str, ...] = ()
    distinct: bool = False
    parameters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [self.function, *(["distinct"] if self.distinct else []), *self.columns, *self.parameters]
        return "_".join(words)


@dataclass(frozen=True)
class Plans:
    reduce: Reduce
    aggregate: Aggregate


def field_of(name: str) -> Expr:
    column = TUPLE.column(name)
    return Field(name, column.kind, column.nullable)


def plans(calls: Sequence[AskedCall], keys: Sequence[str], window: Window) -> Plans:
    named = tuple(Named(name, field_of(name)) for name in keys)
    planner = CallPlanner(named, ORDER)
    planned: tuple[AggregateCall, ...] = tuple(
        planner.add(c.function, tuple(map(field_of, c.columns)), c.name, c.distinct, c.parameters) for c in calls
    )
    pane = Pane(window.axis.unit, attribute="ts")
    reduction = Reduction(None, pane, named, planner.details, planner.folds, True, TUPLE.strings)
    bounds: tuple[Column, ...] = ()
    if window.kind is not WindowKind.NONE:
        landmark = window.kind is WindowKind.LANDMARK
        bounds = (Column("window_start", window.axis.kind, landmark), Column("window_end", window.axis.kind))
    output = Schema(
        (*bounds, *(TUPLE.column(name) for name in keys), *(call.column for call in planned)), TUPLE.strings
    )
    details = tuple(detail.name for detail in planner.details)
    aggregate = Aggregate(reduction.schema, tuple(keys), details, planner.folds, planned, window, output)
    return Plans(Reduce(TUPLE, reduction), aggregate)


def axis(unit: int) -> Axis:
    return Axis("ts", Kind.INT, unit)


@dataclass
class Sink:
    """An `Out` that keeps everything."""

    matrices: list[Words] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    closings: list[tuple[range, int]] = field(default_factory=list)
    lates: list[Words] = field(default_factory=list)
    flaws: list[tuple[int, Reason]] = field(default_factory=list)
    sheds: list[tuple[Words, Reason]] = field(default_factory=list)
    marks: list[RowMark] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def rows(self, port: int, rows: Words) -> None:
        self.matrices.append(rows)
        self.order.append("rows")

    def promise(self, port: int, promise: Promise) -> None:
        self.promises.append(promise)
        self.order.append("promise")

    def closed(self, port: int, windows: range, tuples: int) -> None:
        self.closings.append((windows, tuples))
        self.order.append("closed")

    def late(self, port: int, rows: Words) -> None:
        self.lates.append(rows)

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        self.sheds.append((rows, reason))

    def mark(self, port: int, mark: RowMark) -> None:
        self.marks.append(mark)

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        self.flaws.append((window, reason))


class Stored:
    """State that can be written to bytes and read again at any time."""

    def __init__(self) -> None:
        self._bytes = MemoryByteStore()
        self.state: State = PiecewiseState(self._bytes, "stage")

    def again(self) -> None:
        assert isinstance(self.state, PiecewiseState)
        self.state.commit()
        self.state = PiecewiseState(self._bytes, "stage")

    @property
    def kept(self) -> list[str]:
        """The space of each piece that is written, in as many parts as it has."""
        return [space.split("#")[0] for space, _ in self._bytes.pieces if space]


class Live:
    """State that stays as it is."""

    def __init__(self) -> None:
        self.state: State = MemoryState()

    def again(self) -> None:
        pass


def panes_ended(frontier: int) -> Promise:
    return Promise((Bound(PANE, frontier),), frontier == FOREVER)


def reduced(plan: Reduce, rows: Words) -> Words:
    sink = Sink()
    ReduceOperator(plan).on_batch(0, rows, MemoryState(), sink)
    return np.concatenate(sink.matrices) if sink.matrices else np.empty((0, plan.reduction.schema.words), np.uint64)


def values(schema: Schema, rows: Words) -> list[Row]:
    """Rows as dictionaries of Python values."""
    columns = []
    for column in schema:
        data, valid = column_of(schema, rows, column.name)
        if column.kind.words > 1:
            numbers = [sum(word << 64 * place for place, word in enumerate(row[::-1])) for row in data.tolist()]
        else:
            numbers = data.tolist()
        columns.append([number if is_valid else None for number, is_valid in zip(numbers, valid.tolist(), strict=True)])
    return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)] if columns else []
