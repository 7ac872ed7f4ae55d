"""FROM with several inputs: their names, windows and conditions, as a relation of their combinations.

Adjacent inner joins become one join of all their inputs. Any other join has two inputs: the part on its left is joined
first, as a relation whose rows wait by the window of an input that has a row in each of them. A row of a FULL JOIN gets
a time of its own, that of the first input with a row in it, and waits for the longer of the two windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from lowmark.query.bind.hints import BUFFER, MEMORY, Hints
from lowmark.query.bind.join.equal_times import Condition, EqualTimes, equal_times
from lowmark.query.bind.join.windows import InputWindow, bind, side_of, specs_of
from lowmark.query.bind.lowering import Lowering
from lowmark.query.bind.names import InputNames
from lowmark.query.bind.relations import Arm, Joined, Relation, Side, substitute
from lowmark.query.bind.scope import Scope, extreme_name
from lowmark.query.expr.expressions import Expr, Field, Interval, Literal, Named, Op, fields
from lowmark.query.expr.scalar_functions import EXTREMES
from lowmark.query.expr.simplify import compare, conjoin, disjoin, is_null, words
from lowmark.query.options import Memory
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.joins import Algorithm, Oblivious, Punctuated
from lowmark.query.plan.nodes import AT, Extreme, has_every_row
from lowmark.wire.rows.schema import Column, Kind

__all__ = ["Item", "inputs_of", "join", "join_to_first", "label_of", "with_extremes"]

Item = tuple[s.Input, Relation]
"""An input of FROM, and the relation that it stands for."""


_AT = Field(AT, Kind.TIME)


@dataclass(frozen=True, slots=True)
class _Part:
    """One input, or several inputs joined together."""

    labels: tuple[str, ...]  # labels of the inputs whose columns are visible
    prefix: str  # what a further join puts before the column names
    relation: Relation
    windows: tuple[InputWindow, ...]  # of these inputs, over the relation's columns
    span: s.Span

    @property
    def leading(self) -> InputWindow:
        """The window that decides how long the part's rows wait."""
        return next(window for window in self.windows if window.whole)


def inputs_of(sources: Iterable[s.Source]) -> list[s.Input]:
    """The inputs of FROM, in order."""
    return [item for source in sources for item in _flat(source)]


def label_of(item: s.Input) -> str | None:
    """The name that may stand before an input's columns."""
    if item.alias is not None:
        return item.alias.text
    return item.relation.name.text if isinstance(item.relation, s.StreamRef) else None


def join(
    sources: Sequence[s.Source], items: Sequence[Item], where: s.Expression | None, hints: Hints, text: str,
    strings: tuple[str, ...], promising: bool = False,
) -> Scope:  # fmt: skip
    """The scope of a SELECT over a join; `items` are the inputs of FROM, in order. `promising`: PUNCTUATE ON makes
    their sources promise values."""
    asked: list[Condition] = [] if where is None else [(where, None)]
    joining = _Joining(items, [*asked, *_conditions(sources)], text, strings, hints, promising)
    parts, conditions = joining.parts(sources)
    whole = joining.together(parts, conditions, s.JoinKind.INNER)
    hints.check_probes(joining.inner, joining.labels)
    if not joining.inner:
        hints.refuse_algorithm("outer, semi and anti joins have one algorithm")
    for word in (MEMORY, BUFFER):
        hints.refuse(word, "it applies to inner joins without windows")
    return joining.scope(whole)


def with_extremes(scope: Scope, select: s.Select) -> Scope:
    """The scope of an inner join with a hidden column for each greatest() and least() in a SELECT. A call gets none if
    its arguments are not all progressing times: lowering it reports the error."""
    (arm,) = scope.relation.arms
    if not isinstance(arm.base, Joined) or arm.base.kind is not s.JoinKind.INNER:
        return scope
    times = {named.name for side in arm.base.sides for named in side.progress}
    found: dict[str, Extreme] = {}
    for node in s.walk(select):
        if isinstance(node, s.FunctionCall) and (word := node.function.text.lower()) in EXTREMES:
            refs = [item for item in node.arguments if isinstance(item, s.FieldRef) and scope.has(item)]
            of = tuple(sorted({scope.field(ref).name for ref in refs}))
            if len(refs) == len(node.arguments) == len(of) > 1 and times.issuperset(of):
                name = extreme_name(word, of)
                found[name] = Extreme(name, word == EXTREMES[0], of)
    columns = tuple(Column(name, Kind.TIME) for name in found)
    base = replace(arm.base, extremes=tuple(found.values()), columns=(*arm.base.columns, *columns))
    values = {**arm.values, **{column.name: Field.of(column) for column in columns}}
    relation = scope.relation
    arms = (replace(arm, base=base, values=values),)
    return replace(scope, relation=replace(relation, arms=arms, hidden=(*relation.hidden, *columns)))


