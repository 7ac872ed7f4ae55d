"""What FROM gives: streams, unions, subqueries and joins as rows in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowmark.query.parse import syntax as s
from tests.naive.expressions import evaluate
from tests.naive.packets import FIELDS, Arrival, Packet, arrive
from tests.naive.scope import PROGRESSING, Refused, Scope, ScopeInput
from tests.naive.values import NS, Time, Value

Row = dict[str, Value]


@dataclass(frozen=True)
class Table:
    """Rows by column, in order of arrival."""

    columns: tuple[str, ...]
    rows: list[Row]
    progressing: frozenset[str] = frozenset()
    arrivals: list[Arrival] | None = None  # of each row; None: derived by a join or an aggregate
    sources: list[list[Packet]] | None = None  # of packets as they come, so that a union can number them anew
    paired: bool = False  # rows of a join, or selected from some
    results: list[int] = field(default_factory=list)  # index of the window (or group of windows) of each row


@dataclass(frozen=True)
class Joined:
    """The rows that a SELECT works on."""

    scope: Scope
    rows: list[Row]
    progressing: frozenset[str]
    arrivals: list[Arrival] | None
    packets: bool  # rows are packet tuples: first and last go by ts
    paired: bool = False  # rows of a join, or selected from some: nothing decides between rows of one time


class Streams:
    """What a name in FROM stands for."""

    def __init__(self, sources: Mapping[str, list[list[Packet]]], idle_s: int | None = None) -> None:
        """`idle_s`: after so many seconds without a tuple a partition begins anew."""
        self.idle_s = idle_s
        self._sources = {name.casefold(): captures for name, captures in sources.items()}
        self._created: dict[str, Table] = {}

    def create(self, name: str, table: Table) -> None:
        self._created[name.casefold()] = table

    def table(self, name: str) -> Table:
        if name.casefold() in self._created:
            return self._created[name.casefold()]
        if name.casefold() not in self._sources:
            raise Refused(f"there is no stream {name}")
        return packet_table(self._sources[name.casefold()])


def packet_table(sources: list[list[Packet]]) -> Table:
    packets = arrive(sources)
    return Table(FIELDS, [p.fields for p in packets], frozenset(PROGRESSING), [p.arrival for p in packets], sources)


Select = Callable[[s.Select], Table]


def relation(node: s.Relation, streams: Streams, select: Select) -> Table:
    if isinstance(node, s.StreamRef):
        return streams.table(node.name.text)
    if isinstance(node, s.Subquery):
        return select(node.select)
    return union([relation(member, streams, select) for member in node.members])


def union(tables: Sequence[Table]) -> Table:
    if any(sorted(table.columns) != sorted(tables[0].columns) for table in tables):
        raise Refused("a union is of streams with the same columns")
    if all(table.sources is not None for table in tables):
        return packet_table([source for table in tables for source in table.sources])
    progressing = frozenset.intersection(*(table.progressing for table in tables))
    rows = [row for table in tables for row in table.rows]
    if any(table.arrivals is None for table in tables):
        return Table(tables[0].columns, rows, progressing, paired=any(table.paired for table in tables))
    arrivals = [arrival for table in tables for arrival in table.arrivals]
    ranked = sorted(range(len(rows)), key=lambda i: arrivals[i])
    return Table(tables[0].columns, [rows[i] for i in ranked], progressing, [arrivals[i] for i in ranked])


def sources_of(select: s.Select, streams: Streams, run: Select) -> Joined:
    """FROM and WHERE."""
    if len(select.sources) == 1 and (tests := _existence(select)):
        return _existing(select, tests, streams, run)
    inner = all(kind is s.JoinKind.INNER for source in select.sources for kind in _kinds(source))
    inputs, conditions = _inputs(select.sources)
    if select.where is not None and inner:
        conditions.append(select.where)
    tables = [relation(item.relation, streams, run) for item in inputs]
    names = [_name(item) for item in inputs]
    if len({(name or "").casefold() for name in names}) < len(names):
        raise Refused("two inputs of one name")
    scope = Scope(tuple(ScopeInput(n, t.columns) for n, t in zip(names, tables, strict=True)))
    if len(inputs) == 1:
        if inputs[0].window is not None:
            raise Refused("a window behind the only input")
        table = tables[0]
        passed = [all(_passes(scope, c, row) for c in conditions) for row in table.rows]
        arrivals = table.arrivals and [a for a, yes in zip(table.arrivals, passed, strict=True) if yes]
        rows = [row for row, yes in zip(table.rows, passed, strict=True) if yes]
        return Joined(scope, rows, table.progressing, arrivals, table.sources is not None, table.paired)
    if not inner:
        nested = Nested(inputs, tables, scope)
        made = nested.product(select.sources)
        scope = Scope(tuple(scope.inputs[i] for i in made.seen), joined=True)
        rows = [nested.row(combination, made.seen) for combination in made.combinations]
        if select.where is not None:
            rows = [row for row in rows if _passes(scope, select.where, row)]
        progressing = frozenset(f"{names[i]}.{column}" for i in made.whole for column in tables[i].progressing)
        return Joined(scope, rows, progressing, None, False, True)
    rows = [row for _, row in _join(inputs, tables, scope, conditions)]
    progressing = frozenset(f"{names[i]}.{column}" for i, table in enumerate(tables) for column in table.progressing)
    return Joined(scope, rows, progressing, None, False, True)


def _prefixed(scope: Scope, i: int, row: Row) -> Row:
    return {f"{scope.inputs[i].name}.{name}": value for name, value in row.items()}


def _existence(select: s.Select) -> list[s.Expression]:
    if select.where is None:
        return []
    return [part for part in _conjuncts(select.where) if isinstance(_without_not(part), s.Exists)]


def _without_not(part: s.Expression) -> s.Expression:
    return part.operand if isinstance(part, s.Not) else part


def _existing(select: s.Select, tests: list[s.Expression], streams: Streams, run: Select) -> Joined:
    """EXISTS and NOT EXISTS over the rows of one input."""
    (outer,) = select.sources
    table = relation(outer.relation, streams, run)
    rows = table.rows
    for test in tests:
        exists = _without_not(test)
        (inner,) = exists.select.sources
        tables = [Table(table.columns, rows), relation(inner.relation, streams, run)]
        names = (ScopeInput(_name(outer), table.columns), ScopeInput(_name(inner), tables[1].columns))
        conditions = [] if exists.select.where is None else [exists.select.where]
        met = {chosen[0] for chosen, _ in _join([outer, inner], tables, Scope(names, nearest=1), conditions)}
        rows = [row for n, row in enumerate(rows) if (n in met) is (test is exists)]
    scope = Scope((ScopeInput(_name(outer), table.columns),))
    others = [part for part in _conjuncts(select.where) if part not in tests]
    rows = [row for row in rows if all(_passes(scope, part, row) for part in others)]
    return Joined(scope, rows, table.progressing, None, False, True)


def _kinds(source: s.Source) -> list[s.JoinKind]:
    return [] if isinstance(source, s.Input) else [*_kinds(source.left), source.kind]


def _passes(scope: Scope, condition: s.Expression, row: Row) -> bool:
    return evaluate(scope.resolve(condition), row) is True


def _inputs(sources: tuple[s.Source, ...]) -> tuple[list[s.Input], list[s.Expression]]:
    inputs: list[s.Input] = []
    conditions: list[s.Expression] = []
    for source in sources:
        if isinstance(source, s.Input):
            inputs.append(source)
            continue
        left, more = _inputs((source.left,))
        inputs += [*left, source.right]
        conditions += [*more, source.condition]
    return inputs, conditions


def _name(item: s.Input) -> str | None:
    if item.alias is not None:
        return item.alias.text
    return item.relation.name.text if isinstance(item.relation, s.StreamRef) else None


# Joins


@dataclass(frozen=True)
class _Band:
    """The window of one input: its size, and its attribute's value for each of the input's rows."""

    size: int
    at: list[int]


Combination = tuple[tuple[int, ...], Row]
"""The number of each input's row, and the row that they make."""


