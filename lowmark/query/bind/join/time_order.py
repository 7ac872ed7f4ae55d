"""ORDER BY ts over a join: its rows in order of time, which is the greatest time in each (Hammad 2005)."""

from __future__ import annotations

from dataclasses import replace

from lowmark.query.bind.hints import RELEASE, Hints
from lowmark.query.bind.relations import Joined, Relation
from lowmark.query.bind.scope import Scope
from lowmark.query.expr.expressions import Expr, Field
from lowmark.query.parse import syntax as s
from lowmark.query.plan.joins import InOrder

__all__ = ["in_order", "order_by_time"]


def order_by_time(select: s.Select, scope: Scope) -> s.Select:
    """The SELECT of an inner join, with ts in ORDER BY replaced by greatest(A.ts, B.ts) if the windows of all inputs
    are over ts."""
    (arm,) = scope.relation.arms
    if not isinstance(arm.base, Joined) or arm.base.kind is not s.JoinKind.INNER:
        return select
    aliases = {item.alias.text.casefold() for item in select.items if item.alias}
    times = _times(arm.base)
    items = []
    for item in select.order_by:
        ref = item.expression
        if isinstance(ref, s.FieldRef) and ref.input is None and ref.name.text.casefold() not in aliases:
            each = [replace(ref, input=replace(ref.name, text=label, quoted=True)) for label in scope.inputs]
            if all(scope.has(one) for one in each) and {scope.field(one).name for one in each} == times:
                word = replace(ref.name, text="greatest", quoted=False)
                item = replace(item, expression=s.FunctionCall(word, tuple(each), span=ref.span))
        items.append(item)
    return replace(select, order_by=tuple(items))


def in_order(relation: Relation, hints: Hints) -> Relation:
    """The relation with its join in order of time, if that is the order of the answer."""
    base = relation.arms[0].base
    if len(relation.arms) == 1 and isinstance(base, Joined) and relation.order:
        key = relation.arms[0].values.get(_name(relation.order[0].expr))
        extreme = next((each for each in base.extremes if key is not None and each.name == _name(key)), None)
        if extreme is not None and extreme.greatest and set(extreme.of) == _times(base):
            known = base.oblivious
            if known is not None and (known.asked or known.chosen or known.buffer is not None):
                hints.refuse_memory("a join with ORDER BY ts keeps its rows until all inputs have passed them")
            hint = hints.release()
            choice = InOrder() if hint is None else InOrder(hint, asked=True)
            if base.punctuated is not None:
                hints.refuse_algorithm("this join emits its rows in order of time")
            arms = (replace(relation.arms[0], base=replace(base, in_order=choice, oblivious=None, punctuated=None)),)
            return replace(relation, arms=arms)
    hints.refuse(RELEASE, "it applies to inner joins with ORDER BY ts")
    return relation


def _times(base: Joined) -> set[str]:
    """The columns that the windows of a join are over, by their names in the join."""
    return {side.named(_name(side.attribute)) for side in base.sides}


def _name(expr: Expr) -> str:
    return expr.name if isinstance(expr, Field) else ""
