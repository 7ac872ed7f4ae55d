"""Promises on connections that have closed (`PUNCTUATE ON`): which nodes make them, on what, and how far they reach.

A source that has seen a connection close waits for `linger`. Then it promises that no row of the connection will follow
in the windows that hold its closing packet. It does not promise more: a connection that uses the addresses and ports
again later is untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Named, Op
from lowmark.query.expr.expressions import fields as fields_of
from lowmark.query.expr.simplify import compare, conjoin, disjoin, words
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Join
from lowmark.query.plan.nodes import (
    Aggregate,
    ClosePromises,
    Finish,
    Node,
    NodeInput,
    Pane,
    Reduce,
    Reduction,
    Send,
    Step,
    StepInput,
)
from lowmark.query.windows.window import WindowKind
from lowmark.wire.rows.schema import Kind

__all__ = ["CONNECTION", "DEFAULT_LINGER_NS", "FLAGS", "TUPLE", "CannotPunctuate", "closing_packets", "with_closings"]

DEFAULT_LINGER_NS = 2 * 10**9

CONNECTION = ("conn.aIP", "conn.aPort", "conn.bIP", "conn.bPort", "conn.proto")
"""A connection, both of its directions."""

TUPLE = ("srcIP", "srcPort", "destIP", "destPort", "proto")
"""One direction of a connection."""

FLAGS = "tcp_flags"

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {name: Kind.IP if name.endswith("IP") else Kind.INT for name in (*CONNECTION, *TUPLE)}
)
_OTHER_WAY = MappingProxyType({"srcIP": "destIP", "destIP": "srcIP", "srcPort": "destPort", "destPort": "srcPort"})
_TCP = 6
_CLOSING = 0x07  # FIN, SYN, RST: a SYN opens the connection again
_SECOND = 10**9


class CannotPunctuate(Exception):
    """The message says why no source can promise anything, or why no step can use a promise."""


def closing_packets(closing: ClosePromises) -> Reduction:
    """The packets that a source watches in addition to its nodes: TCP packets that open or close a connection."""
    names = dict.fromkeys((*closing.fields, "srcIP", "srcPort"))
    keys = tuple(Named(name, Field(name, _KINDS[name])) for name in names)
    flags = Field(FLAGS, Kind.INT)
    seen: list[Expr] = [
        compare(Op.EQ, Field("proto", Kind.INT), Literal(_TCP, Kind.INT)),
        compare(Op.NE, words(Op.BIT_AND, Kind.INT, flags, Literal(_CLOSING, Kind.INT)), Literal(0, Kind.INT)),
    ]
    if closing.where is not None:
        seen.append(closing.where)
    shown = (*keys, Named(FLAGS, flags), Named("ts", Field("ts", Kind.TIME)))
    return Reduction(conjoin(seen), Pane(_SECOND), shown, (), (), False)


def with_closings(
    nodes: Sequence[Node], steps: Sequence[Step], fields: tuple[str, ...], linger_ns: int
) -> tuple[tuple[Node, ...], tuple[Step, ...]]:
    """The plan's halves, with sources that promise values of these fields, and steps that use the promises."""
    made = [_node(node, steps, fields, linger_ns) for node in nodes]
    closing = {node.name: node for node in made if node.closing is not None}
    if not closing:
        named = "conn" if fields == CONNECTION else ", ".join(fields)
        raise CannotPunctuate(f"nothing here is grouped by {named}, or joined with rows that show it, in windows of ts")
    closed = tuple(_step(number, steps, closing) for number in range(len(steps)))
    using = {node for step in closed for node in _used(step, closing)}
    if not using & {*closing}:
        raise CannotPunctuate(
            "a group leaves early where RANGE is at least SLIDE, in a SELECT that is the answer, without ORDER BY, "
            "LIMIT, DISTINCT and total(); a join of two inputs uses it where these fields must be equal"
        )
    return tuple(node if node.name in using else replace(node, closing=None) for node in made), closed


