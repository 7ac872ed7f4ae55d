"""Plans calls of aggregate functions; the functions themselves are declared in `functions`, and by users.

A call is planned into *lifts* (folds without names) and, if folds alone do not determine its value, into *details*:
expressions whose values split the groups. `CallPlanner` collects the calls of one SELECT, shares equal folds and
details, and names the columns.

- `count(*)`, and every count of an expression that is never null, is the partials' own column of tuples: no fold.
- Aggregates skip nulls. A sum over a nullable argument therefore has a count of its values beside it, and is null where
  that is 0. The column of sums need not tell null from 0, so it can be subtracted again.
- A column of sums of integers is nullable in the result: null where the sum left int64 (the window is then lossy).
- Means, deviations and medians of durations are doubles, in seconds (variances in s²).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points

from lowmark.query.aggregates.functions import BUILT_IN, AggregateFunction, Result
from lowmark.query.aggregates.lift import Lift, opposite
from lowmark.query.expr.expressions import Expr, Named
from lowmark.query.parse.errors import BadEntryPoint
from lowmark.query.plan.nodes import Aggregate, AggregateCall, Fold, FoldOp
from lowmark.wire.rows.schema import Column, Kind

__all__ = [
    "DIFFERENTIAL", "ENTRY_POINTS", "AggregateFunction", "BadAggregate", "CallPlanner", "PlannedCall", "Result",
    "function", "kept_columns", "names", "plan_aggregate",
]  # fmt: skip

ENTRY_POINTS = "lowmark.aggregates"
"""The entry-point group of users' own aggregates: each entry point gives an `AggregateFunction`."""

DIFFERENTIAL = frozenset({FoldOp.ADD, FoldOp.ADD_WIDE})
"""Folds whose merges can be undone exactly (Li 6.2.2). Sums of floats are never subtracted."""


