"""How a query runs, for people and for programs: both halves of its plan, its results, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from lowmark.query.explain.joins import Known, describe_join, known_inputs
from lowmark.query.explain.strategy import describe_strategy
from lowmark.query.expr.expressions import Named
from lowmark.query.expr.print import length_text, pane_text, text_of
from lowmark.query.optimize.late_corrections import merges
from lowmark.query.options import Late, Rates, Strategy
from lowmark.query.plan.closings import CONNECTION
from lowmark.query.plan.nodes import (
    Aggregate,
    ClosePromises,
    Counted,
    Exchange,
    Finish,
    Gather,
    Join,
    Node,
    NodeInput,
    Number,
    QueryPlan,
    Reduce,
    Reduction,
    Send,
    Step,
    StepPlan,
    Totals,
)
from lowmark.query.windows.window import Window, WindowKind
from lowmark.wire.records.json_fields import Json
from lowmark.wire.records.verdicts import Merge
from lowmark.wire.rows.schema import Column, Kind, Schema

__all__ = ["describe", "render", "result_schema"]

_JSON_TYPES: Mapping[Kind, Mapping[str, str]] = {
    Kind.INT: {"type": "integer"},
    Kind.FLOAT: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.TIME: {"type": "string", "format": "date-time"},
    Kind.DURATION: {"type": "number", "description": "seconds"},
    Kind.IP: {"type": "string", "description": "an IPv4 or IPv6 address"},
    Kind.MAC: {"type": "string", "description": "a MAC address"},
    Kind.COMMUNITY_ID: {"type": "string", "description": "a Community ID of version 1"},
    Kind.STR: {"type": "string"},
}
_LONG = 60
_WIDTH = 12  # of the label that begins a line of text


def describe(plan: QueryPlan, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, Json]:
    """The plan as JSON. Texts in it are for people; their wording may change. `names`: shown names of result columns
    that are renamed."""
    return {
        "query": plan.name,
        "stage": plan.stage.fingerprint,
        "buckets": plan.stage.buckets,
        "nodes": [_node(node) for node in plan.stage.nodes],
        "exchanges": [_exchange(exchange, plan.stage.buckets) for exchange in _exchanges(plan)],
        "steps": [
            _step(step, plan.strategy, plan.rates, known)
            for step, known in zip(plan.steps, known_inputs(plan.steps), strict=True)
        ],
        "window": None if plan.window is None else _window(plan.window),
        "ordered": plan.ordered,
        "late": _late(plan),
        "notes": plan.notes,
        "result": result_schema(plan.output.renamed(names)),
    }


def result_schema(schema: Schema) -> dict[str, Json]:
    """The JSON Schema of one result row."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {column.name: _property(column, schema.strings) for column in schema},
        "required": schema.names,
        "additionalProperties": False,
    }


