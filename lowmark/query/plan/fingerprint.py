"""Names made from plans. Of a stage: a hash of everything that decides its partials and where they go. Of a step: a
hash of everything that decides its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Ranges
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import SHAPES_NO_ROW, Join
from lowmark.query.plan.nodes import (
    Exchange,
    Exchanges,
    Fold,
    Node,
    NodeInput,
    QueryPlan,
    Reduction,
    Stage,
    Step,
)
from lowmark.wire.records.json_fields import Json, canonical
from lowmark.wire.rows.hashing import HASH_NAME
from lowmark.wire.rows.schema import Column

__all__ = [
    "exchanges_of", "fingerprint", "plan_digest", "share_names", "step_digests", "text_form",
]  # fmt: skip

_FORM = "stage-1"
"""Change this when the same plan begins to mean other partials."""


_PLAN_FORM = "plan-1"
"""Change this when the same plan begins to mean other results."""

_STEP_FORM = "step-1"
"""Change this when the same step begins to give other rows from the same input."""


def exchanges_of(steps: Sequence[Step], each: tuple[Exchange, ...], stage: Stage, query: str) -> Exchanges | None:
    """The exchanges of a query. They have a name of their own, because no other query shares what they send."""
    if not each:
        return None
    form = canonical([_FORM, stage.fingerprint, query, _form(tuple(steps)), _form(each)])
    return Exchanges(hashlib.sha256(form).hexdigest()[:16], each)


@lru_cache(maxsize=256)
def plan_digest(plan: QueryPlan) -> str:
    """16 hexadecimal digits, the same in every process, that stay as long as the query can go on with its state."""
    parts: list[Json] = [plan.stage.fingerprint, list(step_digests(plan)), _form(plan.output), _form(plan.window)]
    form = canonical([_PLAN_FORM, *parts, plan.ordered, _form(plan.exchanges)])
    return hashlib.sha256(form).hexdigest()[:16]


def fingerprint(nodes: Iterable[Node], buckets: int) -> str:
    """The fingerprint of a stage: 16 hexadecimal digits, the same in every process."""
    form: Json = {
        "form": _FORM,
        "hash": HASH_NAME,
        "buckets": buckets,
        "nodes": [_node(node) for node in nodes],
    }
    return hashlib.sha256(canonical(form)).hexdigest()[:16]


def text_form(exprs: Iterable[Expr]) -> bytes:
    """A text form of expressions: the same in every process, different for different expressions."""
    return canonical([_expr(expr) for expr in exprs])


@lru_cache(maxsize=256)
def step_digests(plan: QueryPlan) -> tuple[str, ...]:
    """For each step 16 hexadecimal digits, the same in every process, that name its plan and, recursively, what feeds
    it. Steps of one stage with equal digests give the same rows. Estimates and limits are left out, because they change
    no row and state stays valid when they change."""
    found: list[str] = []
    for step in plan.steps:
        form = canonical([_STEP_FORM, _form(step.plan), *_fed(plan, step, found)])
        found.append(hashlib.sha256(form).hexdigest()[:16])
    return tuple(found)


@lru_cache(maxsize=256)
def share_names(plan: QueryPlan) -> tuple[str | None, ...]:
    """For each step that is an inner join of two inputs, the name of what it could share; None for other steps. Joins
    of the same inputs on the same equalities have equal names; windows and shown columns do not matter."""
    digests = step_digests(plan)
    found: list[str | None] = []
    for step in plan.steps:
        join = step.plan
        if not isinstance(join, Join) or join.kind is not JoinKind.INNER or len(join.inputs) != 2:
            found.append(None)
            continue
        if join.in_order or join.windowless or join.punctuated:
            found.append(None)
            continue
        read: list[Json] = [[_form(port.schema), port.attribute, port.unit] for port in join.inputs]
        form = canonical([_STEP_FORM, "shared", read, join.tumbling, _form(join.equal), *_fed(plan, step, digests)])
        found.append(hashlib.sha256(form).hexdigest()[:16])
    return tuple(found)


def _fed(plan: QueryPlan, step: Step, digests: Sequence[str]) -> tuple[Json, Json]:
    """The ports of a step, and what feeds them; `digests` are those of the steps before it."""
    views = {view.node: view for view in plan.views}
    inputs: list[Json] = [
        ["node", source.node, _form(views.get(source.node))]
        if isinstance(source, NodeInput)
        else ["step", digests[source.step], source.port]
        for source in step.inputs
    ]
    return [step.port(number) for number in range(len(step.inputs))], inputs


def _form(part: object) -> Json:
    """Any part of a plan. The order of a class's fields does not count, nor a field that has its default: a later
    version may add one."""
    if isinstance(part, Expr):
        return _expr(part)
    if part is None or isinstance(part, bool | int | str):
        return part
    if isinstance(part, Enum):
        return part.name
    if isinstance(part, tuple):
        return [_form(item) for item in part]
    if not is_dataclass(part):
        raise TypeError(f"{type(part).__name__} has no canonical form")
    values = {item.name: getattr(part, item.name) for item in fields(part) if item.metadata != SHAPES_NO_ROW}
    defaults = {item.name: item.default for item in fields(part) if item.default is not MISSING}
    written = {name: _form(value) for name, value in values.items() if name not in defaults or value != defaults[name]}
    return [type(part).__name__, written]


def _node(node: Node) -> Json:
    return {
        "name": node.name,
        "streams": node.streams,
        "bucket_by": node.bucket_by,
        **_reduction(node.reduction),
        **({} if node.closing is None else {"closing": _form(node.closing)}),
    }


def _reduction(reduction: Reduction) -> dict[str, Json]:
    pane = reduction.pane
    return {
        "where": None if reduction.where is None else _expr(reduction.where),
        "pane": [pane.attribute, pane.width, pane.origin, *((op.name, constant) for op, constant in pane.steps)],
        "keys": [_named(item) for item in reduction.keys],
        "details": [_named(item) for item in reduction.details],
        "folds": [_fold(fold) for fold in reduction.folds],
        "grouped": reduction.grouped,
        "strings": reduction.strings,
        **({"at_once": True} if reduction.at_once else {}),
    }


def _fold(fold: Fold) -> Json:
    return [fold.op.name, [_column(column) for column in fold.columns], [_expr(expr) for expr in fold.lift]]


def _column(column: Column) -> Json:
    return [column.name, column.kind.value, column.nullable]


def _named(item: Named) -> Json:
    return [item.name, _expr(item.expr)]


def _expr(expr: Expr) -> Json:
    match expr:
        case Field(name=name, kind=kind, nullable=nullable):
            return ["field", name, kind.value, nullable]
        case Literal(value=value, kind=kind, beside_null=beside_null):
            # As a string: the printed form of a double is exact, and may be infinite; an address exceeds 64 bits.
            text = None if value is None else repr(value)
            return ["literal", text, kind.value, *((beside_null,) if beside_null else ())]
        case Ranges(kind=kind):
            return ["ranges", kind.value, expr.digest]
        case Call(op=op, args=args, kind=kind, nullable=nullable, checked=checked):
            name = f"checked {op.name}" if checked else op.name
            return [name, kind.value, nullable, *(_expr(arg) for arg in args)]
