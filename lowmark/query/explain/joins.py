"""The part of `explain` about a join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2

from lowmark.query.expr.print import span_text, text_of
from lowmark.query.optimize.buffer_model import Traits, buffers, joined
from lowmark.query.optimize.join_order import DEFAULT_SELECTIVITY
from lowmark.query.options import Buffering, Memory
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.joins import Oblivious, Release, Scheduling
from lowmark.query.plan.nodes import Join, Reduce, Step, StepInput
from lowmark.wire.records.json_fields import Json
from lowmark.wire.rows.schema import Kind

__all__ = ["Known", "describe_join", "expected_rows", "known_inputs"]

Known = Sequence[Traits | None]
"""What is known of each input of a join without windows."""


def known_inputs(steps: Sequence[Step]) -> list[Known]:
    """For each step, what is known of its inputs; () unless it is a join without windows. A stream's traits are its
    given rate and scrambling; those of an earlier join's output follow from its inputs (theorem 3.1)."""
    found: list[Known] = []
    made: list[Traits | None] = []  # traits of each step's output
    for step in steps:
        plan = step.plan
        fed = [made[source.step] if isinstance(source, StepInput) else None for source in step.inputs]
        if isinstance(plan, Join) and plan.oblivious is not None:
            ports = [step.port(number) for number in range(len(fed))]
            below = [fed[ports.index(port)] if ports.count(port) == 1 else None for port in range(len(plan.inputs))]
            given = plan.oblivious.scrambling or (None,) * len(plan.inputs)
            known = tuple(
                Traits(port.rate, rows) if port.rate is not None and rows is not None else earlier
                for port, rows, earlier in zip(plan.inputs, given, below, strict=True)
            )
            all_known = [one for one in known if one is not None]
            found.append(known)
            made.append(joined(all_known) if len(all_known) == len(known) else None)
        else:
            found.append(())
            made.append(fed[0] if isinstance(plan, Reduce) and len(fed) == 1 and not plan.reduction.grouped else None)
    return found


def describe_join(plan: Join, inputs: Known) -> dict[str, Json]:
    """The facts about a join; times are those of the attributes of the inputs' windows."""
    return {
        "joins": [port.label for port in plan.inputs],
        "kind": plan.kind.value.lower(),
        "window": list(_windows(plan)),
        "equal": [" = ".join(_members(plan, columns)) for columns in plan.equal],
        "matches": None if plan.where is None else text_of(plan.where, plan.output.strings),
        "algorithm": _algorithm(plan),
        "schedule": _schedule(plan),
        "probes": list(_probes(plan)),
        "expects": list(_expects(plan)),
        "state": list(_state(plan)),
        "memory": list(_memory(plan)),
        **({"predicted": list(_predicted(plan, inputs))} if plan.oblivious is not None else {}),
    }


def _algorithm(plan: Join) -> str:
    """Which algorithm runs, and why."""
    choice = plan.in_order
    if plan.punctuated is not None:
        labels = [plan.inputs[port].label for port in plan.punctuated.promising]
        who = f"{' and '.join(labels)} {'promise' if len(labels) > 1 else 'promises'} values of what must be equal"
        if not labels:
            who = "no capture promises values (PUNCTUATE ON)"
        why = f"the query asks for it, and {who}" if plan.punctuated.asked else who
        return f"PWJoin: a row is kept until its window has passed, or the other input promises its values; {why}"
    if plan.oblivious is not None:
        return _window_oblivious(plan.oblivious)
    if choice is None:
        return f"OA-Join: a row meets the rows that came before it; {_why_plain(plan)}"
    why = "the query asks for it" if choice.asked else "ORDER BY asks for an order of time"
    if choice.release is Release.SYNC:
        return f"Sync-Filter: rows wait until all inputs have passed their time, then they meet; {why}"
    if choice.release is Release.FILTER:
        return f"Filter-Order: rows meet at once, results wait until all inputs have passed their time; {why}"
    rates = [port.rate for port in plan.inputs if port.rate is not None]
    load = f"{choice.load(plan.bands.sizes, rates):.2g} expected" if len(rates) == len(plan.inputs) else "measured"
    return (
        f"Sync-Filter while the load is below {choice.gain:g} ({load}, at {choice.cost_ns:g} ns a pair), Filter-Order "
        f"from there on; {why}"
    )