def render(plan: QueryPlan, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """The plan for people, as lines of text."""
    lines = [f"query {plan.name}, stage {plan.stage.fingerprint}, {_counted(plan.stage.buckets, 'bucket')}", ""]
    lines.append("in the capture processes")
    for node in plan.stage.nodes:
        lines += _block(f"node {node.name}", _node(node))
    lines += ["", "above, in each bucket"]
    for index, (step, known) in enumerate(zip(plan.steps, known_inputs(plan.steps), strict=True)):
        lines += _block(f"step {index}", _step(step, plan.strategy, plan.rates, known))
    if plan.exchanges is not None:
        lines += ["", f"between the buckets, topic exchange.{plan.exchanges.fingerprint}"]
        for exchange in plan.exchanges.each:
            lines += _block(f"exchange {exchange.node.name}", _exchange(exchange, plan.stage.buckets))
    lines += ["", "result"]
    result = plan.output.renamed(names)
    width = max(len(name) for name in result.names)
    lines += [f"  {column.name:<{width}}  {_kind(column)}" for column in result]
    if plan.late is not Late.COUNT:
        lines += ["", "late tuples", *(f"  {line}" for line in _late_lines(plan))]
    if plan.notes:
        lines += ["", "notes", *(f"  {note}" for note in plan.notes)]
    return "\n".join(lines)


def _late(plan: QueryPlan) -> dict[str, Json]:
    facts: dict[str, Json] = {"setting": plan.late.value}
    if plan.late is Late.CORRECT:
        facts["merge"] = {name: merge.value for name, merge in merges(plan).items()}
    return facts


def _late_lines(plan: QueryPlan) -> Iterator[str]:
    if plan.late is Late.EMIT:
        counts = any(isinstance(step.plan, Number | Counted) for step in plan.steps)
        of = "its ts, and what the query reads of it" if counts else "columns of the answer, over the late tuples alone"
        yield f"each is sent on, as a row of its own ({of})"
        return
    yield "what they change in closed windows is reported, by group:"
    for name, merge in merges(plan).items():
        yield f"  {name:<{_WIDTH}} {_MERGING[merge]}"


_MERGING = {
    Merge.ADD: "adds up",
    Merge.LEAST: "the lesser stands",
    Merge.GREATEST: "the greater stands",
    Merge.AND: "bitwise and",
    Merge.OR: "bitwise or",
}


def _block(title: str, facts: Mapping[str, Json]) -> Iterator[str]:
    yield f"  {title}"
    for name, value in facts.items():
        if name in ("name", "step") or value is None or value == [] or value is False:
            continue
        shown = _listed(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for number, line in enumerate(shown):
            label = "" if number else name.replace("_", " ")
            yield f"    {label:<{_WIDTH}} {'yes' if line is True else line}"


def _listed(values: Sequence[Json]) -> list[str]:
    """The values on one line; one a line if any of them is long."""
    texts = list(map(str, values))
    return texts if max(map(len, texts)) > _LONG else [", ".join(texts)]


# Facts


def _node(node: Node) -> dict[str, Json]:
    at_once = {"leaves": "each group with its first tuple of a pane"} if node.reduction.at_once else {}
    facts = _reduction(node.reduction) | at_once
    promises = {} if node.closing is None else {"promises": _closing_text(node.closing)}
    return {"name": node.name, "reads": node.streams, **facts, **promises, "bucket_by": list(node.bucket_by)}


def _closing_text(closing: ClosePromises) -> str:
    linger = length_text(closing.linger_ns, Kind.TIME)
    what, closes = "a connection", "RST, or FIN from both ends"
    if closing.fields != CONNECTION:
        what, closes = "one direction of a connection", "its own FIN or RST"
    return f"{what} is over, {linger} after {closes}: for the windows that hold its last packet"


def _exchanges(plan: QueryPlan) -> tuple[Exchange, ...]:
    return () if plan.exchanges is None else plan.exchanges.each


def _exchange(exchange: Exchange, buckets: int) -> dict[str, Json]:
    by = list(exchange.node.bucket_by)
    to = "all buckets" if exchange.to_all else _counted(buckets, "bucket") if by else "one bucket"
    return {
        "name": exchange.node.name,
        "because": exchange.reason,
        "goes_to": to,
        "bucket_by": by,
    }


def _reduction(reduction: Reduction, kind: Kind = Kind.TIME) -> dict[str, Json]:
    """`kind`: the kind of attribute that panes are cut from."""
    strings = reduction.strings
    return {
        "keeps": None if reduction.where is None else text_of(reduction.where, strings),
        "panes": pane_text(reduction.pane, kind),
        "groups_by" if reduction.grouped else "sends": _named(reduction.keys, strings),
        "counts_by": _named(reduction.details, strings),
        "folds": [
            f"{fold.op.name.lower().replace('_', ' ')}({', '.join(text_of(expr, strings) for expr in fold.lift)})"
            for fold in reduction.folds
        ],
    }


def _step(step: Step, asked: Strategy, rates: Rates, known: Known) -> dict[str, Json]:
    inputs = [item.node if isinstance(item, NodeInput) else f"step {item.step}" for item in step.inputs]
    head: dict[str, Json] = {"step": type(step.plan).__name__.lower(), "does": _does(step.plan), "reads": inputs}
    match step.plan:
        case Aggregate() as plan:
            return head | {
                "window": _window_text(plan.window),
                "groups_by": list(plan.keys),
                "gives": [call.column.name for call in plan.calls],
                **({"leaves": "each group with its first tuple; promises then drop it"} if plan.at_once else {}),
                **({"leaves": _EARLY} if plan.closes else {}),
                **describe_strategy(plan, asked, rates),
            }
        case Finish() as plan:
            return head | _finish(plan)
        case Join() as plan:
            return head | describe_join(plan, known)
        case Number() as plan:
            return head | {"order": list(plan.order) or "as they come", "numbers": plan.number}
        case Counted() as plan:
            return head | _counted_facts(plan)
        case Gather(window=window):
            return head | {"window": _window_text(window)}
        case Totals(window=window, calls=calls):
            return head | {"window": _window_text(window), "gives": [call.column.name for call in calls]}
        case Send(node=node):
            return head | {"sends_to": node}
        case Reduce() as plan:
            return head | _reduction(plan.reduction, plan.input.column(plan.reduction.pane.attribute).kind)


_EARLY = "each group when all sources have promised that its connection is over; the others with their window"


def _does(plan: StepPlan) -> str:
    match plan:
        case Aggregate():
            return "merges partials into windows"
        case Finish():
            return "ends the SELECT"
        case Join():
            return "finds the rows that meet in each other's windows"
        case Number():
            return "puts tuples into their order of arrival and numbers them"
        case Counted():
            return "keeps bins of tuples, and makes windows of bins where as many tuples as a slide have come"
        case Reduce():
            return "reduces rows to partials of the next stage"
        case Send():
            return "sends them through an exchange"
        case Gather():
            return "puts all rows of a window together"
        case Totals():
            return "adds up what all buckets have for the totals of a window"


def _counted_facts(plan: Counted) -> dict[str, Json]:
    return {
        "window": _window_text(plan.window),
        "counts": "tuples in order of rank" if plan.slides and plan.slides.ranked else "tuples as they arrive",
        "each_of": list(plan.partition),
        "groups_by": list(plan.keys),
        "gives": [call.column.name for call in plan.calls],
    }


def _finish(plan: Finish) -> dict[str, Json]:
    strings = plan.input.strings
    return {
        "totals": [f"{total.column.name} = total({text_of(total.expr, strings)})" for total in plan.totals],
        "keeps": None if plan.having is None else text_of(plan.having, strings),
        "order": [text_of(item.expr, strings) + (" desc" if item.descending else "") for item in plan.order],
        "limit": plan.limit,
        "distinct": plan.distinct,
        "selects": _named(plan.columns, strings),
        "alike_in": list(plan.within),
    }


def _named(items: Iterable[Named], strings: tuple[str, ...]) -> list[Json]:
    texts = ((item.name, text_of(item.expr, strings)) for item in items)
    return [text if name == text else f"{text} AS {name}" for name, text in texts]


def _window(window: Window) -> dict[str, Json]:
    panes = window.kind is not WindowKind.NONE
    return {
        "kind": window.kind.value,
        "attribute": window.axis.attribute,
        "range": window.size * window.axis.unit if panes and window.size else None,
        "slide": window.slide * window.axis.unit if panes else None,
        "pane": window.axis.unit,
        "text": _window_text(window),
    }


def _window_text(window: Window) -> str:
    axis = window.axis
    if window.kind is WindowKind.NONE:
        return f"none: groups close as {axis.attribute} progresses"
    slide = length_text(window.slide * axis.unit, axis.kind)
    if window.kind is WindowKind.LANDMARK:
        return f"everything up to now, every {slide} of {axis.attribute}"
    size = length_text(window.size * axis.unit, axis.kind)
    if window.kind is WindowKind.SLIDE_BY_TUPLE:
        return f"{size} of {axis.attribute} up to every {_counted(window.slide, 'tuple')}"
    return f"{size} every {slide} of {axis.attribute}, {_counted(window.size, 'pane')} each"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _kind(column: Column) -> str:
    return column.kind.value + (", may be null" if column.nullable else "")


def _property(column: Column, strings: tuple[str, ...]) -> dict[str, Json]:
    kind = _JSON_TYPES[column.kind]
    found: dict[str, Json] = {**kind, "type": [kind["type"], "null"]} if column.nullable else {**kind}
    if column.kind is Kind.STR:
        found["enum"] = [*strings, *((None,) if column.nullable else ())]
    return found