Chosen = dict[int, int]
"""Of each input that a combination has a row of, the row's number."""


@dataclass(frozen=True)
class Made:
    """What a part of FROM makes: the inputs whose columns are seen, and those that every row has a row of."""

    combinations: list[Chosen]
    seen: tuple[int, ...]
    whole: frozenset[int]


class Nested:
    """Joins of all kinds as SQL nests them, from the left, by loops over everything. All rows of a combination lie in
    each other's windows."""

    def __init__(self, inputs: list[s.Input], tables: list[Table], scope: Scope) -> None:
        self._inputs, self._tables, self._scope = inputs, tables, scope
        self._tumbling, self._bands = _bands(inputs, tables)

    def product(self, sources: Sequence[s.Source]) -> Made:
        """Of the sources between which commas stand."""
        first, *others = map(self._made, sources)
        for other in others:
            both = [a | b for a in first.combinations for b in other.combinations if self._meet(a, b)]
            first = Made(both, first.seen + other.seen, first.whole | other.whole)
        return first

    def row(self, chosen: Chosen, seen: Sequence[int]) -> Row:
        row: Row = {}
        for i in seen:
            table = self._tables[i]
            values = table.rows[chosen[i]] if i in chosen else dict.fromkeys(table.columns)
            row |= _prefixed(self._scope, i, values)
        return row

    def _made(self, source: s.Source) -> Made:
        if isinstance(source, s.Input):
            (i,) = (n for n, item in enumerate(self._inputs) if item is source)
            return Made([{i: n} for n in range(len(self._tables[i].rows))], (i,), frozenset({i}))
        left, right = self._made(source.left), self._made(source.right)
        seen = left.seen + right.seen
        pairs = [
            (a, b)
            for a, one in enumerate(left.combinations)
            for b, other in enumerate(right.combinations)
            if self._meet(one, other) and _passes(self._scope, source.condition, self.row(one | other, seen))
        ]
        lefts, rights = {a for a, _ in pairs}, {b for _, b in pairs}
        if source.kind in (s.JoinKind.SEMI, s.JoinKind.ANTI):
            wanted = source.kind is s.JoinKind.SEMI
            kept = [one for a, one in enumerate(left.combinations) if (a in lefts) is wanted]
            return Made(kept, left.seen, left.whole)
        found = [left.combinations[a] | right.combinations[b] for a, b in pairs]
        keeps_left = source.kind in (s.JoinKind.LEFT, s.JoinKind.FULL)
        keeps_right = source.kind in (s.JoinKind.RIGHT, s.JoinKind.FULL)
        found += [one for a, one in enumerate(left.combinations) if keeps_left and a not in lefts]
        found += [one for b, one in enumerate(right.combinations) if keeps_right and b not in rights]
        none: frozenset[int] = frozenset()
        return Made(found, seen, (none if keeps_right else left.whole) | (none if keeps_left else right.whole))

    def _meet(self, one: Chosen, other: Chosen) -> bool:
        return not self._bands or all(
            _together(self._tumbling, self._bands[i], a, self._bands[j], b)
            for i, a in one.items()
            for j, b in other.items()
        )