def _why_plain(plan: Join) -> str:
    if plan.plain:
        return "the query asks for it"
    if plan.kind is not JoinKind.INNER:
        return "other algorithms are for inner joins"
    values = " and no promises of values that must be equal" if len(plan.inputs) == 2 else ""
    return f"the query needs no order of time, and its inputs have windows{values}"


def _schedule(plan: Join) -> str | None:
    """The schedule that a hint asks for."""
    match plan.scheduling:
        case None:
            return None
        case Scheduling.ALONE:
            return "alone: this join shares nothing; the query asks for it"
        case schedule:
            return f"{schedule.value} if other queries share this join (`--beside` names them); the query asks for it"


def _window_oblivious(choice: Oblivious) -> str:
    why = "the query asks for it" if choice.asked else "no input has a window"
    if choice.memory is Memory.MODEL:
        until = "for as many rows as the data seem to need; a row dropped too early makes windows lossy"
    else:
        until = "until no later row can have its time"
    waits = ""
    if choice.buffer not in (None, Buffering.KEEP):
        assert choice.buffer is not None
        waits = f"; before, rows wait {_WAITING[choice.buffer]}"
    elif choice.bound is not None and choice.buffer is None:
        waits = f"; before, rows wait sorted or on disk if they need more than {_size(choice.bound)}"
    return f"window-oblivious join: a row is kept {until}{waits}; {why}"


_WAITING = {
    Buffering.DISK: "on disk if their input runs ahead",
    Buffering.SORT: "until they are in order of time",
    Buffering.HYBRID: "until they are in order of time, then on disk if their input runs ahead",
}


def _predicted(plan: Join, inputs: Known) -> Iterator[str]:
    """Rows that a window-oblivious join keeps by the model, if no input runs ahead of another."""
    choice = plan.oblivious
    if choice is None:
        return
    known = [one for one in inputs if one is not None]
    if len(known) < len(plan.inputs):
        yield "unknown without scrambling and rates: give `--scrambling` and `--rate` of each input"
        return
    for port, rows in zip(plan.inputs, buffers(known, strategy=choice.buffer or Buffering.KEEP), strict=True):
        yield f"{rows:,} rows of {port.label}"


def _members(plan: Join, columns: tuple[str | None, ...]) -> Iterator[str]:
    for port, column in zip(plan.inputs, columns, strict=True):
        if column is not None:
            yield port.named(column)


def _windows(plan: Join) -> Iterator[str]:
    if plan.windowless:
        times = " = ".join(port.named(port.attribute) for port in plan.inputs)
        yield f"none: {times}" if plan.inputs[0].size == 1 else f"none: {times}, to {span_text(plan.inputs[0].size)}"
        return
    if plan.tumbling:
        yield f"tumbling, {span_text(plan.inputs[0].size)}"
        return
    for j, other in enumerate(plan.inputs):
        for port in plan.inputs[:j]:
            mine, theirs = port.named(port.attribute), other.named(other.attribute)
            low, high = span_text(other.size), span_text(port.size)
            yield f"{mine} - {low} <= {theirs} < {mine} + {high}"


def _state(plan: Join) -> Iterator[str]:
    """How long a row of each input is kept."""
    for of, port in enumerate(plan.inputs):
        if plan.tumbling and plan.inputs[of].size == 1:
            until = "the others have passed its time"
        elif plan.tumbling:
            until = f"the others have passed the end of its {span_text(port.size)}"
        else:
            until = f"the others are {span_text(_kept_ns(plan, of) // 1000 * 1000)} past it"
        if plan.punctuated is not None:
            until += f", or {plan.inputs[1 - of].label} promises that its values do not come again"
        if plan.oblivious is not None and plan.oblivious.memory is Memory.MODEL:
            until = f"it is not among the last rows that the model predicts, at the latest until {until}"
        yield f"a row of {port.label} until {until}"
    if plan.in_order is not None and plan.in_order.release is not Release.SYNC:
        when = "" if plan.in_order.release is Release.FILTER else ", with Filter-Order"
        yield f"a result until all inputs have passed its time{when}"


