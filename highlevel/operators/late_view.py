"""Makes rows from late partials alone: the answer's columns over these tuples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Words
from highlevel.operators.result_rows import RowBuilder
from lowmark.query.expr.evaluate import assemble_rows, evaluate, holds
from lowmark.query.expr.expressions import Expr, Named, fields
from lowmark.query.plan.nodes import Aggregate, Finish, Gather, NodeInput, QueryPlan, Reduce, Send, Totals
from lowmark.query.plan.steps.columns import itself_of
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.partials import PANE, TUPLES, TUPLES_WORD
from lowmark.wire.records.verdicts import Scalar
from lowmark.wire.rows.schema import Column, Schema
from lowmark.wire.rows.text import json_writer

__all__ = ["LateView", "ShownRows"]

_BOUNDS = frozenset({"window_start", "window_end"})


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows as JSON objects; `tuples` is the number of tuples that each stands for."""

    rows: tuple[Mapping[str, Scalar], ...] = ()
    tuples: tuple[int, ...] = ()


class LateView:
    """The late view of one node of a query. Where its partials are aggregated, a row is a group of the first stage,
    before HAVING; where they are single tuples, it is the SELECT's row for each. Values that need a whole window
    (`total()`, the window's bounds) are left out."""

    def __init__(self, plan: QueryPlan, node: str) -> None:
        step = next(index for index, step in enumerate(plan.steps) if NodeInput(node) in step.inputs)
        reader = plan.steps[step].plan
        schema = plan.rows_of(node)
        self._aggregate = reader if isinstance(reader, Aggregate) else None
        self._where: Expr | None = None
        if isinstance(reader, Aggregate):
            self._layout = Layout(reader.input, (*reader.keys, *reader.details), reader.folds)
            self._result = RowBuilder(reader)
            self._input = reader.output
            columns = _selected(plan, step, reader.output)
        elif isinstance(reader, Finish):
            self._where, self._input = reader.having, schema
            columns = reader.columns
        else:
            self._input = schema
            columns = tuple(itself_of(column) for column in schema if not column.name.startswith("_"))
        self._columns = tuple(
            column for column in columns if _reads(column, self._input) and column.name not in (PANE, TUPLES)
        )
        shown = tuple(Column(item.name, item.expr.kind, item.expr.nullable) for item in self._columns)
        self._writer = json_writer(Schema(shown, schema.strings), b"") if shown else None

    @property
    def window(self) -> Window | None:
        """The window that consists of the node's panes; None: its rows lie in no window."""
        if self._aggregate is None or self._aggregate.window.kind is WindowKind.NONE:
            return None
        return self._aggregate.window

    @property
    def layout(self) -> Layout:
        """The layout of the groups, where partials are aggregated."""
        return self._layout

    def of(self, partials: Words) -> ShownRows:
        """The rows of partials of one pane."""
        if self._aggregate is not None:
            table = GroupTable(self._layout)
            table.merge(partials)
            return self.of_groups(table)
        if self._where is not None:
            partials = partials[holds(evaluate(self._where, partials, self._input))]
        return self._shown(partials, partials[:, TUPLES_WORD].tolist())

    def of_groups(self, table: GroupTable) -> ShownRows:
        rows, tuples = self._result.counted(table)
        return self._shown(rows, tuples.tolist())

    def _shown(self, rows: Words, tuples: Sequence[int]) -> ShownRows:
        if self._writer is None:
            return ShownRows(({},) * len(rows), tuple(tuples))
        values = [evaluate(column.expr, rows, self._input) for column in self._columns]
        lines = self._writer.write(assemble_rows(self._writer.schema, values, len(rows)))
        return ShownRows(tuple(json.loads(line) for line in lines), tuple(tuples))


def _selected(plan: QueryPlan, step: int, output: Schema) -> tuple[Named, ...]:
    """The columns that the SELECT makes from the aggregate's; if exchanges follow, those that it shows after them."""
    shown, reached, returning = tuple(map(itself_of, output)), {step}, set[str]()
    for number, reader in enumerate(plan.steps[step + 1 :], step + 1):
        above = [source.step for source in reader.inputs if not isinstance(source, NodeInput)]
        back = any(isinstance(source, NodeInput) and source.node in returning for source in reader.inputs)
        if not back and not reached & {*above}:
            continue
        match reader.plan:
            case Finish(columns=columns) if not isinstance(plan.steps[above[0]].plan, Finish):
                shown = columns
                reached.add(number)
            case Send(node=node):
                returning.add(node)
            case Reduce() | Gather() | Totals():
                reached.add(number)
            case _:
                pass
    return shown


def _reads(column: Named, schema: Schema) -> bool:
    """Whether late tuples alone determine the column: totals are not columns of the schema."""
    return all(name in schema.names and name not in _BOUNDS for name in fields(column.expr))