def _join(
    inputs: list[s.Input], tables: list[Table], scope: Scope, conditions: list[s.Expression]
) -> list[Combination]:  # fmt: skip
    """Every combination of rows that the windows and the conditions let pass, input by input."""
    tumbling, bands = _bands(inputs, tables)
    parts = [part for condition in conditions for part in _conjuncts(scope.resolve(condition))]
    needed = [_inputs_of(part, scope) for part in parts]
    found: list[tuple[tuple[int, ...], Row]] = [((), {})]
    for j, table in enumerate(tables):
        prefix = f"{scope.inputs[j].name}."
        due = [part for part, inputs_of in zip(parts, needed, strict=True) if max(inputs_of, default=0) == j]
        renamed = [{prefix + name: value for name, value in row.items()} for row in table.rows]
        grown = []
        for chosen, row in found:
            for b, new in enumerate(renamed):
                if bands and not all(_together(tumbling, bands[i], a, bands[j], b) for i, a in enumerate(chosen)):
                    continue
                combined = row | new
                if all(evaluate(part, combined) is True for part in due):
                    grown.append(((*chosen, b), combined))
        found = grown
    return found


def _bands(inputs: list[s.Input], tables: list[Table]) -> tuple[bool, list[_Band]]:
    """Whether the windows are tumbling, and that of each input; none at all if an equality of times takes their place:
    the conditions have it anyway."""
    if not any(item.window for item in inputs):
        return False, []
    last = inputs[-1].window
    tumbling = last is not None and last.tumbling
    common = last if tumbling else None
    return tumbling, [_band(item.window or common, t) for item, t in zip(inputs, tables, strict=True)]


def _band(window: s.WindowClause | None, table: Table) -> _Band:
    if window is None:
        raise Refused("every input of a join has a window")
    scope = Scope((ScopeInput(None, table.columns),))
    wa = (
        scope.resolve(window.wa)
        if window.wa is not None
        else s.FieldRef(None, s.Identifier("ts", span=window.span), span=window.span)
    )
    values = [evaluate(wa, row) for row in table.rows]
    if not isinstance(window.range, s.DurationLiteral | s.IntegerLiteral):
        raise Refused("windows of joins are over time")
    size = window.range.value_ns if isinstance(window.range, s.DurationLiteral) else window.range.value * NS
    return _Band(size, [value.ns if isinstance(value, Time) else value for value in values])


def _together(tumbling: bool, left: _Band, a: int, right: _Band, b: int) -> bool:
    """For inputs i before j: i.a − size(j) ≤ j.a < i.a + size(i)."""
    x, y = left.at[a], right.at[b]
    if tumbling:
        return x // left.size == y // right.size
    return x - right.size <= y < x + left.size


def _conjuncts(condition: s.Expression) -> list[s.Expression]:
    if isinstance(condition, s.And):
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


def _inputs_of(part: s.Expression, scope: Scope) -> set[int]:
    keys = [node.name.text for node in s.walk(part) if isinstance(node, s.FieldRef)]
    return {i for i, item in enumerate(scope.inputs) if any(key.startswith(f"{item.name}.") for key in keys)}