def expected_rows(plan: Join, rates: Sequence[float]) -> float:
    """Rows that a join of windows keeps, if its inputs have these rates and arrive at about the same time."""
    return sum(rate * _kept_seconds(plan, of) for of, rate in enumerate(rates))


def _kept_seconds(plan: Join, of: int) -> float:
    """From a row's time to the time of the others' rows at which it is dropped. They promise whole units."""
    return (_kept_ns(plan, of) + plan.inputs[of].unit) / 1e9


def _kept_ns(plan: Join, of: int) -> int:
    """How far the other inputs' promises must pass a row before it is dropped; the most, in a tumbling join."""
    if plan.tumbling:
        return plan.inputs[of].size
    return max(plan.bands.reach(of, other)[1] for other in range(len(plan.inputs)) if other != of)


def _probes(plan: Join) -> Iterator[str]:
    """The order in which a new row meets the other inputs, and why."""
    for port, probe in zip(plan.inputs, plan.probes, strict=True):
        names = " then ".join(plan.inputs[n].label for n in probe.order)
        found = " + ".join(f"{number:.2g}" for number in probe.meets)
        why = f"{found} combinations of it expected"
        if probe.hinted:
            why += "; the query asks for this order"
        elif probe.most > 1.005 * sum(probe.meets):
            why += f"; up to {probe.most:.2g} in another order"
        yield f"a row of {port.label} meets {names} ({why})"


def _expects(plan: Join) -> Iterator[str]:
    for port in plan.inputs:
        if port.rate is not None:
            yield f"{port.label} {port.rate:,.6g} rows/s{', estimated from its inputs' if port.estimated else ''}"
    if plan.equal and not all(probe.hinted for probe in plan.probes):
        yield f"an equality without a given selectivity holds for {DEFAULT_SELECTIVITY:g} of pairs"


_SPARE = 1.06
"""Average memory of kept rows, relative to their content: up to an eighth is spare."""

_INDEX_WORDS = 1.5
"""Words for a row in an index: the next row of its chain and the head of a chain, half a word each, with room to
grow."""

_NODE_WORDS = 7.5
"""Words of overhead for a row in a join that uses promises about values, if each row has a value of its own: 3 for the
T-node and about 4 for the I-node, with room to grow."""


def _memory(plan: Join) -> Iterator[str]:
    """Expected memory of the kept rows, if the inputs arrive at about the same time."""
    total = 0.0
    for of, port in enumerate(plan.inputs):
        if port.rate is None:
            continue
        rows = port.rate * _kept_seconds(plan, of)
        words = (port.schema.words + (plan.kind is not JoinKind.INNER)) * _SPARE
        index = sum(_INDEX_WORDS + n for n in _key_words(plan, of))
        if plan.punctuated is not None:
            index = _NODE_WORDS + sum(port.schema.column(name).kind.words for name in plan.keys(of))
        size = rows * (words + index) * 8
        total += size
        about = "about" if plan.punctuated is None else "at most about"
        yield f"{about} {_size(size)} for the rows of {port.label} ({rows:,.0f} of them)"
    missing = dict.fromkeys(name for port in plan.inputs for name in port.needs)
    if missing and any(port.rate is not None or port.estimated for port in plan.inputs):
        yield f"the total depends on the rates of {', '.join(missing)}, which are unknown"
    elif not total:
        yield "unknown without rates: give `--rate` of each input"
    else:
        yield f"{_size(total)} in all buckets together; each second by which one input lags adds a second of rows"


def _key_words(plan: Join, of: int) -> Iterator[int]:
    """The words of keys in each index of an input's rows. Only keys with texts or floats are stored there, because
    their words are compared in another form than rows have."""
    ways = set()
    for first, probe in enumerate(plan.probes):
        if first != of:
            met = (first, *probe.order[: probe.order.index(of)])
            ways.add(tuple(column for column, _, _ in plan.tied(met, of)))
    for columns in ways:
        kinds = [plan.inputs[of].schema.column(column).kind for column in columns]
        yield sum(kind.words for kind in kinds) if Kind.FLOAT in kinds or Kind.STR in kinds else 0


def _size(count: float) -> str:
    power = min(int(log2(max(count, 1))) // 10, 4)
    return f"{count / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