def _used(step: Step, closing: Mapping[str, Node]) -> Iterator[str]:
    """The nodes whose promises a step can use."""
    read = [(number, source.node) for number, source in enumerate(step.inputs) if isinstance(source, NodeInput)]
    match step.plan:
        case Aggregate(closes=closes) if closes:
            yield from (node for _, node in read)
        case Join() as join:
            _, promising = _promising(step, join, closing)
            yield from (node for number, node in read if step.port(number) in promising)


def _promising(step: Step, join: Join, closing: Mapping[str, Node]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Equalities of a join whose columns its inputs promise together, and the inputs that promise them."""
    if join.kind is not JoinKind.INNER or len(join.inputs) != 2 or join.windowless or join.in_order is not None:
        return (), ()
    found: dict[tuple[int, ...], list[int]] = {}
    for port in range(2):
        fed = [source for number, source in enumerate(step.inputs) if step.port(number) == port]
        nodes = [closing.get(source.node) if isinstance(source, NodeInput) else None for source in fed]
        columns = {node.closing.columns for node in nodes if node is not None and node.closing is not None}
        if len(columns) != 1 or None in nodes:
            continue
        (promised,) = columns
        first = {column: number for number, column in reversed([*enumerate(each[port] for each in join.equal)])}
        if {*promised} <= {*first}:
            found.setdefault(tuple(sorted(first[column] for column in promised)), []).append(port)
    by, ports = max(found.items(), key=lambda each: len(each[1]), default=((), []))
    return by, tuple(ports)


def _node(node: Node, steps: Sequence[Step], fields: tuple[str, ...], linger_ns: int) -> Node:
    reduction = node.reduction
    columns = {item.expr.name: item.name for item in reduction.keys if isinstance(item.expr, Field)}
    reading = [number for number, step in enumerate(steps) if NodeInput(node.name) in step.inputs]
    reaches = [_reach(number, steps, node, linger_ns) for number in reading]
    found = [reach for reach in reaches if reach is not None]
    if reduction.pane.attribute != "ts" or reduction.pane.steps or not {*fields} <= {*columns} or not found:
        return node
    # Several steps may read the node: a promise for the longest reach holds for all of them.
    size, slide = max(found)
    carried = tuple(columns[name] for name in fields)
    where = _connections(reduction.where)
    return replace(node, closing=ClosePromises(carried, fields, linger_ns, size, slide, reduction.pane.origin, where))


def _connections(where: Expr | None) -> Expr | None:
    """The part of a condition on packets that reads only fields of their connection, for either direction."""
    parts = () if where is None else _parts(where)
    known = [part for part in parts if {*fields_of(part)} <= {*CONNECTION, *TUPLE}]
    return conjoin([disjoin([part, _back(part)]) for part in known]) if known else None


def _parts(where: Expr) -> Iterator[Expr]:
    """The conditions that must all hold."""
    if isinstance(where, Call) and where.op is Op.AND:
        for arg in where.args:
            yield from _parts(arg)
    else:
        yield where


def _back(expr: Expr) -> Expr:
    """The same condition, for packets in the other direction."""
    if isinstance(expr, Field):
        return replace(expr, name=_OTHER_WAY.get(expr.name, expr.name))
    return replace(expr, args=tuple(map(_back, expr.args))) if isinstance(expr, Call) else expr


def _reach(number: int, steps: Sequence[Step], node: Node, linger_ns: int) -> tuple[int, int] | None:
    """Size and slide, in ns, of the windows that hold the node's rows. Rows of a sliding join wait for each other no
    longer than its largest window, and lie in the windows of the aggregates that read it."""
    match steps[number].plan:
        case Aggregate(window=window) if window.kind is WindowKind.SLIDING and window.axis.attribute == "ts":
            return window.size * window.axis.unit, window.slide * window.axis.unit
        case Join(inputs=inputs, tumbling=tumbling):
            size, slide = max(port.size for port in inputs), node.reduction.pane.width
            size, slide = (size, size) if tumbling else (size + linger_ns, slide)
            behind = max(_behind(number, steps), default=0)
            return (size, slide) if behind <= size else (behind, node.reduction.pane.width)
    return None


def _behind(join: int, steps: Sequence[Step]) -> Iterator[int]:
    """The sizes, in ns, of the windows of aggregates that read this join."""
    for step in steps:
        if isinstance(step.plan, Aggregate) and step.plan.window.kind is WindowKind.SLIDING:
            read = (_joined(source, steps) for source in step.inputs)
            if any(found is not None and found[1] == join for found in read):
                yield step.plan.window.size * step.plan.window.axis.unit


def _joined(source: StepInput | NodeInput, steps: Sequence[Step]) -> tuple[Reduce, int] | None:
    """The reduction of a join's rows that an aggregate reads here, perhaps through an exchange, and the number of the
    join."""
    if isinstance(source, NodeInput):
        sent = [step.inputs for step in steps if isinstance(step.plan, Send) and step.plan.node == source.node]
        if len(sent) != 1 or len(sent[0]) != 1:
            return None
        ((source,),) = sent
    if not isinstance(source, StepInput):
        return None
    reduce = steps[source.step]
    if not isinstance(reduce.plan, Reduce) or len(reduce.inputs) > 1 or not isinstance(reduce.inputs[0], StepInput):
        return None
    return (reduce.plan, reduce.inputs[0].step) if isinstance(steps[reduce.inputs[0].step].plan, Join) else None


def _step(number: int, steps: Sequence[Step], closing: Mapping[str, Node]) -> Step:
    """The step, using promises: an aggregate emits a group as soon as it is complete, if its row does not depend on
    other rows; a join uses promises on columns that must be equal."""
    step = steps[number]
    if isinstance(step.plan, Join) and step.plan.punctuated is not None:
        how, (by, promising) = step.plan.punctuated, _promising(step, step.plan, closing)
        by = by if len(by) < len(step.plan.equal) else ()
        chosen = replace(how, by=by, promising=promising) if promising or how.asked else None
        return replace(step, plan=replace(step.plan, punctuated=chosen))
    plan = step.plan
    if not isinstance(plan, Aggregate) or plan.window.kind is not WindowKind.SLIDING:
        return step
    columns = {_promised(source, steps, closing) for source in step.inputs}
    finish = [each for each in steps if StepInput(number) in each.inputs]
    if plan.window.size < plan.window.slide or len(columns) > 1 or len(finish) != 1:
        return step
    (closes,) = columns
    if not {*closes} <= {*plan.keys} or finish[0] is not steps[-1] or not _by_row(finish[0]):
        return step
    return replace(step, plan=replace(plan, closes=closes))


def _promised(
    source: StepInput | NodeInput, steps: Sequence[Step], closing: Mapping[str, Node]
) -> tuple[str, ...]:  # fmt: skip
    """The columns of an aggregate's input whose values are promised together: by sources, or by a join that passes
    their promises on."""
    if isinstance(source, NodeInput) and source.node in closing:
        promises = closing[source.node].closing
        return () if promises is None else promises.columns
    found = _joined(source, steps)
    if found is None:
        return ()
    reduce, number = found
    fed = [each.node for each in steps[number].inputs if isinstance(each, NodeInput)]
    if isinstance(source, NodeInput) and any(closing[name].tells_one_bucket for name in fed if name in closing):
        return ()  # the other buckets send rows through the exchange, too, and hear no promise
    join = _step(number, steps, closing).plan
    if not isinstance(join, Join) or join.punctuated is None or not join.punctuated.promising:
        return ()
    unchanged = {key.expr.name: key.name for key in reduce.reduction.keys if isinstance(key.expr, Field)}
    for names in join.promised_names:
        if {*names} <= {*unchanged}:
            return tuple(unchanged[name] for name in names)
    return ()


def _by_row(step: Step) -> bool:
    plan = step.plan
    return isinstance(plan, Finish) and not (plan.totals or plan.order or plan.distinct or plan.limit is not None)
