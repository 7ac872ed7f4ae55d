"""Splits a query's relation into its two halves: the nodes of the capture processes, and the steps of a bucket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lowmark.query.bind.keys import free_name
from lowmark.query.bind.relations import ROW_NUM, Arm, Grouped, Joined, Packets, Relation, readers_first
from lowmark.query.bind.windows import GRANULE
from lowmark.query.expr.expressions import Expr, Field, Named, fields
from lowmark.query.expr.simplify import conjoin
from lowmark.query.optimize.join_statistics import JoinRates
from lowmark.query.optimize.partitioning import LANDMARK, bound_to_no_time, moves_at_end, places, reasons_for_one
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.parse.size_limits import placed
from lowmark.query.plan.halves import Halves, expressions_of
from lowmark.query.plan.nodes import (
    Aggregate,
    Finish,
    Fold,
    Gather,
    NodeInput,
    Pane,
    Reduce,
    Reduction,
    StepInput,
)  # fmt: skip
from lowmark.query.plan.steps.builder import Input, PlanBuilder, shared
from lowmark.query.plan.steps.columns import itself, itself_of, schema_of, typed
from lowmark.query.plan.steps.exchange import end_pane, finished
from lowmark.query.plan.steps.join import JoinPlan, Sent, plan_join
from lowmark.query.plan.steps.reads import Reads, is_above
from lowmark.query.plan.steps.row_windows import Builder, counted, counted_reads
from lowmark.query.plan.steps.stream_order import (
    arrives_in_order,
    by_window_end,
    order_columns,
    plan_order,
    sorted_windows,
)
from lowmark.query.plan.unions import common_window
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["Halves", "plan_query"]

_FIRST = ".order0"
"""The value of an arm that an order over the stream compares first."""


def plan_query(
    relation: Relation, strings: tuple[str, ...], expected: Expected, exchanging: str | None, sends_late: bool = False
) -> Halves:  # fmt: skip
    """`strings`: the query's table of texts. `exchanging`: the query's name, from which exchanges get theirs; None:
    rows may not change their bucket on the way. `sends_late`: late tuples are sent on.
    """
    return _Split(relation, strings, expected, exchanging, sends_late).halves()


class _Split:
    def __init__(
        self, relation: Relation, strings: tuple[str, ...], expected: Expected, exchanging: str | None, sends_late: bool
    ) -> None:  # fmt: skip
        self._sends_late = sends_late
        self._expected = expected
        self._relation = relation
        self._strings = strings
        self._made = PlanBuilder(exchanging or "", strings)
        self._done: dict[int, tuple[StepInput, Schema]] = {}  # by identity of the grouping or join
        self._places = places(relation)
        self._reads = Reads()
        self._joins: dict[int, JoinPlan] = {}  # by identity of the join
        self._plan_joins()
        self._stuck: str | None = None  # why rows cannot change their bucket although they must
        self._exchanging = exchanging is not None and self._may_exchange()

    def _may_exchange(self) -> bool:
        """Whether every reason for a single bucket goes away with exchanges."""
        relation = self._relation
        if relation.order or self._reads.number_packets or any(reasons_for_one(relation, self._places, True)):
            return False
        self._stuck = bound_to_no_time(relation, self._places)
        return self._stuck is None

    def _plan_joins(self) -> None:
        """Plan joins, readers first: a join is planned with the columns that any of them reads."""
        rates = JoinRates(self._expected)
        for arm in self._relation.arms:
            answered = [expr for name, expr in arm.values.items() if self._is_answered(name)]
            if is_above(arm, answered) or (self._relation.order and ROW_NUM in fields(arm.values[_FIRST])):
                self._reads.add(arm, answered)
        for base in readers_first(self._relation):
            with placed(base.span):
                self._plan_reads(base, rates)

    def _plan_reads(self, base: Grouped | Joined, rates: JoinRates) -> None:
        if isinstance(base, Joined):
            self._joins[id(base)] = planned = plan_join(base, self._reads.of(base), self._strings, rates)
            for sent in planned.sent:
                for arm, pane in zip(sent.side.relation.arms, sent.side.panes, strict=True):
                    self._note(arm, sent.reduction(arm, pane))
        elif base.counting is None:
            for arm, pane in zip(base.input.arms, base.panes, strict=True):
                self._note(arm, self._reduction(base, arm, pane))
        else:
            for arm, exprs in counted_reads(base, base.counting, self._builder):
                self._reads.add(arm, exprs)

    def _is_answered(self, name: str) -> bool:
        """Whether the answer reads a value of an arm: it shows it, or is ordered by it."""
        return bool(self._relation.order) if name.startswith(".") else self._relation.column(name) is not None

    def _note(self, arm: Arm, reduction: Reduction) -> None:
        if _is_reduced_above(arm, reduction):
            self._reads.add(arm, (*expressions_of(reduction), _attribute(reduction.pane)))

    def halves(self) -> Halves:
        arms = self._relation.arms
        window = common_window(arms)
        if self._relation.order and not (
            window and window.kind is not WindowKind.NONE and by_window_end(self._relation)
        ):
            window = None
        if len(arms) == 1 and isinstance(arms[0].base, Grouped) and not self._relation.order:
            self._answer_of_groups(arms[0], arms[0].base)
        elif window is not None:
            self._union(window)
        else:
            self._selection()
        reasons = list(reasons_for_one(self._relation, self._places, self._exchanging))
        if self._relation.order:
            reasons.append("ORDER BY is over the whole stream")
        if self._made.counts_rows:
            reasons.append("row_num is counted in one place")
        if self._stuck is not None:
            reasons.append(self._stuck)
        nodes = [replace(node, bucket_by=()) if reasons else node for node in self._made.nodes]
        output = Schema(self._relation.columns, self._strings)
        exchanges = tuple(self._made.exchanges)
        return Halves(*shared(nodes, self._made.steps), output, window, tuple(dict.fromkeys(reasons)), exchanges)

    # Answers

    def _selection(self) -> None:
        """Rows of packets or pairs, selected; also of groups that a union combines with other rows."""
        columns = self._relation.columns
        order = self._relation.order
        if order and not arrives_in_order(self._relation):
            plan_order(self._relation, self._strings, self._made, self._reduced)
            return
        by = [arm.values[_FIRST] for arm in self._relation.arms if order]
        above = [arm for arm in self._relation.arms if is_above(arm, (*_values(arm, columns), *by))]
        if not above:
            self._unnumbered(self._relation.arms, columns)
            return
        inputs: list[Input] = []
        for arm in self._relation.arms:
            if arm in above:
                source, schema = self._rows(arm)
                named = typed(tuple(Named(column.name, arm.values[column.name]) for column in columns), columns)
                inputs.append(self._made.project([source], schema, arm.where, named, _window_of(arm)))
            else:
                inputs.append(self._unnumbered((arm,), columns))
        if len(inputs) > 1:
            self._made.project(inputs, Schema(columns, self._strings), None, tuple(map(itself_of, columns)))

    def _unnumbered(self, arms: tuple[Arm, ...], columns: tuple[Column, ...]) -> StepInput:
        names: list[str] = []
        for column in columns:
            names.append(free_name(column.name, (PANE, TUPLES, *names)))
        inputs: list[NodeInput] = []
        schema = Schema((), self._strings)
        for arm in arms:
            named = tuple(Named(name, value) for name, value in zip(names, _values(arm, columns), strict=True))
            reduction = Reduction(arm.where, GRANULE, typed(named, columns), (), (), False, self._strings)
            self._made.node(arm.base, reduction, tuple(names), inputs)
            schema = reduction.schema
        shown = (Field(name, column.kind, column.nullable) for name, column in zip(names, columns, strict=True))
        selected = tuple(Named(column.name, field) for column, field in zip(columns, shown, strict=True))
        return self._made.project(inputs, schema, None, selected)

    def _union(self, window: Window) -> None:
        """Streams with the same windows: the rows of a window are emitted when all members have closed it."""
        relation = self._relation
        columns = (*relation.columns, *order_columns(relation))
        of = (*relation.names, *(item.expr.name for item in relation.order if isinstance(item.expr, Field)))
        inputs = []
        for arm in relation.arms:
            source, schema = self._rows(arm)
            values = (Named(column.name, arm.values[name]) for column, name in zip(columns, of, strict=True))
            named = typed(tuple(values), columns)
            rows = Reduction(arm.where, end_pane(window), named, (), (), False, self._strings)
            inputs.append(self._made.step(Reduce(schema, rows), [source]))
        gathered = self._made.step(Gather(rows.schema, window, Schema(columns, self._strings)), inputs)
        if relation.order:
            sorted_windows(relation, self._strings, self._made, gathered)

    def _answer_of_groups(self, arm: Arm, base: Grouped) -> None:
        columns = tuple(Named(column.name, arm.values[column.name]) for column in self._relation.columns)
        if base.distinct and arm.where is None and columns == tuple(map(itself, base.distinct)):
            self._finish(base, base.distinct, None)
        elif not base.distinct and (arm.where is None or base.limit is None):
            self._finish(base, columns, arm.where)
        else:
            source, schema = self._staged(base)
            self._made.project([source], schema, arm.where, columns, _window_of(arm))

    # Groups

    def _staged(self, base: Grouped) -> tuple[StepInput, Schema]:
        """A grouping as the input of another SELECT: its rows, with every column that a reader can ask for."""
        if id(base) not in self._done:
            columns = base.distinct or tuple(map(itself_of, base.columns))
            self._done[id(base)] = self._finish(base, columns, None)
        return self._done[id(base)]

    def _finish(self, base: Grouped, columns: tuple[Named, ...], where: Expr | None) -> tuple[StepInput, Schema]:
        with placed(base.span):
            return self._finished_groups(base, columns, where)

    def _finished_groups(
        self, base: Grouped, columns: tuple[Named, ...], where: Expr | None
    ) -> tuple[StepInput, Schema]:
        source, schema = self._aggregate(base)
        conditions = [condition for condition in (base.having, where) if condition is not None]
        if self._exchanging and base.counting is None and self._names(base):
            having = conjoin(conditions) if conditions else None
            return finished(base, columns, having, source, schema, self._made), schema_of(columns, self._strings)
        finish = Finish(
            input=schema,
            totals=base.totals,
            having=conjoin(conditions) if conditions else None,
            order=base.order,
            limit=base.limit,
            distinct=bool(base.distinct),
            columns=columns,
            output=schema_of(columns, self._strings),
            within=base.within,
            window=base.window,
        )
        return self._made.step(finish, [source]), finish.output

    def _aggregate(self, base: Grouped) -> tuple[StepInput, Schema]:
        output = Schema(base.columns[: len(base.columns) - len(base.totals)], self._strings)
        if base.counting is not None:
            return counted(base, base.counting, output, self._names(base), self._builder), output
        inputs: list[Input] = []
        fed: list[NodeInput] = []
        reduction = None
        for arm, pane in zip(base.input.arms, base.panes, strict=True):
            reduction = self._reduction(base, arm, pane)
            if _is_reduced_above(arm, reduction):
                inputs.append(self._moved(base, arm, reduction, self._names(base)))
            else:
                self._made.node(arm.base, replace(reduction, at_once=base.at_once), self._names(base), fed)
        assert reduction is not None
        aggregate = Aggregate(
            input=reduction.schema,
            keys=tuple(key.name for key in base.keys),
            details=tuple(detail.name for detail in base.details),
            folds=reduction.folds,
            calls=base.calls,
            window=base.window,
            output=output,
            progress=base.makers,
            asked=base.strategy,
            at_once=base.at_once,
        )
        return self._made.step(aggregate, [*fed, *inputs]), output

    @property
    def _builder(self) -> Builder:
        return Builder(self._made.node, self._made.step, self._reduction, self._numbered, is_above, self._sends_late)

    def _reduction(self, base: Grouped, arm: Arm, pane: Pane) -> Reduction:
        def lowered(named: Iterable[Named]) -> tuple[Named, ...]:
            columns = [Column(item.name, item.expr.kind, item.expr.nullable) for item in named]
            return typed(tuple(Named(item.name, arm.lowered(item.expr)) for item in named), columns)

        folds = (Fold(fold.op, fold.columns, tuple(map(arm.lowered, fold.lift))) for fold in base.folds)
        return Reduction(
            arm.filtered(base.where), pane, lowered(base.keys), lowered(base.details), tuple(folds), True, self._strings
        )

    def _names(self, base: Grouped) -> tuple[str, ...]:
        return tuple(key for key in self._places.keys[id(base)] if isinstance(key, str))

    # Joins

    def _joined(self, base: Joined) -> tuple[StepInput, Schema]:
        """The pairs of a join, with the columns that its readers read."""
        if id(base) not in self._done:
            self._done[id(base)] = self._join(base, self._joins[id(base)])
        return self._done[id(base)]

    def _join(self, base: Joined, planned: JoinPlan) -> tuple[StepInput, Schema]:
        keys = [key for key in self._places.keys[id(base)] if isinstance(key, int)]
        inputs: list[Input] = []
        ports: list[int] = []
        for port, sent in enumerate(planned.sent):
            feeding = self._sending(base, sent, tuple(sent.joint[key] for key in keys))
            inputs += feeding
            ports += [port] * len(feeding)
        return self._made.step(planned.join, inputs, tuple(ports)), planned.join.output

    def _sending(self, base: Joined, sent: Sent, bucket_by: tuple[str, ...]) -> list[Input]:
        fed: list[NodeInput] = []
        inputs: list[Input] = []
        for arm, pane in zip(sent.side.relation.arms, sent.side.panes, strict=True):
            reduction = sent.reduction(arm, pane)
            if _is_reduced_above(arm, reduction):
                inputs.append(self._moved(base, arm, reduction, bucket_by))
            else:
                self._made.node(arm.base, reduction, bucket_by, fed)
        return [*fed, *inputs]

    # Nodes and steps

    def _moved(self, reader: Grouped | Joined, arm: Arm, reduction: Reduction, by: tuple[str, ...]) -> Input:
        """A reduction above the low level, in the reader's buckets, which its columns `by` choose."""
        if not self._exchanging or not self._places.moves(reader, arm):
            return self._reduced(arm, reduction)
        source, schema = self._rows(arm)
        return self._made.exchange(source, schema, reduction, by, self._reason(reader, arm, by))

    def _reduced(self, arm: Arm, reduction: Reduction) -> StepInput:
        """A reduction above the low level."""
        source, schema = self._rows(arm)
        return self._made.step(Reduce(schema, reduction), [source])

    def _reason(self, reader: Grouped | Joined, arm: Arm, by: tuple[str, ...]) -> str:
        """Why the rows of an arm must change their bucket for its reader."""
        if isinstance(reader, Grouped) and reader.window.kind is WindowKind.LANDMARK:
            return LANDMARK
        base = arm.base
        if isinstance(base, Grouped) and moves_at_end(base):
            return "the rows of a window lie where they were compared with each other"
        lie = ", ".join(self._names(base)) or "no key" if isinstance(base, Grouped) else "what they are joined by"
        does = "joined" if isinstance(reader, Joined) else "grouped"
        return f"rows that lie in their buckets by {lie} are {does} by {', '.join(by) or 'nothing'}"

    def _rows(self, arm: Arm) -> tuple[StepInput, Schema]:
        """The rows of an arm's base above the low level: one step for each base, however many readers it has."""
        match arm.base:
            case Grouped() as grouped:
                return self._staged(grouped)
            case Joined() as joined:
                return self._joined(joined)
        return self._numbered(arm)

    def _numbered(self, arm: Arm) -> tuple[StepInput, Schema]:
        assert isinstance(arm.base, Packets)
        return self._made.numbered(arm.base, self._reads.of(arm.base))


def _is_reduced_above(arm: Arm, reduction: Reduction) -> bool:
    return reduction.pane.attribute == ROW_NUM or is_above(arm, expressions_of(reduction))


def _window_of(arm: Arm) -> Window | None:
    """The window of the rows of an arm's groups; None if they show none. Without windows a key gives the pane."""
    if not isinstance(arm.base, Grouped):
        return None
    window = arm.base.window
    if window.kind is not WindowKind.NONE or not arm.base.distinct:
        return window
    key = window.axis.attribute
    shown = (item.name for item in arm.base.distinct if isinstance(item.expr, Field) and item.expr.name == key)
    name = next(shown, None)
    return None if name is None else replace(window, axis=replace(window.axis, attribute=name))


def _attribute(pane: Pane) -> Expr:
    return Field(pane.attribute, Kind.TIME)


def _values(arm: Arm, columns: Iterable[Column]) -> list[Expr]:
    return [arm.values[column.name] for column in columns]