def join_to_first(
    items: Sequence[Item], on: Sequence[s.Expression], kind: s.JoinKind, text: str, strings: tuple[str, ...]
) -> Scope:  # fmt: skip
    """The scope of a semi or anti join: that of its first input, as if it stood alone in FROM. In the conditions, a
    name without an input is looked up in the second input first, as in a subquery."""
    joining = _Joining(items, [(condition, 1) for condition in on], text, strings, Hints((), text))
    parts, _ = joining.parts([item for item, _ in items])
    return _unlabelled(joining.scope(joining.together(parts, on, kind, parts[1].labels[0])))


class _Joining:
    """Binds one FROM. `conditions`: all conditions that decide which rows meet."""

    def __init__(
        self, items: Sequence[Item], conditions: Sequence[Condition], text: str, strings: tuple[str, ...], hints: Hints,
        promising: bool = False,
    ) -> None:  # fmt: skip
        self._text = text
        self._strings = strings
        self._hints = hints
        self.inner: list[list[tuple[str, ...]]] = []  # for each inner join its parts, as labels of their inputs
        self.labels = _labels(items, text)
        self._algorithm = hints.algorithm()
        self._keeping: Oblivious | None = None  # shared by all inner joins without windows
        self._windowless = False
        self._promising = promising
        self._tumbling, windows = self._windows(items, conditions)
        self._inputs = {
            id(item): _Part((label,), f"{label}.", relation, (window,), item.span)
            for label, (item, relation), window in zip(self.labels, items, windows, strict=True)
        }

    def _windows(self, items: Sequence[Item], conditions: Sequence[Condition]) -> tuple[bool, list[InputWindow]]:
        """Whether the inputs' windows are tumbling, and the windows. An equality of times can replace them."""
        inputs, relations = [item for item, _ in items], [relation for _, relation in items]
        equal = equal_times(self.labels, relations, conditions, self._text, self._strings)
        if equal is not None and not any(item.window for item in inputs):
            self._windowless = True
            return True, [InputWindow(time, equal.size) for time in equal.times]
        tumbling, specs = specs_of(inputs, self._text)
        windows = [
            bind(label, relation, spec, self._text, self._strings)
            for label, relation, spec in zip(self.labels, relations, specs, strict=True)
        ]
        for window, spec in zip(windows, specs, strict=True):
            if tumbling and window.size != windows[0].size:
                raise QueryError("the tumbling windows of a join must be of one size", self._text, spec.span)
        if self._algorithm is Algorithm.OBLIVIOUS:
            if equal is None or not _narrower(equal, tumbling, windows):
                why = "it needs an equality of the times of the windows that keeps rows inside these windows"
                self._hints.refuse_algorithm(why)
            else:
                self._windowless = True
                return True, [InputWindow(time, equal.size) for time in equal.times]
        return tumbling, windows

    def _oblivious(self, kind: s.JoinKind) -> Oblivious | None:
        if not self._windowless or kind is not s.JoinKind.INNER or self._algorithm is Algorithm.OA:
            return None
        if self._keeping is None:
            memory = self._hints.memory()
            self._keeping = Oblivious(
                memory or Memory.FRONTIER, buffer=self._hints.buffer(), asked=self._algorithm is Algorithm.OBLIVIOUS,
                chosen=memory is not None,
            )  # fmt: skip
        return self._keeping

    def _punctuated(self, kind: s.JoinKind, parts: Sequence[_Part]) -> Punctuated | None:
        if kind is not s.JoinKind.INNER:
            return None
        if self._algorithm is None and self._promising and len(parts) == 2 and not self._windowless:
            return Punctuated()
        if self._algorithm is not Algorithm.PUNCTUATED:
            return None
        if len(parts) != 2 or self._windowless:
            self._hints.refuse_algorithm("promises about values help only inner joins of two inputs with windows")
        return Punctuated(asked=True)

    def parts(self, sources: Iterable[s.Source]) -> tuple[list[_Part], list[s.Expression]]:
        """The parts that inner joins combine, and the conditions of these joins."""
        parts: list[_Part] = []
        conditions: list[s.Expression] = []
        for source in sources:
            if isinstance(source, s.Input):
                parts.append(self._inputs[id(source)])
                continue
            left, on = self.parts((source.left,))
            right = self._inputs[id(source.right)]
            if source.kind is s.JoinKind.INNER:
                parts += [*left, right]
                conditions += [*on, source.condition]
            else:
                pair = (self.together(left, on, s.JoinKind.INNER), right)
                parts.append(self.together(pair, (source.condition,), source.kind))
        return parts, conditions

    def together(
        self, parts: Sequence[_Part], on: Sequence[s.Expression], kind: s.JoinKind, nearest: str | None = None
    ) -> _Part:  # fmt: skip
        """The join of these parts, with conditions over all of them."""
        if len(parts) == 1:
            return parts[0]
        sides = tuple(map(self._side, parts))
        labels = tuple(label for part in parts for label in part.labels)
        matched = tuple(_column(side, own) for side in sides for own in side.relation.columns)
        unseen = tuple(_column(side, own) for side in sides for own in side.relation.hidden)
        known = {side.named(own.name): side.relation.field(own).range for side in sides for own in side.relation.known}
        pairs = Arm(Joined(sides, self._tumbling, None, matched), None, _fields((*matched, *unseen), known))
        scope = Scope(self._text, None, Relation(matched, (pairs,), hidden=unseen), labels, nearest)
        lowering = Lowering(self._text, self._strings, InputNames(scope, "ON", "conditions on aggregates go to HAVING"))
        conditions = [*map(lowering.condition, on), *self._bands(parts, sides)]
        probes: tuple[tuple[int, ...], ...] = ()
        if kind is s.JoinKind.INNER:
            self.inner.append([part.labels for part in parts])
            probes = self._hints.probes(self.inner[-1])
        sides = tuple(side if has_every_row(kind, n) else replace(side, progress=()) for n, side in enumerate(sides))
        columns = tuple(_column(side, own, kind, n) for n, side in enumerate(sides) for own in side.relation.known)
        where = conjoin(conditions) if conditions else None
        span = s.Span(parts[0].span.start, parts[-1].span.end)
        base = Joined(
            sides, self._tumbling, where, columns, kind=kind, windowless=self._windowless,
            oblivious=self._oblivious(kind), punctuated=self._punctuated(kind, parts), probes=probes,
            plain=self._algorithm is Algorithm.OA, span=span,
        )  # fmt: skip
        seen = list(enumerate(sides))[: 1 if kind in (s.JoinKind.SEMI, s.JoinKind.ANTI) else None]
        windows = [_seen(window, side, kind, n) for n, side in seen for window in parts[n].windows]
        if kind is s.JoinKind.FULL:
            base = _timed(base, f"({', '.join(labels)}).time")
            windows.append(InputWindow(Field.of(base.columns[-1]), max(side.size for side in sides)))
        values = _fields(base.columns, known)
        shown = tuple(_column(side, own, kind, n) for n, side in seen for own in side.relation.columns)
        hidden = tuple(_column(side, own, kind, n) for n, side in seen for own in side.relation.hidden)
        return _Part(
            labels=tuple(label for n, _ in seen for label in parts[n].labels),
            prefix="",
            relation=Relation(shown, (Arm(base, None, values),), hidden=(*hidden, *base.columns[len(columns) :])),
            windows=tuple(windows),
            span=span,
        )

    def scope(self, part: _Part) -> Scope:
        return Scope(self._text, None, part.relation, part.labels)

    def _side(self, part: _Part) -> Side:
        label = part.labels[0] if part.prefix else f"({', '.join(part.labels)})"
        side = side_of(label, part.prefix, part.relation, part.leading)
        return replace(side, progress=(*side.progress, *self._others(part, side)))

    def _others(self, part: _Part, side: Side) -> Iterator[Named]:
        """Other times that every row has: the one by which rows wait, if hidden, and times bounded by it."""
        known = {named.name for named in side.progress}
        for window in part.windows:
            if window.whole and isinstance(window.attribute, Field):
                name = side.named(window.attribute.name)
                if name not in known:
                    yield Named(name, _AT if window is part.leading else self._behind(window.size))

    def _behind(self, size_ns: int) -> Expr:
        size = Literal(size_ns, Kind.DURATION)
        if self._tumbling:
            return words(Op.MUL, Kind.TIME, words(Op.FLOOR_DIV, Kind.INT, _AT, size), size)
        return words(Op.SUB, Kind.TIME, _AT, size)

    def _bands(self, parts: Sequence[_Part], sides: Sequence[Side]) -> Iterator[Expr]:
        """Conditions that rows lie in each other's windows, except for pairs of leading windows, which the join itself
        checks. Tumbling windows need none, because all inputs of a part have the same window."""
        if self._tumbling:
            return
        for (one, mine), (other, theirs) in combinations(zip(parts, sides, strict=True), 2):
            for left, right in product(one.windows, other.windows):
                if (left, right) != (one.leading, other.leading):
                    yield _band(_seen(left, mine), _seen(right, theirs))


