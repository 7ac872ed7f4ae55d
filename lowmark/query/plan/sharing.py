"""Queries that share a stage: one node in the capture processes, one pass over packets, one topic of partials.

Queries whose stages are equal share them automatically; windows, HAVING, strategies and the selected columns may
differ. `share` makes one stage also for queries whose aggregates differ: its nodes carry the states of all of them, and
each query reads its own columns. The *set* of queries decides such a stage. No query joins one without
`share`, because adding or removing a query can make it another stage, with another topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from lowmark.query.expr.expressions import Expr, Field, Named
from lowmark.query.plan.fingerprint import exchanges_of, fingerprint, text_form
from lowmark.query.plan.nodes import Fold, FoldOp, Node, NodeView, QueryPlan, Reduction, Stage
from lowmark.wire.records.partials import PANE, TUPLES
from lowmark.wire.rows.schema import MOST_COLUMNS, Column, Kind

__all__ = ["CannotShare", "share", "unlike"]

_State = tuple[FoldOp, tuple[Expr, ...], tuple[tuple[Kind, bool], ...]]
"""What a fold keeps, without the names of its columns."""


class CannotShare(Exception):
    """`query` is the name of the query that does not fit the first one; the message says why, as a clause."""

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(reason)
        self.query = query


def share(plans: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """The same queries over one stage. It depends on their states and groups, not on their order or names."""
    first = plans[0]
    for one, other in combinations(plans, 2):
        if reasons := tuple(unlike(one, other)):
            raise CannotShare(other.name, "; ".join(reasons))
    together = [_united(nodes) for nodes in zip(*map(_nodes, plans), strict=True)]
    for node in together:
        if _columns(node.reduction) > MOST_COLUMNS:
            raise CannotShare(
                plans[-1].name,
                f"the states of all of them take {_columns(node.reduction)} columns, and {MOST_COLUMNS} is the most",
            )
    stage = Stage(fingerprint(together, first.stage.buckets), tuple(together), first.stage.buckets)
    return tuple(_over(stage, plan) for plan in plans)


def unlike(one: QueryPlan, other: QueryPlan) -> Iterator[str]:
    """What keeps two queries from sharing a stage: clauses about the other one."""
    mine, theirs = _nodes(one), _nodes(other)
    if [node.name for node in mine] != [node.name for node in theirs]:
        yield "they have other numbers of nodes"
        return
    if one.stage.buckets != other.stage.buckets:
        yield f"it has {other.stage.buckets} bucket{'' if other.stage.buckets == 1 else 's'}, not {one.stage.buckets}"
    for a, b in zip(mine, theirs, strict=True):
        yield from _unlike_nodes(a, b)


def _nodes(plan: QueryPlan) -> list[Node]:
    """The nodes; without `bucket_by` if there is a single bucket, where it makes no difference."""
    nodes = plan.stage.nodes
    return [replace(node, bucket_by=()) for node in nodes] if plan.stage.buckets == 1 else list(nodes)


def _unlike_nodes(mine: Node, theirs: Node) -> Iterator[str]:
    a, b = mine.reduction, theirs.reduction
    for differs, text in (
        (mine.streams != theirs.streams, "its streams differ"),
        (a.where != b.where, "its conditions differ"),
        (a.pane != b.pane, "its panes differ"),
        (_groups(mine) != _groups(theirs), "its groups differ"),
        (_splits(a) != _splits(b), "its aggregates split the groups by other values"),
        (mine.closing != theirs.closing, "its promises on connections differ"),
        (a.strings and b.strings and a.strings != b.strings, "its table of texts differs"),
    ):
        if differs:
            yield text


def _groups(node: Node) -> tuple[object, ...]:
    """The groups of a node and their buckets: the hash goes over the keys in their order."""
    keys = node.reduction.keys
    by_name = {key.name: key.expr for key in keys}
    return tuple(key.expr for key in keys), node.reduction.grouped, tuple(by_name[name] for name in node.bucket_by)


def _splits(reduction: Reduction) -> frozenset[Expr]:
    return frozenset(detail.expr for detail in reduction.details)


def _state(fold: Fold) -> _State:
    return fold.op, fold.lift, tuple((column.kind, column.nullable) for column in fold.columns)


def _columns(reduction: Reduction) -> int:
    named = len(reduction.keys) + len(reduction.details)
    return 2 + named + sum(len(fold.columns) for fold in reduction.folds)


def _united(nodes: Sequence[Node]) -> Node:
    """One node with the states of all of them. Its columns have names of its own."""
    first = nodes[0].reduction
    names = _Names()
    keys = names.of("key", [key.expr for key in first.keys])
    by_expr = {expr: text_form((expr,)) for node in nodes for expr in _splits(node.reduction)}
    details = names.of("detail", sorted(by_expr, key=by_expr.__getitem__))
    states = sorted({_state(fold) for node in nodes for fold in node.reduction.folds}, key=_rank)
    renamed = {key.name: new.name for key, new in zip(first.keys, keys, strict=True)}
    folds = tuple(names.fold(number, state) for number, state in enumerate(states))
    bucket_by = tuple(renamed[name] for name in nodes[0].bucket_by)
    strings = next((node.reduction.strings for node in nodes if node.reduction.strings), ())
    at_once = all(node.reduction.at_once for node in nodes)
    reduction = replace(first, keys=keys, details=details, folds=folds, strings=strings, at_once=at_once)
    closing = nodes[0].closing
    if closing is not None:
        closing = replace(closing, columns=tuple(renamed[name] for name in closing.columns))
    return replace(nodes[0], reduction=reduction, bucket_by=bucket_by, closing=closing)


def _rank(state: _State) -> tuple[str, bytes, list[tuple[str, bool]]]:
    op, lift, columns = state
    return op.name, text_form(lift), [(kind.value, nullable) for kind, nullable in columns]


class _Names:
    """Names of columns in a united node: a field keeps its name, anything else is named by its position."""

    def __init__(self) -> None:
        self._taken = {PANE, TUPLES}

    def of(self, stem: str, exprs: Sequence[Expr]) -> tuple[Named, ...]:
        return tuple(
            Named(self._free(expr.name if isinstance(expr, Field) else f"_{stem}{place}"), expr)
            for place, expr in enumerate(exprs)
        )

    def fold(self, number: int, state: _State) -> Fold:
        op, lift, columns = state
        stem = f"_{op.name.lower()}{number}"
        names = [stem] if len(columns) == 1 else [f"{stem}_{place}" for place in range(len(columns))]
        named = zip(names, columns, strict=True)
        return Fold(op, tuple(Column(self._free(name), *column) for name, column in named), lift)

    def _free(self, name: str) -> str:
        while name in self._taken:
            name = f"_{name}"
        self._taken.add(name)
        return name


def _over(stage: Stage, plan: QueryPlan) -> QueryPlan:
    nodes = zip(stage.nodes, plan.stage.nodes, strict=True)
    views = tuple(_view(node.name, node.reduction, own.reduction) for node, own in nodes)
    each = () if plan.exchanges is None else plan.exchanges.each
    return replace(plan, stage=stage, views=views, exchanges=exchanges_of(plan.steps, each, stage, plan.name))


def _view(node: str, reduction: Reduction, own: Reduction) -> NodeView:
    details = {detail.expr: detail.name for detail in reduction.details}
    states = {_state(fold): fold for fold in reduction.folds}
    columns = (
        PANE,
        TUPLES,
        *(key.name for key in reduction.keys),
        *(details[detail.expr] for detail in own.details),
        *(column.name for fold in own.folds for column in states[_state(fold)].columns),
    )
    return NodeView(node, columns, own.schema)
