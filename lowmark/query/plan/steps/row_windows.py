"""The steps of a window that counts tuples: tuples are selected in the capture processes, and counted in a bucket.

    over rows                   nodes → Number → Reduce → Aggregate
    over rows, with PA          nodes → Number → Counted
    slide-by-tuple, arrival     nodes → (with several sources: Number) → Counted
    slide-by-tuple, rank        nodes → Counted

Nodes send partials of one tuple each. WHERE is applied before anything is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from lowmark.query.bind.keys import free_name
from lowmark.query.bind.relations import ARRIVAL, Arm, Base, Counting, Grouped, Packets, Turn
from lowmark.query.bind.row_windows import FIRST_ROW, shift_of
from lowmark.query.bind.windows import GRANULE
from lowmark.query.expr.expressions import Expr, Field, Literal, Named, columns_of
from lowmark.query.plan.halves import expressions_of
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Finish,
    Fold,
    NodeInput,
    Number,
    Pane,
    Reduce,
    Reduction,
    SlideByTuple,
    StepInput,
    StepPlan,
)  # fmt: skip
from lowmark.query.plan.steps.columns import itself, itself_of, typed
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["Builder", "counted", "counted_reads"]

Input = NodeInput | StepInput

_CROWDED = 1024
"""In rows: with a shorter SLIDE many windows close at a time."""


@dataclass(frozen=True, slots=True)
class Builder:
    """The parts of `planner` that assemble a plan."""

    node: Callable[[Base, Reduction, tuple[str, ...], list[NodeInput]], None]
    step: Callable[[StepPlan, Iterable[Input]], StepInput]
    reduction: Callable[[Grouped, Arm, Pane], Reduction]
    numbered: Callable[[Arm], tuple[StepInput, Schema]]
    is_numbered: Callable[[Arm, Iterable[Expr]], bool]
    sends_late: bool  # late tuples are sent on, with their `ts` and the columns that the query reads


def counted(
    base: Grouped, counting: Counting, output: Schema, bucket_by: tuple[str, ...], build: Builder
) -> StepInput:  # fmt: skip
    """The steps up to the rows of closed windows, which have the schema `output`."""
    return _Counted(base, counting, output, bucket_by, build).steps()


def counted_reads(base: Grouped, counting: Counting, build: Builder) -> Iterator[tuple[Arm, list[Expr]]]:
    """The expressions that each arm reads of packets that are numbered first."""
    return _Counted(base, counting, Schema(()), (), build).reads()


class _Counted:
    def __init__(
        self, base: Grouped, counting: Counting, output: Schema, bucket_by: tuple[str, ...], build: Builder
    ) -> None:
        self._base = base
        self._counting = counting
        self._output = output
        self._bucket_by = bucket_by
        self._build = build
        arms = base.input.arms
        self._several = sum(arm.base.sources for arm in arms if isinstance(arm.base, Packets)) > 1
        self._taken = [
            *(key.name for key in base.keys), *(detail.name for detail in base.details),
            *(column.name for fold in base.folds for column in fold.columns), PANE, TUPLES,
        ]  # fmt: skip
        ordered = self._several and counting.turn is not Turn.RANK
        self._order = tuple(self._free(f"by{item.name}") for item in ARRIVAL) if ordered else ()
        if ordered and len(arms) > 1:  # one packet may come through several arms
            self._order = (*self._order, self._free("by.arm"))
        self._at = self._free("at")
        self._late_columns = self._read() if build.sends_late else {}

    def _read(self) -> dict[str, Field | None]:
        """Columns that a late tuple shows beside its keys: the input's columns that are read, and its time (None)."""
        base = self._base
        exprs = [item.expr for item in (*base.keys, *base.details)]
        exprs += [expr for fold in base.folds for expr in fold.lift]
        read = {
            field.name: field for expr in exprs for field in columns_of(expr) if not field.name.startswith((".", "_"))
        }
        columns: dict[str, Field | None] = {"ts": None, **read}
        return {name: field for name, field in columns.items() if name not in self._taken}

    def steps(self) -> StepInput:
        inputs, reduction = self._inputs()
        if self._counting.turn is Turn.ROWS:
            source, schema = self._ordered(inputs, reduction, self._at)
            if not self._counting.partition:
                return self._over_rows(source, schema)
            return self._build.step(self._counted(schema), [source])
        schema = reduction.schema
        if self._order:
            source, schema = self._ordered(inputs, reduction, None)
            inputs = [source]
        slides = SlideByTuple(self._counting.turn is Turn.RANK, GRANULE.width, self._shift())
        return self._build.step(replace(self._counted(schema), slides=slides), inputs)

    def _inputs(self) -> tuple[list[Input], Reduction]:
        """The inputs of the first step, with one schema: (pane, tuples, at?, keys…, details…, order…, folds…)."""
        nodes: list[NodeInput] = []
        inputs: list[Input] = []
        reduction = None
        for number, arm in enumerate(self._base.input.arms):
            reduction = self._selection(arm, number)
            if self._build.is_numbered(arm, expressions_of(reduction)):
                inputs.append(self._projected(arm, reduction))
            else:
                self._build.node(arm.base, reduction, self._bucket_by, nodes)
        assert reduction is not None
        return [*nodes, *inputs], reduction

    def reads(self) -> Iterator[tuple[Arm, list[Expr]]]:
        for number, arm in enumerate(self._base.input.arms):
            read = expressions_of(self._selection(arm, number))
            if self._build.is_numbered(arm, read):
                yield arm, [*read, *(item.expr for item in ARRIVAL)]

    def _selection(self, arm: Arm, number: int) -> Reduction:
        plain = self._build.reduction(self._base, arm, GRANULE)
        exprs = [*(arm.values[item.name] for item in ARRIVAL), Literal(number, Kind.INT)]
        order = tuple(Named(name, expr) for name, expr in zip(self._order, exprs, strict=False))
        rattr = self._counting.rattr
        at = () if rattr is None else typed((Named(self._at, arm.lowered(rattr)),), (Column(self._at, Kind.TIME),))
        details = (*plain.details, *self._telling(arm), *order)
        return replace(plain, keys=(*at, *plain.keys), details=details, grouped=False)

    def _telling(self, arm: Arm) -> tuple[Named, ...]:
        when = arm.values[ARRIVAL[0].name]
        named = tuple(
            Named(name, when if field is None else arm.lowered(field)) for name, field in self._late_columns.items()
        )
        columns = [
            Column(name, Kind.TIME) if field is None else Column(name, field.kind, field.nullable)
            for name, field in self._late_columns.items()
        ]
        return typed(named, columns)

    def _projected(self, arm: Arm, reduction: Reduction) -> StepInput:
        """The same selection above the step that counts row_num."""
        source, schema = self._build.numbered(arm)
        columns = [column for fold in reduction.folds for column in fold.columns]
        named = tuple(Named(column.name, expr) for column, expr in zip(columns, _lifts(reduction), strict=True))
        head = tuple(itself_of(schema.column(name)) for name in (PANE, TUPLES))
        selected = (*head, *reduction.keys, *reduction.details, *typed(named, columns))
        plan = Finish(schema, (), reduction.where, (), None, False, selected, reduction.schema)
        return self._build.step(plan, [source])

    def _ordered(self, inputs: list[Input], reduction: Reduction, number: str | None) -> tuple[StepInput, Schema]:
        """The rows in the order of arrival, with their numbers, if any, before the keys."""
        pane, tuples, *rest = (
            column for column in reduction.schema if column.name not in (*self._order, *self._late_columns)
        )
        numbers = [] if number is None else [Column(number, Kind.INT)]
        schema = Schema((pane, tuples, *numbers, *rest), reduction.strings)
        return self._build.step(Number(reduction.schema, self._order, schema, number), inputs), schema

    def _over_rows(self, source: StepInput, schema: Schema) -> StepInput:
        base = self._base
        reduction = Reduction(
            where=None,
            pane=Pane(base.window.axis.unit, FIRST_ROW, self._at),
            keys=tuple(map(itself, base.keys)),
            details=tuple(map(itself, base.details)),
            folds=tuple(Fold(fold.op, fold.columns, tuple(map(Field.of, fold.columns))) for fold in base.folds),
            grouped=True,
            strings=schema.strings,
        )
        plan = Aggregate(
            input=reduction.schema,
            keys=tuple(key.name for key in base.keys),
            details=tuple(detail.name for detail in base.details),
            folds=reduction.folds,
            calls=base.calls,
            window=base.window,
            output=self._output,
            crowded=base.window.kind is WindowKind.SLIDING and base.window.slide * base.window.axis.unit < _CROWDED,
            asked=base.strategy,
        )
        return self._build.step(plan, [self._build.step(Reduce(schema, reduction), [source])])

    def _counted(self, schema: Schema) -> Counted:
        base = self._base
        return Counted(
            input=schema,
            at=self._at,
            partition=self._counting.partition,
            keys=tuple(key.name for key in base.keys),
            details=tuple(detail.name for detail in base.details),
            folds=base.folds,
            calls=base.calls,
            window=base.window,
            output=self._output,
        )

    def _shift(self) -> int:
        rattr = self._counting.rattr
        assert rattr is not None
        return min(shift for arm in self._base.input.arms if (shift := shift_of(rattr, arm)) is not None)

    def _free(self, name: str) -> str:
        found = free_name(f"_{name.replace('.', '_')}", tuple(self._taken))
        self._taken.append(found)
        return found


def _lifts(reduction: Reduction) -> list[Expr]:
    return [expr for fold in reduction.folds for expr in fold.lift]