def _timed(base: Joined, name: str) -> Joined:
    """The FULL JOIN with an added column: the time of the first side that has a row in the output row."""
    sides = tuple(replace(side, progress=(Named(name, _AT),)) for side in base.sides)
    return replace(base, sides=sides, columns=(*base.columns, Column(name, Kind.TIME)), time=name)


def _band(left: InputWindow, right: InputWindow) -> Expr:
    apart = words(Op.SUB, Kind.DURATION, right.attribute, left.attribute)
    within = conjoin(
        [
            compare(Op.GE, apart, Literal(-right.size, Kind.DURATION)),
            compare(Op.LT, apart, Literal(left.size, Kind.DURATION)),
        ]
    )
    missing = [is_null(window.attribute) for window in (left, right) if window.attribute.nullable]
    return disjoin([*missing, within])


def _seen(window: InputWindow, side: Side, kind: s.JoinKind = s.JoinKind.INNER, number: int = 0) -> InputWindow:
    """The window of an input of a side, over the columns of the join."""
    read = {*fields(window.attribute)}
    columns = {own.name: Field.of(_column(side, own, kind, number)) for own in side.relation.known if own.name in read}
    return InputWindow(substitute(window.attribute, columns), window.size, window.whole and has_every_row(kind, number))


def _unlabelled(scope: Scope) -> Scope:
    (label,), relation = scope.inputs, scope.relation
    start = len(label) + 1
    (arm,) = relation.arms
    values = {column.name[start:]: arm.values[column.name] for column in relation.known}

    def own(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(column, name=column.name[start:]) for column in columns)

    shown = Relation(own(relation.columns), (replace(arm, values=values),), hidden=own(relation.hidden))
    return Scope(scope.text, label, shown)


