"""One SELECT on its rows: selection, or windows, groups, HAVING, ORDER BY, LIMIT and DISTINCT."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from lowmark.query.parse import syntax as s
from tests.naive.aggregates import aggregate, has_aggregate, is_aggregate, whole_sum
from tests.naive.expressions import evaluate
from tests.naive.scope import Refused, Unsupported, expanded, progresses, quoted_literal, rebuilt
from tests.naive.tables import Joined, Row, Streams, Table, sources_of
from tests.naive.values import Duration, Value, order
from tests.naive.windows import Extent, is_count, windows


@dataclass(frozen=True)
class Output:
    """A column of the result: its name, and its resolved expression."""

    name: str
    expression: s.Expression


def run_select(select: s.Select, text: str, streams: Streams) -> Table:
    aliases = [item.alias.text.casefold() for item in select.group_by if item.alias]
    if len(set(aliases)) < len(aliases):
        raise Refused("two keys of one name")
    select = dataclasses.replace(
        select,
        items=tuple(
            dataclasses.replace(item, expression=part)
            for item in select.items
            for part in ((item.expression,) if isinstance(item.expression, s.Star) else expanded(item.expression))
        ),
        group_by=tuple(
            dataclasses.replace(item, expression=part) for item in select.group_by for part in expanded(item.expression)
        ),
    )
    joined = sources_of(select, streams, lambda inner: run_select(inner, text, streams))
    aggregated = any(has_aggregate(part) for part in (*select.items, *filter(None, [select.having])))
    if select.window is None and not select.group_by and not aggregated:
        return _selection(select, text, joined)
    return _Grouping(select, text, joined, streams.idle_s).table()


def _selection(select: s.Select, text: str, joined: Joined) -> Table:
    if select.having is not None or select.limit is not None:
        raise Refused("HAVING and LIMIT go with groups")
    outputs = _outputs(select, text, joined, ())
    joined = _in_order(select, outputs, joined)
    rows = [{output.name: evaluate(output.expression, row) for output in outputs} for row in joined.rows]
    progressing = _progressing(outputs, joined)
    arrivals = joined.arrivals
    if select.distinct:
        if not progressing:
            raise Refused("DISTINCT without a window needs a progressing column")
        rows, arrivals = _distinct(rows), None
    columns = tuple(output.name for output in outputs)
    return Table(columns, rows, progressing, arrivals, paired=joined.paired)


def _in_order(select: s.Select, outputs: Sequence[Output], joined: Joined) -> Joined:
    """ORDER BY over a whole stream; ties by arrival, or by the columns shown where rows have none."""
    aliases = {o.name.casefold(): o.expression for o, i in zip(outputs, select.items, strict=False) if i.alias}
    rows = list(joined.rows)
    if select.order_by and joined.arrivals is None:
        rows.sort(key=lambda row: [order(evaluate(output.expression, row)) for output in outputs])
    for item in reversed(select.order_by):
        by = _resolved(item.expression, joined, aliases, alias_wins=True)
        rows.sort(key=lambda row, e=by: order(evaluate(e, row)), reverse=item.descending)
    return dataclasses.replace(joined, rows=rows)


def _distinct(rows: Sequence[Row]) -> list[Row]:
    return list({tuple(map(order, row.values())): row for row in reversed(rows)}.values())[::-1]


def _progressing(outputs: Sequence[Output], joined: Joined) -> frozenset[str]:
    return frozenset(o.name for o in outputs if progresses(o.expression, joined.progressing))


def _outputs(select: s.Select, text: str, joined: Joined, groups: Sequence[Output]) -> list[Output]:
    """Columns of the SELECT list. `groups`: the expressions of GROUP BY; a name is "" where there is no alias."""
    outputs = []
    for item in select.items:
        if isinstance(item.expression, s.Star):
            name = item.expression.input.text if item.expression.input else None
            outputs += [Output(key, _ref(key, item)) for key in joined.scope.keys_of(name)]
            continue
        expression = _resolved(item.expression, joined, {g.name.casefold(): g.expression for g in groups if g.name})
        alias = next((g.name for g in groups if g.name and g.expression == expression), None)
        written = item.alias.text if item.alias else alias or joined.scope.name(item.expression, text)
        outputs.append(Output(written, expression))
    if len({output.name.casefold() for output in outputs}) < len(outputs):
        raise Refused("two columns of one name")
    if not all(output.name for output in outputs):
        raise Refused("a column without a name")
    return outputs


def _ref(key: str, node: s.SyntaxNode) -> s.FieldRef:
    return s.FieldRef(None, s.Identifier(key, span=node.span), span=node.span)


def _resolved(
    node: s.Expression, joined: Joined, aliases: dict[str, s.Expression], alias_wins: bool = False
) -> s.Expression:
    """The resolved expression. Aliases stand for their (resolved) expressions, behind fields or before them."""

    def resolve(part: s.Expression) -> s.Expression:
        if isinstance(part, s.FieldRef):
            known = joined.scope.find(part)
            alias = aliases.get(part.name.text.casefold()) if part.input is None else None
            if alias is not None and (alias_wins or known is None):
                return alias
            return joined.scope.resolve(part)
        if isinstance(part, s.FunctionCall):
            name = s.Identifier(part.function.text.lower(), span=part.function.span)
            arguments = tuple(one for argument in part.arguments for one in expanded(argument))
            part = dataclasses.replace(part, function=name, arguments=arguments)
        return rebuilt(part, resolve)

    return resolve(node)


@dataclass(frozen=True)
class _Group:
    """One group of one window, with the positions of its rows in the order of arrival."""

    key: tuple[Value, ...]
    rows: list[int]


class _Grouping:
    """A SELECT with groups, windowed or not."""

    def __init__(self, select: s.Select, text: str, joined: Joined, idle_s: int | None) -> None:
        self._select, self._joined, self._idle_s = select, joined, idle_s
        written = {
            i.alias.text.casefold(): i.expression for i in select.items if i.alias and not has_aggregate(i.expression)
        }
        selected = {name: _resolved(node, joined, {}) for name, node in written.items() if _fits(node, joined)}
        groups = [
            Output(g.alias.text if g.alias else "", _resolved(g.expression, joined, selected)) for g in select.group_by
        ]
        self._outputs = _outputs(select, text, joined, groups)
        aggregated = any(has_aggregate(output.expression) for output in self._outputs) or select.having is not None
        if select.window is not None and not aggregated and not select.group_by:
            if not select.distinct:
                raise Refused("a window needs an aggregate, GROUP BY or DISTINCT")
            groups = self._outputs
        partition = select.window.pa if select.window is not None else ()
        self._keys = list(dict.fromkeys(joined.scope.resolve(part) for field in partition for part in expanded(field)))
        self._shown_keys = list(dict.fromkeys(group.expression for group in groups))
        self._keys += [key for key in self._shown_keys if key not in self._keys]
        aliases = {g.name.casefold(): g.expression for g in groups if g.name}
        aliases |= {o.name.casefold(): o.expression for o, i in self._aliased()}
        self._having = select.having and _resolved(select.having, joined, aliases, alias_wins=True)
        self._order = [
            (_resolved(o.expression, joined, aliases, alias_wins=True), o.descending) for o in select.order_by
        ]
        if select.limit is not None and not select.order_by:
            raise Refused("LIMIT needs ORDER BY")
        for expression in (
            *(o.expression for o in self._outputs),
            *filter(None, [self._having]),
            *(e for e, _ in self._order),
        ):
            self._check_grouped(expression)

    def _aliased(self) -> list[tuple[Output, s.SelectItem]]:
        if any(isinstance(item.expression, s.Star) for item in self._select.items):
            return []
        return [(o, i) for o, i in zip(self._outputs, self._select.items, strict=True) if i.alias]

    def _check_grouped(self, node: s.SyntaxNode) -> None:
        if node in self._keys or (is_aggregate(node) and node.function.text != "total"):
            return
        if isinstance(node, s.FieldRef):
            raise Refused(f"{node.name.text} is neither grouped by nor aggregated")
        for part in s.children(node):
            if not isinstance(part, s.Identifier):
                self._check_grouped(part)

    def table(self) -> Table:
        if self._select.window is None:
            return self._ungated()
        rows: list[Row] = []
        results: list[int] = []
        for i, extent in enumerate(self._extents()):
            shown = {"window_start": extent.start, "window_end": extent.end}
            made = [shown | row for row in self._rows(extent.rows, extent)]
            rows += made
            results += [i] * len(made)
        columns = ("window_start", "window_end", *(output.name for output in self._outputs))
        return Table(columns, rows, frozenset(("window_start", "window_end")), results=results)

    def _extents(self) -> list[Extent]:
        joined = self._joined
        return windows(
            self._select.window, joined.rows, joined.scope, joined.progressing, evaluate, self._idle_s,
            joined.arrivals is not None,
        )  # fmt: skip

    def _ungated(self) -> Table:
        """Groups that agree on the progressing expressions close together."""
        progressing = [key for key in self._keys if progresses(key, self._joined.progressing)]
        if not progressing:
            raise Refused("nothing ever closes a group")
        parts: dict[object, list[int]] = {}
        for i, row in enumerate(self._joined.rows):
            parts.setdefault(tuple(order(evaluate(key, row)) for key in progressing), []).append(i)
        rows: list[Row] = []
        results: list[int] = []
        for i, part in enumerate(parts.values()):
            made = self._rows(part, None)
            rows += made
            results += [i] * len(made)
        columns = tuple(output.name for output in self._outputs)
        names = frozenset(o.name for o in self._outputs if o.expression in progressing)
        return Table(columns, rows, names, results=results)

    def _rows(self, positions: list[int], extent: Extent | None) -> list[Row]:
        """Rows of one window, or of one closing of groups, in their order. Aggregates and totals are of all groups."""
        groups = self._groups(positions)
        for group in groups:
            for node in self._calls():
                self._value(node, group, groups)
        kept = [g for g in groups if self._having is None or self._value(self._having, g, groups) is True]
        for g_key in reversed(self._shown_keys):  # ties go by the key
            kept.sort(key=lambda g, k=g_key: order(g.key[self._keys.index(k)]))
        for expression, descending in reversed(self._order):
            kept.sort(key=lambda g, e=expression: order(self._value(e, g, groups)), reverse=descending)
        limit = None if self._select.limit is None else self._select.limit.value
        if not self._select.distinct:
            kept = kept[:limit]
        rows = [{o.name: self._value(o.expression, g, groups) for o in self._outputs} for g in kept]
        return _distinct(rows)[:limit] if self._select.distinct else rows

    def _calls(self) -> list[s.FunctionCall]:
        expressions = [*(o.expression for o in self._outputs), *(e for e, _ in self._order)]
        expressions += [] if self._having is None else [self._having]
        return list(dict.fromkeys(part for e in expressions for part in s.walk(e) if is_aggregate(part)))

    def _groups(self, positions: list[int]) -> list[_Group]:
        groups: dict[object, _Group] = {}
        for i in positions:
            key = tuple(evaluate(expression, self._joined.rows[i]) for expression in self._keys)
            groups.setdefault(tuple(map(order, key)), _Group(key, [])).rows.append(i)
        return list(groups.values())

    def _value(self, node: s.Expression, group: _Group, groups: list[_Group]) -> Value:
        def known(part: s.Expression) -> tuple[Value] | None:
            return (group.key[self._keys.index(part)],) if part in self._keys else None

        def call(function: s.FunctionCall) -> Value:
            if function.function.text == "total":
                return _total(function, [self._value(function.arguments[0], other, groups) for other in groups])
            rows = [self._joined.rows[i] for i in group.rows]
            keys = self._order_of_rows(function, group.rows)
            return aggregate(function, lambda part: [evaluate(part, row) for row in rows], len(rows), keys)

        return evaluate(node, {}, call, known)

    def _order_of_rows(self, function: s.FunctionCall, positions: list[int]) -> list[object]:
        """For first and last: ts, then arrival; over derived streams the window's attribute, alone over joins."""
        if function.function.text not in ("first", "last"):
            return []
        joined, window = self._joined, self._select.window
        wa = window and (window.wa or window.rattr)
        if joined.paired and window is None:
            raise Refused("first and last over a join go by a window's attribute")
        if window is not None and is_count(wa, joined.scope):
            return list(positions)
        if not joined.packets and wa is not None:
            resolved = joined.scope.resolve(wa)
            placed = [order(evaluate(resolved, joined.rows[i])) for i in positions]
        elif "ts" in joined.scope.keys:
            placed = [order(joined.rows[i]["ts"]) for i in positions]
        else:
            raise Unsupported("first and last of rows without a time")
        return placed if joined.paired else list(zip(placed, positions, strict=True))


def _fits(node: s.Expression, joined: Joined) -> bool:
    refs = [part for part in s.walk(node) if isinstance(part, s.FieldRef)]
    return all(joined.scope.find(ref) is not None or quoted_literal(ref) is not None for ref in refs)


def _total(call: s.FunctionCall, values: list[Value]) -> Value:
    present = [value for value in values if value is not None]
    if not present:
        return None
    if isinstance(present[0], Duration):
        total = whole_sum(call, [value.ns for value in present])
        return None if total is None else Duration(total)
    if not all(isinstance(value, int | float) for value in present):
        raise Refused("total is of numbers")
    return whole_sum(call, present) if isinstance(present[0], int) else sum(present)
