"""Plans in a few lines: what the golden tests compare."""

from __future__ import annotations

from lowmark.query.expr.print import text_of
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import (
    Aggregate,
    Counted,
    Exchange,
    Finish,
    Gather,
    Join,
    NodeInput,
    Number,
    Pane,
    QueryPlan,
    Reduce,
    Reduction,
    Send,
    SlideByTuple,
    Step,
    Totals,
)


def summary(plan: QueryPlan) -> list[str]:
    """One line for each node and each step."""
    nodes = [
        f"{node.name} {'+'.join(node.streams)}: {_reduction(node.reduction)} by ({', '.join(node.bucket_by)})"
        for node in plan.stage.nodes
    ]
    exchanges = () if plan.exchanges is None else plan.exchanges.each
    return [*nodes, *map(_exchange, exchanges), *(f"{index} {_step(step)}" for index, step in enumerate(plan.steps))]


def _exchange(exchange: Exchange) -> str:
    to = "all" if exchange.to_all else ", ".join(exchange.node.bucket_by) or "one"
    return f"{exchange.node.name} {_pane(exchange.node.reduction.pane)} to {to}: {exchange.reason}"


def _reduction(reduction: Reduction) -> str:
    strings = reduction.strings
    parts = [] if reduction.where is None else [f"where {text_of(reduction.where, strings)}"]
    parts.append(_pane(reduction.pane))
    parts.append(("group at once" if reduction.at_once else "group") if reduction.grouped else "select")
    named = (*reduction.keys, *reduction.details)
    parts.append("(" + ", ".join(f"{item.name}={text_of(item.expr, strings)}" for item in named) + ")")
    parts += [f"{fold.op.name}({', '.join(text_of(expr, strings) for expr in fold.lift)})" for fold in reduction.folds]
    return " ".join(parts)


def _pane(pane: Pane) -> str:
    return f"{pane.attribute}/{pane.width / 1e9:g}s" + (f"@{pane.origin / 1e9:g}s" if pane.origin else "")


def _step(step: Step) -> str:
    inputs = ",".join(item.node if isinstance(item, NodeInput) else str(item.step) for item in step.inputs)
    return f"<- {inputs}: {_plan(step)}"


def _plan(step: Step) -> str:
    match step.plan:
        case Aggregate(window=window, calls=calls, keys=keys) as plan:
            axis = window.axis
            shape = f"{window.kind.value} {window.size}/{window.slide} of {axis.attribute}/{axis.unit}"
            called = ", ".join(f"{call.column.name}:{call.column.kind.value}" for call in calls)
            progress = "".join(f" {item.name}>={text_of(item.expr)}" for item in plan.progress)
            shape = f"crowded {shape}" if plan.crowded else shape
            shape += " at once" if plan.at_once else ""
            return f"aggregate {shape} ({', '.join(keys)}) {called}{progress}"
        case Finish() as plan:
            strings = plan.input.strings
            parts = ["finish"]
            parts += [f"{total.column.name}=total({text_of(total.expr)})" for total in plan.totals]
            parts += [] if plan.having is None else [f"having {text_of(plan.having, strings)}"]
            parts += [text_of(item.expr) + (" desc" if item.descending else " asc") for item in plan.order]
            parts += [] if plan.limit is None else [f"limit {plan.limit}"]
            parts += ["distinct"] if plan.distinct else []
            parts += [f"within {', '.join(plan.within)}"] if plan.within else []
            shown = ", ".join(f"{item.name}={text_of(item.expr, strings)}" for item in plan.columns)
            return " ".join((*parts, f"({shown})"))
        case Join() as plan:
            kind = "tumbling" if plan.tumbling else "sliding"
            ports = ", ".join(f"{port.label} {port.size / 1e9:g}s of {port.attribute}" for port in plan.inputs)
            equal = "".join(f" on {' = '.join(map(str, columns))}" for columns in plan.equal)
            where = "" if plan.where is None else f" where {text_of(plan.where, plan.output.strings)}"
            progress = "".join(f" {item.name}>={text_of(item.expr)}" for port in plan.inputs for item in port.progress)
            kind = f"{plan.kind.value} {kind}" if plan.kind is not JoinKind.INNER else f"join {kind}"
            return f"{kind} ({ports}) ports {step.ports}{equal}{where}{progress}"
        case Number(order=order, number=number):
            called = "" if number in (None, "row_num") else f" as {number}"
            by = f"by {', '.join(order)}" if order else "as they come"
            return f"{'order' if number is None else 'number'} {by}{called}"
        case Counted(slides=None, partition=partition) as plan:
            return f"rows of ({', '.join(partition)}) {_counted(plan)}"
        case Counted(slides=SlideByTuple(ranked, pane_ns, shift_ns), partition=partition) as plan:
            by = "rank" if ranked else "arrival"
            return f"{by} of ({', '.join(partition)}) {_counted(plan)} {plan.at}>=pane*{pane_ns}+{shift_ns}"
        case Send(node=node):
            return f"send to {node}"
        case Gather(window=window):
            return f"gather {window.kind.value} {window.size}/{window.slide} of {window.axis.attribute}"
        case Totals(window=window, calls=calls):
            return f"totals {window.kind.value} {window.size}/{window.slide}: {', '.join(c.column.name for c in calls)}"
        case Reduce(reduction=reduction):
            return f"reduce {_reduction(reduction)}"


def _counted(plan: Counted) -> str:
    window = plan.window
    called = ", ".join(f"{call.column.name}:{call.column.kind.value}" for call in plan.calls)
    shape = f"{window.kind.value} {window.size}/{window.slide} of {window.axis.attribute}/{window.axis.unit}"
    return f"{shape} ({', '.join(plan.keys)}) {called}"
