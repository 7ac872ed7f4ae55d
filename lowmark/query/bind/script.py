"""Turns a script into the relation that answers it: streams, unions and subqueries, statement by statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowmark.query.bind.hints import ALGORITHM, BUFFER, MEMORY, PROBE, RELEASE, SCHEDULE, Hints
from lowmark.query.bind.join.exists import check_tests, existences
from lowmark.query.bind.join.join import inputs_of, join, join_to_first, label_of, with_extremes
from lowmark.query.bind.join.time_order import in_order, order_by_time
from lowmark.query.bind.relations import Arm, Grouped, Joined, Packets, Relation, packets
from lowmark.query.bind.scope import Scope
from lowmark.query.bind.selection import Selected, bind_select, groups
from lowmark.query.expr.expressions import Expr, Field
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, unknown_word
from lowmark.query.parse.size_limits import INPUTS, MEMBERS, STAGES, TooLarge, placed
from lowmark.wire.rows.schema import Column

__all__ = ["analyse", "texts"]


def analyse(script: s.Script, text: str, streams: Mapping[str, int] | None, strings: tuple[str, ...]) -> Selected:
    """The relation of the last statement; `strings` is the result of `texts`."""
    _check_order(script, text)
    last = script.statements[-1]
    promising = isinstance(last, s.Select) and last.punctuate is not None
    analysis = _Analysis(text, streams, strings, promising)
    for statement in script.statements[:-1]:
        analysis.create(statement)
    if isinstance(last, s.CreateStream):
        hint = "end with the SELECT whose rows you want"
        raise QueryError("this query creates a stream and asks nothing of it", text, last.name.span, hint=hint)
    return analysis.select(last)


def texts(script: s.Script, streams: Mapping[str, int] | None) -> tuple[str, ...]:
    """The sorted table of all texts that a query's rows can hold: those it writes, and the names of its streams. Texts
    that occur only in lists are left out: rows are only compared with them."""
    found = set()
    listed: set[int] = set()
    for node in s.walk(script):
        if isinstance(node, s.In):
            listed |= {id(choice) for choice in node.choices}
        elif isinstance(node, s.StringLiteral) and id(node) not in listed:
            found.add(node.value)
        elif isinstance(node, s.StreamRef):
            found.add(_bound_name(node.name.text, streams) or node.name.text)
    return tuple(sorted(found))


def _check_order(script: s.Script, text: str) -> None:
    """Refuse names that only a later statement creates: a statement reads packets and earlier statements, and would
    take such a name for a stream of packets."""
    created = [item.name.text.casefold() if isinstance(item, s.CreateStream) else None for item in script.statements]
    for number, statement in enumerate(script.statements):
        for node in s.walk(statement):
            if not isinstance(node, s.StreamRef):
                continue
            name = node.name.text.casefold()
            if name in created[:number] or name not in created[number:]:
                continue
            if name == created[number]:
                hint = "give it another name than that of the stream it reads"
                raise QueryError(f"stream {node.name.text} reads itself", text, node.span, hint=hint)
            hint = f"put CREATE STREAM {node.name.text} before what reads it"
            raise QueryError(f"stream {node.name.text} is created further down", text, node.span, hint=hint)


def _bound_name(name: str, streams: Mapping[str, int] | None) -> str | None:
    """The bound stream with this name; one in the same case wins over others."""
    if streams is None or name in streams:
        return name
    folded = name.casefold()
    return next((bound for bound in streams if bound.casefold() == folded), None)


class _Analysis:
    def __init__(
        self, text: str, streams: Mapping[str, int] | None, strings: tuple[str, ...], promising: bool
    ) -> None:  # fmt: skip
        """`promising`: the query has PUNCTUATE ON."""
        self._text = text
        self._promising = promising
        self._streams = streams
        self._strings = strings
        self._created: dict[str, Relation] = {}  # by folded name
        self._stages: dict[int, tuple[Grouped | Joined, int]] = {}  # by identity: see `_in_a_row`
        self._first_names: dict[str, str] = {}  # first spelling of streams that need not be bound, by folded name

    def create(self, statement: s.Statement) -> None:
        if not isinstance(statement, s.CreateStream):
            hint = "put CREATE STREAM name AS before it, or make it the last one"
            raise self._error("only the last statement is answered: this one has no name", statement.span, hint)
        folded = statement.name.text.casefold()
        if folded in self._created or (self._streams is not None and _bound_name(statement.name.text, self._streams)):
            raise self._error(f"there is a stream called {statement.name.text} already", statement.name.span)
        selected = self.select(statement.select)
        self._check_limit(selected, "a created stream")
        relation = selected.relation
        if relation.order:
            raise self._error("an order in a created stream has no effect", statement.select.order_by[0].span)
        self._created[folded] = relation

    def select(self, select: s.Select) -> Selected:
        with placed(select.span):
            selected = self._select(select)
            if self._in_a_row(selected.relation) > STAGES.most:
                hint = "join or group less often, one through another"
                raise TooLarge(STAGES, "this reads too many SELECTs one through another", hint=hint)
            return selected

    def _in_a_row(self, relation: Relation) -> int:
        """The longest chain of groupings and joins in the relation, each reading the one before."""
        found = 0
        for arm in relation.arms:
            base = arm.base
            if isinstance(base, Packets):
                continue
            if id(base) not in self._stages:
                self._stages[id(base)] = base, 1 + max(map(self._in_a_row, base.inputs))
            found = max(found, self._stages[id(base)][1])
        return found

    def _select(self, select: s.Select) -> Selected:
        inputs = inputs_of(select.sources)
        if len(inputs) > INPUTS.most:
            raise TooLarge(
                INPUTS, f"this FROM has {len(inputs)} inputs", inputs[INPUTS.most].span, "join some of them before"
            )
        hints = Hints(select.hints, self._text)
        if len(inputs) > 1:
            hint = "make the join a CREATE STREAM first, and test its rows in another SELECT"
            where = () if select.where is None else (select.where,)
            check_tests(where, self._text, "EXISTS stands where FROM has one input", hint)
            items = [(item, self._relation(item.relation)) for item in inputs]
            scope = join(select.sources, items, select.where, hints, self._text, self._strings, self._promising)
            scope = self._scheduled(scope, hints)
            if not groups(select):
                select = order_by_time(select, scope)
            scope = self._bucketed(select, with_extremes(scope, select), hints)
            selected = bind_select(select, scope, self._strings, hints)
            return replace(selected, relation=in_order(selected.relation, hints))
        (item,) = inputs
        rest, found = existences(select, self._text)
        hints.refuse(RELEASE, "it applies to inner joins with ORDER BY ts")
        hints.refuse(SCHEDULE, "it applies to inner joins of two inputs")
        hints.refuse(ALGORITHM, "it applies to inner joins")
        for word in (MEMORY, BUFFER):
            hints.refuse(word, "it applies to inner joins without windows")
        hints.refuse(PROBE, "EXISTS tests run in their order in WHERE" if found else "FROM has one input")
        if item.window is not None and not found:
            hint = "put the window into the SELECT list, behind the aggregates"
            raise self._error("a window behind the only input joins it with nothing", item.window.span, hint)
        scope = Scope(self._text, label_of(item), self._relation(item.relation))
        for test in found:
            items = [(item, scope.relation), (test.input, self._relation(test.input.relation))]
            scope = join_to_first(items, test.conditions, test.kind, self._text, self._strings)
        scope = self._bucketed(select, scope, hints) if found else scope
        return bind_select(rest, scope, self._strings, hints)

    def _bucketed(self, select: s.Select, scope: Scope, hints: Hints) -> Scope:
        """The scope of a join with the bucket that a hint chooses. In a SELECT with groups the hint applies to them."""
        keys = () if groups(select) else hints.bucket()
        (arm,) = scope.relation.arms
        assert isinstance(arm.base, Joined), "a join has one arm"
        columns = [(arm.lowered(scope.field(key)), key.span) for key in keys]
        bucket = tuple((column.name, span) for column, span in columns if isinstance(column, Field))
        arms = (replace(arm, base=replace(arm.base, bucket=bucket)),)
        return replace(scope, relation=replace(scope.relation, arms=arms))

    def _scheduled(self, scope: Scope, hints: Hints) -> Scope:
        """The scope of a join with the schedule that a hint asks for."""
        (arm,) = scope.relation.arms
        assert isinstance(arm.base, Joined), "a join has one arm"
        if arm.base.kind is not s.JoinKind.INNER or len(arm.base.sides) != 2:
            hints.refuse(SCHEDULE, "it applies to inner joins of two inputs")
            return scope
        if arm.base.windowless:
            hints.refuse(SCHEDULE, "joins without windows are not shared")
        if arm.base.punctuated is not None and arm.base.punctuated.asked:
            hints.refuse(SCHEDULE, "joins that use promises about values are not shared")
        arms = (replace(arm, base=replace(arm.base, scheduling=hints.schedule())),)
        return replace(scope, relation=replace(scope.relation, arms=arms))

    def _check_limit(self, selected: Selected, where: str) -> None:
        if selected.limit is not None:
            hint = "LIMIT stands at the end of the last SELECT, or within the windows of groups"
            raise self._error(f"LIMIT ends a query, and {where} has no end", selected.limit.span, hint)

    def _relation(self, node: s.Relation) -> Relation:
        match node:
            case s.StreamRef(name=name):
                return self._created.get(name.text.casefold()) or packets(*self._stream(name))
            case s.Subquery(select=select):
                if select.order_by and select.limit is None:
                    raise self._error("an order in a subquery has no effect", select.order_by[0].span)
                selected = self.select(select)
                self._check_limit(selected, "a subquery")
                return selected.relation
            case s.Union(members=members):
                streams = self._packet_streams(node)
                if streams is not None:
                    bound = [self._stream(name) for name in streams]
                    return packets(tuple(n for names, _ in bound for n in names), sum(count for _, count in bound))
                return self._union([self._relation(member) for member in members], members)

    def _stream(self, name: s.Identifier) -> tuple[tuple[str, ...], int]:
        """The bound stream with this name, and the number of its sources."""
        bound = _bound_name(name.text, self._streams)
        if bound is None:
            choices = (*(self._streams or ()), *self._created)
            raise unknown_word("stream", name.text, self._text, name.span, choices)
        if self._streams is not None:
            return (bound,), self._streams[bound]
        return (self._first_names.setdefault(name.text.casefold(), bound),), 1

    def _packet_streams(self, node: s.Relation) -> list[s.Identifier] | None:
        """The streams of a union; None unless all of its members are packet streams."""
        match node:
            case s.StreamRef(name=name):
                return None if name.text.casefold() in self._created else [name]
            case s.Union(members=members):
                parts = [self._packet_streams(member) for member in members]
                return None if None in parts else [name for part in parts for name in part or ()]
        return None

    def _union(self, relations: Sequence[Relation], members: Sequence[s.Relation]) -> Relation:
        """Combine the relations by column name. The first member gives the names and the order of the columns."""
        first = relations[0]
        columns = list(first.columns)
        arms = list(first.arms)
        for relation, member in zip(relations[1:], members[1:], strict=True):
            names: dict[str, str] = {}
            for index, column in enumerate(columns):
                other = relation.column(column.name)
                if other is None or other.kind is not column.kind:
                    raise self._unlike(column, other, member)
                names[column.name] = other.name
                columns[index] = Column(column.name, column.kind, column.nullable or other.nullable)
            extra = [name for name in relation.names if name not in names.values()]
            if extra:
                raise self._error(
                    f"this member of the union has {extra[0]}, which the first one does not have", member.span
                )
            arms += [_renamed(arm, names) for arm in relation.arms]
            if len(arms) > MEMBERS.most:
                raise TooLarge(MEMBERS, f"this union has {len(arms)} members up to here", member.span)
        return Relation(tuple(columns), tuple(arms))

    def _unlike(self, column: Column, other: Column | None, member: s.Relation) -> QueryError:
        if other is None:
            return self._error(f"this member of the union has no {column.name}, which the first one has", member.span)
        return self._error(
            f"{column.name} is of kind {other.kind.value} here, in the union's first member {column.kind.value}",
            member.span,
        )

    def _error(self, message: str, span: s.Span, hint: str | None = None) -> QueryError:
        return QueryError(message, self._text, span, hint=hint)


def _renamed(arm: Arm, names: Mapping[str, str]) -> Arm:
    """An arm with the union's column names; `names` gives the arm's own."""
    hidden: dict[str, Expr] = {name: expr for name, expr in arm.values.items() if name.startswith(".")}
    return Arm(arm.base, arm.where, hidden | {name: arm.values[own] for name, own in names.items()})