def _fields(columns: Iterable[Column], known: Mapping[str, Interval | None]) -> dict[str, Expr]:
    """The columns of a join, with the known ranges of its inputs' columns."""
    return {column.name: replace(Field.of(column), range=known.get(column.name)) for column in columns}


def _column(side: Side, own: Column, kind: s.JoinKind = s.JoinKind.INNER, number: int = 0) -> Column:
    """The join's column for a column of its input; nullable if the input can be without a row."""
    return Column(side.named(own.name), own.kind, own.nullable or not has_every_row(kind, number))


def _narrower(equal: EqualTimes, tumbling: bool, windows: Sequence[InputWindow]) -> bool:
    """Whether rows of equal times always lie in each other's windows."""
    if any(time != window.attribute for time, window in zip(equal.times, windows, strict=True)):
        return False
    return all(window.size % equal.size == 0 if tumbling else window.size >= equal.size for window in windows)


def _conditions(sources: Iterable[s.Source], before: int = 0) -> Iterator[Condition]:
    """The conditions of ON. `before`: the inputs of FROM that stand before these sources."""
    for source in sources:
        if not isinstance(source, s.Input):
            yield from _conditions((source.left,), before)
            second = before + len(_flat(source.left))
            yield source.condition, None if source.kind is s.JoinKind.INNER else second
        before += len(_flat(source))


def _flat(source: s.Source) -> list[s.Input]:
    return [source] if isinstance(source, s.Input) else [*_flat(source.left), source.right]


def _labels(items: Sequence[Item], text: str) -> list[str]:
    labels: list[str] = []
    for item, _ in items:
        label = label_of(item)
        if label is None:
            raise QueryError("an input of a join needs a name", text, item.span, hint="give it one: … AS name")
        if label.casefold() in {other.casefold() for other in labels}:
            hint = f"give one of them another name: {label} AS name"
            raise QueryError(f"two inputs are called {label}", text, item.span, hint=hint)
        if "." in label:
            hint = "give it another one: … AS name"
            raise QueryError(f"{label}, the name of an input of a join, has a point in it", text, item.span, hint=hint)
        labels.append(label)
    return labels
