"""FROM with several inputs: their names, windows and conditions, as a relation of their combinations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import gcd

from lowmark.query import syntax as s
from lowmark.query.arithmetic import KIND_NAMES
from lowmark.query.errors import QueryError
from lowmark.query.expressions import Expr, Field, Literal, Named, Op
from lowmark.query.folding import conjoin, words
from lowmark.query.hints import hinted_probes
from lowmark.query.lowering import Lowering
from lowmark.query.names import InputNames
from lowmark.query.plan import AT, has_every_row
from lowmark.query.progressing import Progress
from lowmark.query.relations import ROW_NUM, WINDOW_END, WINDOW_START, Arm, Grouped, Joined, Packets, Relation, Side
from lowmark.query.scope import Scope
from lowmark.query.windowing import GRANULE, progresses, progressing_columns, promised, time_size
from lowmark.query.windows import WindowKind
from lowmark.wire.schema import Column, Kind

__all__ = ["Item", "conditions_of", "inputs_of", "join", "kind_of", "label_of", "unlabelled"]

Item = tuple[s.Input, Relation]
"""An input of FROM, and what it stands for."""

_AT = Field(AT, Kind.TIME)


def inputs_of(sources: Iterable[s.Source]) -> list[s.Input]:
    """The inputs of FROM, in order."""
    return [item for source in sources for item in _flat(source)]


def conditions_of(sources: Iterable[s.Source]) -> list[s.Expression]:
    """The conditions that stand in FROM, behind ON."""
    return [part for source in sources for part in _conditions(source)]


def kind_of(sources: Sequence[s.Source], text: str) -> s.JoinKind:
    """What kind of join FROM is of."""
    for source in sources:
        for part in _joins(source):
            if part.kind is not s.JoinKind.INNER:
                if len(inputs_of(sources)) > 2:
                    hint = "join two of them in a CREATE STREAM"
                    raise QueryError(f"{part.kind} of more than two inputs cannot run yet", text, part.span, hint=hint)
                return part.kind
    return s.JoinKind.INNER


def label_of(item: s.Input) -> str | None:
    """The name that may stand before an input's columns."""
    if item.alias is not None:
        return item.alias.text
    return item.relation.name.text if isinstance(item.relation, s.StreamRef) else None


def join(
    items: Sequence[Item], on: Sequence[s.Expression], kind: s.JoinKind, hints: Sequence[s.Hint], text: str,
    strings: tuple[str, ...],
) -> Scope:  # fmt: skip
    """The scope of a SELECT over a join; `on` are the conditions of its FROM."""
    tumbling, specs = _specs([item for item, _ in items], text)
    sides = tuple(
        _Binder(label, relation, text, strings).side(spec)
        for label, (_, relation), spec in zip(_labels(items, text), items, specs, strict=True)
    )
    _check_sizes(tumbling, sides, specs, text)
    matched = tuple(_column(side, own) for side in sides for own in side.relation.known)
    labels = tuple(side.label for side in sides)
    where = None
    if on:
        scope = Scope(text, None, Relation(matched, ()), labels)
        lowering = Lowering(text, strings, InputNames(scope, "ON", "conditions on aggregates go to HAVING"))
        where = conjoin([lowering.condition(part) for part in on])
    alone = kind in (s.JoinKind.SEMI, s.JoinKind.ANTI)
    sides = tuple(side if has_every_row(kind, n) else replace(side, progress=()) for n, side in enumerate(sides))
    columns = tuple(_column(side, own, kind, n) for n, side in enumerate(sides) for own in side.relation.known)
    probes = hinted_probes(hints, labels, text)
    base = Joined(sides, tumbling, where, columns, kind=kind, probes=probes)
    values: dict[str, Expr] = {column.name: Field(column.name, column.kind, column.nullable) for column in columns}
    seen = sides[:1] if alone else sides
    shown = tuple(_column(side, own, kind, n) for n, side in enumerate(seen) for own in side.relation.columns)
    hidden = tuple(_column(side, own, kind, n) for n, side in enumerate(seen) for own in side.relation.hidden)
    relation = Relation(shown, (Arm(base, None, values),), hidden=hidden)
    return Scope(text, None, relation, tuple(side.label for side in seen))


def unlabelled(scope: Scope) -> Scope:
    """A join of which only the first input is seen, as if FROM had that input alone: columns have their own names."""
    (label,), relation = scope.inputs, scope.relation
    start = len(label) + 1
    (arm,) = relation.arms
    values = {column.name[start:]: arm.values[column.name] for column in relation.known}

    def own(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(column, name=column.name[start:]) for column in columns)

    shown = Relation(own(relation.columns), (replace(arm, values=values),), hidden=own(relation.hidden))
    return Scope(scope.text, label, shown)


def _column(side: Side, own: Column, kind: s.JoinKind = s.JoinKind.INNER, number: int = 0) -> Column:
    """As the join calls it; null where its input has no row."""
    return Column(side.named(own.name), own.kind, own.nullable or not has_every_row(kind, number))


def _flat(source: s.Source) -> list[s.Input]:
    return [source] if isinstance(source, s.Input) else [*_flat(source.left), source.right]


def _conditions(source: s.Source) -> list[s.Expression]:
    return [part.condition for part in reversed(list(_joins(source)))]


def _joins(source: s.Source) -> Iterator[s.Join]:
    """From the last one to the first."""
    while isinstance(source, s.Join):
        yield source
        source = source.left


