"""Collects the nodes and steps of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lowmark.query.bind.relations import ARRIVAL, ROW_NUM, Base, Packets
from lowmark.query.bind.windows import GRANULE
from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.expr.expressions import Expr, Field, Named, fields
from lowmark.query.parse.size_limits import NODES, STEPS, TooLarge
from lowmark.query.plan.nodes import (
    Exchange,
    Finish,
    Node,
    NodeInput,
    Number,
    Reduce,
    Reduction,
    Send,
    Step,
    StepInput,
    StepPlan,
)
from lowmark.query.plan.steps.columns import schema_of
from lowmark.query.windows.window import Window
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["Input", "PlanBuilder", "shared"]

Input = NodeInput | StepInput

_FIELDS = {item.name: Field(item.name, item.kind, item.nullable) for item in (*PACKET_FIELDS, *DERIVED_FIELDS)} | {
    name: Field(name, Kind.INT) for name in ("_rank", "_position")
}
_ORDER = tuple(Named(f"_by{item.name.replace('.', '_')}", item.expr) for item in ARRIVAL)
"""Columns that a node sends in addition if a step above sorts its tuples by arrival."""


class PlanBuilder:
    """`counts_rows`: whether a step numbers the rows of a stream. `name`: the query's name; its exchanges use it."""

    def __init__(self, name: str, strings: tuple[str, ...]) -> None:
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.exchanges: list[Exchange] = []
        self._alike: dict[tuple[Reduction, tuple[str, ...]], list[int]] = {}  # numbers of nodes that reduce alike
        self._name = name
        self._numbered: dict[Packets, tuple[StepInput, Schema]] = {}
        self.counts_rows = False
        self._strings = strings

    def numbered(self, base: Packets, exprs: Iterable[Expr]) -> tuple[StepInput, Schema]:
        """The packets numbered in their order of arrival: all packets, because `row_num` comes before WHERE. `exprs`:
        what any reader reads of them."""
        if base not in self._numbered:
            self._numbered[base] = self._number(base, exprs)
        return self._numbered[base]

    def _number(self, base: Packets, exprs: Iterable[Expr]) -> tuple[StepInput, Schema]:
        self.counts_rows = True
        used = {"ts", *(name for expr in exprs for name in fields(expr))} - {ROW_NUM}
        sent = tuple(Named(name, field) for name, field in _FIELDS.items() if name in used)
        order = _ORDER if base.sources > 1 else ()
        reduction = Reduction(None, GRANULE, (*sent, *order), (), (), False, self._strings)
        nodes: list[NodeInput] = []
        self.node(base, reduction, (), nodes)
        kept = reduction.schema.columns[: len(reduction.schema.columns) - len(order)]
        output = Schema((*kept, Column(ROW_NUM, Kind.INT)), self._strings)
        number = Number(reduction.schema, tuple(item.name for item in order), output)
        return self.step(number, nodes), output

    def node(self, base: Base, reduction: Reduction, bucket_by: tuple[str, ...], feeding: list[NodeInput]) -> None:
        """Add a node to those that feed one port. Streams that reduce alike share a node, unless one comes twice."""
        assert isinstance(base, Packets)
        left = Counter(base.streams)
        alike = self._alike.setdefault((reduction, bucket_by), [])
        beside = {source.node for source in feeding}
        for index in alike:
            node = self.nodes[index]
            if left and node.name in beside:
                new = tuple(stream for stream in left if stream not in node.streams)
                self.nodes[index] = replace(node, streams=(*node.streams, *new))
                left -= Counter(new)
        while left:
            self._check_room()
            alike.append(len(self.nodes))
            node = Node(f"n{len(self.nodes)}", tuple(left), reduction, bucket_by)
            self.nodes.append(node)
            feeding.append(NodeInput(node.name))
            left -= Counter(node.streams)

    def project(
        self, inputs: Iterable[Input], schema: Schema, where: Expr | None, columns: tuple[Named, ...],
        window: Window | None = None,
    ) -> StepInput:  # fmt: skip
        """Select rows one by one by a condition, and compute their columns. `window`: the one they lie in, if any."""
        output = schema_of(columns, self._strings)
        return self.step(Finish(schema, (), where, (), None, False, columns, output, window=window), inputs)

    def exchange(
        self, source: StepInput, schema: Schema, reduction: Reduction, by: tuple[str, ...], reason: str,
        to_all: bool = False,
    ) -> NodeInput:  # fmt: skip
        """Reduce a step's rows in the buckets that the hash of the columns `by` chooses; (): in a single bucket."""
        assert schema.column(reduction.pane.attribute).kind is Kind.TIME, "bounds of exchanges are times"
        name = f"{self._name}.x{len(self.exchanges)}"
        keys = tuple(item.name for item in (*reduction.keys, *reduction.details))
        send = Send(reduction.schema, name, keys, reduction.folds, reduction.grouped)
        self.step(send, [self.step(Reduce(schema, reduction), [source])])
        self.exchanges.append(Exchange(Node(name, (name,), reduction, by), to_all, reason))
        return NodeInput(name)

    def step(self, plan: StepPlan, inputs: Iterable[Input], ports: tuple[int, ...] = ()) -> StepInput:
        self._check_room()
        self.steps.append(Step(plan, tuple(inputs), ports))
        return StepInput(len(self.steps) - 1)

    def _check_room(self) -> None:
        if len(self.nodes) + len(self.steps) == STEPS.most:
            hint = "read fewer streams, or fewer times"
            raise TooLarge(STEPS, "this query's plan has too many nodes and steps", hint=hint)


def shared(nodes: Sequence[Node], steps: Sequence[Step]) -> tuple[tuple[Node, ...], tuple[Step, ...]]:
    """Merge nodes that send the same, except nodes that feed one port: a union of a stream with itself has its rows
    twice."""
    fed: dict[str, set[tuple[int, int]]] = {node.name: set() for node in nodes}  # the ports of steps, by node
    for number, step in enumerate(steps):
        for place, source in enumerate(step.inputs):
            if isinstance(source, NodeInput) and source.node in fed:
                fed[source.node].add((number, step.port(place)))
    kept: list[Node] = []
    alike: dict[tuple[tuple[str, ...], Reduction, tuple[str, ...]], list[Node]] = {}
    names: dict[str, str] = {}
    for node in nodes:
        twins = alike.setdefault((node.streams, node.reduction, node.bucket_by), [])
        twin = next((one for one in twins if fed[one.name].isdisjoint(fed[node.name])), node)
        if twin is node:
            kept.append(node)
            twins.append(node)
        else:
            fed[twin.name] |= fed[node.name]
        names[node.name] = twin.name
    if len(kept) > NODES.most:
        hint = "read fewer streams, or with the same conditions and columns"
        raise TooLarge(NODES, f"this query's plan has {len(kept)} nodes", hint=hint)
    renamed = (replace(step, inputs=tuple(_renamed(i, names) for i in step.inputs)) for step in steps)
    return tuple(kept), tuple(renamed)


def _renamed(source: Input, names: dict[str, str]) -> Input:
    return NodeInput(names.get(source.node, source.node)) if isinstance(source, NodeInput) else source
