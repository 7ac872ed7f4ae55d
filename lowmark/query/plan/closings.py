"""Promises on connections that have closed (`PUNCTUATE ON`): which nodes make them, on what, and how far they reach.

A source that has seen a connection close waits for `linger`. Then it promises that no row of the connection will follow
in the windows that hold its closing packet. It does not promise more: a connection that uses the addresses and ports
again later is untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lowmark.query.expr.expressions import Expr, Field, Literal, Named, Op
from lowmark.query.expr.simplify import compare, conjoin, words
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Join
from lowmark.query.plan.nodes import Aggregate, Closing, Finish, Node, NodeInput, Pane, Reduction, Step, StepInput
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
_TCP = 6
_CLOSING = 0x07  # FIN, SYN, RST: a SYN opens the connection again
_SECOND = 10**9


class CannotPunctuate(Exception):
    """The message says why no source could promise anything, or nobody could use it."""


def closing_packets(closing: Closing) -> Reduction:
    """What a source looks at beside its nodes: the TCP packets that open or close a connection."""
    names = dict.fromkeys((*closing.fields, "srcIP", "srcPort"))
    keys = tuple(Named(name, Field(name, _KINDS[name])) for name in names)
    flags = Field(FLAGS, Kind.INT)
    seen: list[Expr] = [
        compare(Op.EQ, Field("proto", Kind.INT), Literal(_TCP, Kind.INT)),
        compare(Op.NE, words(Op.BIT_AND, Kind.INT, flags, Literal(_CLOSING, Kind.INT)), Literal(0, Kind.INT)),
    ]
    shown = (*keys, Named(FLAGS, flags), Named("ts", Field("ts", Kind.TIME)))
    return Reduction(conjoin(seen), Pane(_SECOND), shown, (), (), False)


def with_closings(
    nodes: Sequence[Node], steps: Sequence[Step], fields: tuple[str, ...], linger_ns: int
) -> tuple[tuple[Node, ...], tuple[Step, ...]]:
    """The plan's halves, with sources that promise the values of these fields, and aggregates that use it."""
    made = [_node(node, steps, fields, linger_ns) for node in nodes]
    closing = {node.name: node.closing for node in made if node.closing is not None}
    if not closing:
        named = "conn" if fields == CONNECTION else ", ".join(fields)
        raise CannotPunctuate(f"nothing here is grouped by {named}, or joined with rows that show it, in windows of ts")
    closed = tuple(_step(number, steps, closing) for number in range(len(steps)))
    using = {node for step in closed for node in _used(step, closing)}
    if not using & {*closing}:
        raise CannotPunctuate(
            "a group leaves early where RANGE equals SLIDE, in a SELECT that is the answer, without ORDER BY, LIMIT, "
            "DISTINCT and total(); a join of two inputs uses it where just these fields must be equal"
        )
    return tuple(node if node.name in using else replace(node, closing=None) for node in made), closed


def _used(step: Step, closing: Mapping[str, Closing]) -> Iterator[str]:
    """The nodes whose promises a step can use."""
    read = [(number, source.node) for number, source in enumerate(step.inputs) if isinstance(source, NodeInput)]
    match step.plan:
        case Aggregate(closes=closes) if closes:
            yield from (node for _, node in read)
        case Join() as join:
            promising = _promising(step, join, closing)
            yield from (node for number, node in read if step.port(number) in promising)


def _promising(step: Step, join: Join, closing: Mapping[str, Closing]) -> tuple[int, ...]:
    """The inputs of a join that promise values of the columns that must be equal, all of them together."""
    if join.kind is not JoinKind.INNER or len(join.inputs) != 2 or join.windowless or join.in_order is not None:
        return ()
    found = []
    for port in range(2):
        fed = [source for number, source in enumerate(step.inputs) if step.port(number) == port]
        nodes = [closing.get(source.node) if isinstance(source, NodeInput) else None for source in fed]
        if all(node is not None and {*node.columns} == {*join.keys(port)} for node in nodes):
            found.append(port)
    return tuple(found)


def _node(node: Node, steps: Sequence[Step], fields: tuple[str, ...], linger_ns: int) -> Node:
    reduction = node.reduction
    columns = {item.expr.name: item.name for item in reduction.keys if isinstance(item.expr, Field)}
    reaches = [_reach(step, node, linger_ns) for step in steps if NodeInput(node.name) in step.inputs]
    found = [reach for reach in reaches if reach is not None]
    if reduction.pane.attribute != "ts" or reduction.pane.steps or not {*fields} <= {*columns} or not found:
        return node
    # Several steps may read the node: what holds for the longest reach holds for all of them.
    size, slide = max(found)
    carried = tuple(columns[name] for name in fields)
    return replace(node, closing=Closing(carried, fields, linger_ns, size, slide, reduction.pane.origin))


def _reach(step: Step, node: Node, linger_ns: int) -> tuple[int, int] | None:
    """Size and slide, in ns, of the windows that hold the node's rows. Rows of a sliding join wait for each other no
    longer than its largest window."""
    match step.plan:
        case Aggregate(window=window) if window.kind is WindowKind.SLIDING and window.axis.attribute == "ts":
            return window.size * window.axis.unit, window.slide * window.axis.unit
        case Join(inputs=inputs, tumbling=tumbling):
            size = max(port.size for port in inputs)
            return (size, size) if tumbling else (size + linger_ns, node.reduction.pane.width)
    return None


def _step(number: int, steps: Sequence[Step], closing: Mapping[str, Closing]) -> Step:
    """An aggregate lets a group go as soon as it is complete, where the rows that it makes need no others. A join uses
    promises on what must be equal."""
    step = steps[number]
    if isinstance(step.plan, Join) and step.plan.punctuated is not None:
        how, promising = step.plan.punctuated, _promising(step, step.plan, closing)
        chosen = replace(how, promising=promising) if promising or how.asked else None
        return replace(step, plan=replace(step.plan, punctuated=chosen))
    plan, read = step.plan, [source.node for source in step.inputs if isinstance(source, NodeInput)]
    if not isinstance(plan, Aggregate) or plan.window.kind is not WindowKind.SLIDING:
        return step
    if plan.window.size != plan.window.slide or len(read) < len(step.inputs) or not {*read} <= {*closing}:
        return step
    columns = {closing[node].columns for node in read}
    finish = [each for each in steps if StepInput(number) in each.inputs]
    if len(columns) > 1 or len(finish) != 1 or finish[0] is not steps[-1] or not _by_row(finish[0]):
        return step
    return replace(step, plan=replace(plan, closes=columns.pop()))


def _by_row(step: Step) -> bool:
    plan = step.plan
    return isinstance(plan, Finish) and not (plan.totals or plan.order or plan.distinct or plan.limit is not None)