class BadAggregate(Exception):
    """An impossible call: `reason` is a sentence for the query's author. `argument` is the index of the wrong argument
    (parameters count after the arguments), or None for the whole call; `valid` lists what would be right."""

    def __init__(self, reason: str, argument: int | None = None, valid: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.argument = argument
        self.valid = valid


@dataclass(frozen=True, slots=True)
class PlannedCall:
    function: AggregateFunction
    lifts: tuple[Lift, ...]
    details: tuple[Expr, ...]
    parameters: tuple[str, ...]
    result: Result


def function(name: str, distinct: bool = False) -> AggregateFunction:
    """The function with this lower-case name, or with the name in an `AggregateCall`; KeyError if there is none.
    `count` with `distinct` is a separate function."""
    return _registry()[f"{name} distinct" if distinct else name]


def names() -> tuple[str, ...]:
    """The aggregates that a query may call, sorted."""
    return tuple(sorted(name for name in _registry() if " " not in name))


def plan_aggregate(
    name: str,
    args: tuple[Expr, ...],
    distinct: bool = False,
    parameters: tuple[str, ...] = (),
    order: tuple[Named, ...] = (),
) -> PlannedCall:
    """The plan of `name(args, parameters)`. `count(*)` has no arguments; parameters are given as they were written.
    `order`: the columns by which the input is ordered, for first and last. Raises BadAggregate; KeyError for a name
    that is not in `names()`."""
    if distinct and f"{name} distinct" not in _registry():
        function(name)
        raise BadAggregate(f"DISTINCT goes with count alone: {name} cannot have it")
    called = function(name, distinct)
    _check(called, name, args, parameters)
    if called.ordered and not order:
        raise BadAggregate(f"{name} needs an order, and these rows have none: those of a join go by a window's WA")
    details = () if called.details is None else called.details(args)
    return PlannedCall(called, called.lift(args, order), details, parameters, called.result(args))


def _check(called: AggregateFunction, name: str, args: tuple[Expr, ...], parameters: tuple[str, ...]) -> None:
    least, most = called.arguments
    if len(args) < least or (most is not None and len(args) > most):
        count = "no argument" if most == 0 else "one argument" if most == 1 else f"at least {least}"
        behind = f" and then {', '.join(called.parameters)}" if called.parameters else ""
        raise BadAggregate(f"{name} takes {count}{behind}, not {len(args) or '*'}", most if args else None)
    if len(parameters) != len(called.parameters):
        wanted = ", ".join(called.parameters) or "nothing"
        raise BadAggregate(f"behind its argument {name} takes {wanted}", len(args))
    for index, arg in enumerate(args):
        if arg.kind not in called.kinds:
            kinds = tuple(kind.value for kind in Kind if kind in called.kinds)
            raise BadAggregate(f"{name} cannot take a value of kind {arg.kind.value}", index, kinds)
    try:
        called.check(parameters)
    except ValueError as error:
        raise BadAggregate(str(error), len(args)) from None


def kept_columns(plan: Aggregate) -> tuple[str, ...]:
    """What distinguishes rows of the aggregate's state, for people: keys, and details named after their first call."""
    split: dict[str, str] = {}
    for call in plan.calls:
        for detail in call.details:
            if detail in plan.details:
                split.setdefault(detail, f"what {call.column.name} counts by")
    return (*plan.keys, *split.values())


@dataclass
class CallPlanner:
    """Collects the calls of one SELECT. `keys` are the groups' keys; `order` is as for `plan_aggregate`. `ties`: tuples
    may be equal in `order`, which then holds integers. `taken`: other names that no column may have. Equal folds and
    details are shared; a detail that equals a key is that key."""

    keys: tuple[Named, ...]
    order: tuple[Named, ...] = ()
    ties: bool = False
    taken: Iterable[str] = ()
    _folds: dict[tuple[FoldOp, tuple[Expr, ...]], Fold] = field(default_factory=dict, init=False)
    _details: dict[Expr, Named] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._used = {"pane", "tuples", *self.taken, *(key.name for key in self.keys)}
        self._names = {key.expr: key.name for key in self.keys}

    @property
    def folds(self) -> tuple[Fold, ...]:
        return tuple(self._folds.values())

    @property
    def details(self) -> tuple[Named, ...]:
        return tuple(self._details.values())

    def add(
        self,
        name: str,
        args: tuple[Expr, ...],
        column: str,
        distinct: bool = False,
        parameters: tuple[str, ...] = (),
    ) -> AggregateCall:
        """Plan a call whose value gets the name `column`; raises as `plan_aggregate` does."""
        planned = plan_aggregate(name, args, distinct, parameters, self.order)
        opposites = [(lift, other) for lift in planned.lifts if self.ties and (other := opposite(lift)) is not None]
        return AggregateCall(
            planned.function.name,
            tuple(self._fold(lift) for lift in planned.lifts),
            tuple(self._detail(expr) for expr in planned.details),
            planned.parameters,
            Column(column, planned.result.kind, planned.result.nullable or bool(opposites)),
            tuple((self._fold(lift), self._fold(other)) for lift, other in opposites),
        )

    def _fold(self, lift: Lift) -> int:
        key = (lift.op, tuple(part.expr for part in lift.columns))
        if key not in self._folds:
            stem = f"_{lift.op.name.lower()}{len(self._folds)}"
            columns = tuple(
                Column(self._free(f"{stem}_{part.name}" if part.name else stem), part.expr.kind, part.expr.nullable)
                for part in lift.columns
            )
            self._folds[key] = Fold(lift.op, columns, key[1])
        return list(self._folds).index(key)

    def _detail(self, expr: Expr) -> str:
        if expr not in self._names:
            named = Named(self._free(f"_detail{len(self._details)}"), expr)
            self._details[expr] = named
            self._names[expr] = named.name
        return self._names[expr]

    def _free(self, name: str) -> str:
        while name in self._used:
            name = f"_{name}"
        self._used.add(name)
        return name


@cache
def _registry() -> dict[str, AggregateFunction]:
    registry = {item.name: item for item in BUILT_IN}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            item = point.load()
        except (ImportError, AttributeError) as error:
            raise BadEntryPoint(f"entry point {point.name} of {ENTRY_POINTS}: {error}") from None
        if not isinstance(item, AggregateFunction) or item.name != point.name or not item.name.isidentifier():
            raise BadEntryPoint(f"entry point {point.name} of {ENTRY_POINTS} is not an AggregateFunction of that name")
        if item.name in registry:
            raise BadEntryPoint(
                f"entry point {point.name} of {ENTRY_POINTS}: there is an aggregate of that name already"
            )
        registry[item.name] = item
    return registry