def _labels(items: Sequence[Item], text: str) -> list[str]:
    labels: list[str] = []
    for item, _ in items:
        label = label_of(item)
        if label is None:
            raise QueryError("an input of a join needs a name", text, item.span, hint="give it one: … AS name")
        if label.casefold() in {other.casefold() for other in labels}:
            hint = f"give one of them another name: {label} AS name"
            raise QueryError(f"two inputs are called {label}", text, item.span, hint=hint)
        labels.append(label)
    return labels


def _specs(inputs: Sequence[s.Input], text: str) -> tuple[bool, list[s.Window]]:
    """Each input's window; whether they are tumbling. One behind the last input holds for all."""
    last = inputs[-1].window
    common = last if last is not None and last.tumbling else None
    specs = []
    for item in inputs:
        spec = item.window or common
        if spec is None:
            hint = "every input needs a [RANGE …], or the last one a [RANGE TUMBLING …] for all"
            raise QueryError("this join would wait for ever: an input has no window", text, item.span, hint=hint)
        if spec.tumbling is not (common is not None):
            hint = "give all inputs a [RANGE …], or the last one a [RANGE TUMBLING …] for all"
            raise QueryError("tumbling and sliding windows cannot be joined", text, spec.span, hint=hint)
        specs.append(spec)
    return common is not None, specs


def _check_sizes(tumbling: bool, sides: Sequence[Side], specs: Sequence[s.Window], text: str) -> None:
    for side, spec in zip(sides, specs, strict=True):
        if tumbling and side.size != sides[0].size:
            raise QueryError("the tumbling windows of a join must be of one size", text, spec.span)


class _Binder:
    """Binds the window of one input."""

    def __init__(self, label: str, relation: Relation, text: str, strings: tuple[str, ...]) -> None:
        self._scope = Scope(text, label, relation)
        self._lowering = Lowering(text, strings, InputNames(self._scope, "a window"))
        self._label = label
        self._relation = relation
        self._text = text

    def side(self, spec: s.Window) -> Side:
        size = self._size(spec)
        attribute, spot = self._attribute(spec)
        arms = self._relation.arms
        ways = progresses(attribute, arms)
        if ways is None:
            raise QueryError(
                "a join's window goes over what progresses", self._text, spot, progressing_columns(self._scope)
            )
        if attribute.kind is not Kind.TIME:
            raise QueryError(f"a join's window goes over a time, not {KIND_NAMES[attribute.kind]}", self._text, spot)
        unit = gcd(*(_grain(arm) for arm in arms))
        panes = [way.pane(unit) for way in ways]
        whole = tuple(promised(pane, arm) for pane, arm in zip(panes, arms, strict=True) if pane is not None)
        return Side(self._label, self._relation, attribute, size, whole, unit, self._progress(ways))

    def _size(self, spec: s.Window) -> int:
        if spec.slide is not None or spec.rattr is not None or spec.sattr is not None or spec.pa:
            raise QueryError("the window of a join's input has a RANGE and a WA, nothing else", self._text, spec.span)
        match spec.range:
            case None:
                hint = "for example [RANGE 1 minute, WA ts]"
                raise QueryError("a window needs a RANGE", self._text, spec.span, hint=hint)
            case s.Everything(span=span):
                message = "this join would wait for ever: its window holds everything"
                raise QueryError(message, self._text, span, hint="give it a RANGE that ends")
            case s.RowCount(span=span):
                raise QueryError("the window of a join's input goes over time, not rows", self._text, span)
            case size:
                return time_size(size, self._text)

    def _attribute(self, spec: s.Window) -> tuple[Expr, s.Span]:
        if spec.wa is not None:
            return self._lowering.lower(spec.wa), spec.wa.span
        column = self._relation.column("ts")
        if column is None:
            raise QueryError(
                f"this window needs a WA: {self._label} has no ts", self._text, spec.span,
                progressing_columns(self._scope),
            )  # fmt: skip
        return Field(column.name, column.kind, column.nullable), spec.span

    def _progress(self, attribute: Sequence[Progress]) -> tuple[Named, ...]:
        """The columns whose least value is known where the attribute's is: alike in all arms."""
        found = []
        for column in self._relation.columns:
            field = Field(column.name, column.kind, column.nullable)
            ways = progresses(field, self._relation.arms)
            if ways is None:
                continue
            arms = zip(self._relation.arms, attribute, ways, strict=True)
            exprs = {_over(arm, known, way, column.kind) for arm, known, way in arms}
            if len(exprs) == 1 and (expr := exprs.pop()) is not None:
                found.append(Named(f"{self._label}.{column.name}", expr))
        return tuple(found)


def _over(arm: Arm, attribute: Progress, way: Progress, kind: Kind) -> Expr | None:
    """What progresses one way, computed from the attribute, which progresses by constants added; None: from another."""
    base, offset = _origin(arm, attribute.attribute)
    other, ahead = _origin(arm, way.attribute)
    if base != other:
        return None
    moved = ahead - offset - attribute.value(0)
    return way.over(words(Op.ADD, Kind.TIME, _AT, Literal(moved, Kind.DURATION)), kind)


def _origin(arm: Arm, attribute: str) -> tuple[str, int]:
    """The column that a progressing one of the base is a constant ahead of, and how much in ns."""
    match arm.base:
        case Packets() if attribute != ROW_NUM:
            return "ts", 0
        case Grouped(window=window) if attribute == WINDOW_START and window.kind is WindowKind.SLIDING:
            return WINDOW_END, -window.size * window.axis.unit
    return attribute, 0


def _grain(arm: Arm) -> int:
    """The steps in which the base of an arm promises times."""
    if isinstance(arm.base, Grouped) and arm.base.window.kind is not WindowKind.SLIDE_BY_TUPLE:
        return arm.base.window.axis.unit
    return GRANULE.width
