"""Figs. 8-9 and 8-10: the memory of a tumbling join over unions, in order of arrival (OOP: the join holds what waits)
and in order of time (IOP: a merge before each input holds it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.baselines.merging import Merge
from bench.common.join_runs import NS, Flows, HeldState
from bench.common.reports import Figure, spread, write_csv
from bench.common.row_count import RowCount
from highlevel.join import JoinOperator
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["measure_late", "measure_skew"]

_FLOW = "M1.srcIP = {0}.destIP AND M1.destIP = {0}.srcIP AND M1.srcPort = {0}.destPort AND M1.destPort = {0}.srcPort"
_Q8_3 = (
    "SELECT M1.srcIP, M1.destIP, M1.ts FROM A UNION B AS M1, C UNION D AS M2 [RANGE TUMBLING {n} seconds, WA ts] WHERE "
)
_Q8_4 = "SELECT M1.srcIP, M1.destIP, M1.ts FROM M1, M2 UNION C AS M3 [RANGE TUMBLING {n} seconds, WA ts] WHERE "


@dataclass(frozen=True, slots=True)
class _Source:
    """Of the input `port`, its number there; `lag` seconds behind the others."""

    name: str
    port: int
    number: int
    rate: int
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    skew: int
    iop: int  # bytes at the most
    oop: int

    @property
    def ratio(self) -> float:
        return self.oop / self.iop


def measure_skew(
    results: Path, *, skews: Sequence[int], rate: int, flows: int, window: int, seconds: int
) -> list[Memory]:  # fmt: skip
    """Q8-3: B lags behind A, and D behind C. `seconds` of the stream come beyond the skew."""
    plan = _join_of(_Q8_3.format(n=window) + _FLOW.format("M2"))
    found = []
    for skew in skews:
        sources = [
            _Source(name, port, number, rate, skew * number)
            for name, port, number in (("A", 0, 0), ("B", 0, 1), ("C", 1, 0), ("D", 1, 1))
        ]
        found.append(_measured(plan, sources, flows, seconds + skew, skew))
    _report(results, "fig_8_9", "Q8-3", "skew of B behind A and of D behind C, seconds", found)
    return found


def measure_late(
    results: Path, *, delays: Sequence[int], rate: int, flows: int, window: int, seconds: int
) -> list[Memory]:  # fmt: skip
    """Q8-4: C, of which hardly anything comes, lags behind M1 and M2."""
    plan = _join_of(_Q8_4.format(n=window) + _FLOW.format("M3"))
    found = []
    for delay in delays:
        sources = [_Source("M1", 0, 0, rate), _Source("M2", 1, 0, rate), _Source("C", 1, 1, 1, delay)]
        found.append(_measured(plan, sources, flows, seconds, delay))
    _report(results, "fig_8_10", "Q8-4", "delay of C, seconds", found)
    return found


def _join_of(sql: str) -> Join:
    plan = compile_query(sql, buckets=1).steps[0].plan
    if not isinstance(plan, Join):
        raise TypeError(f"{sql} begins with {plan}")
    return plan


def _measured(plan: Join, sources: Sequence[_Source], flows: int, seconds: int, skew: int) -> Memory:
    iop, in_order = _run(plan, sources, flows, seconds, merged=True)
    oop, as_they_come = _run(plan, sources, flows, seconds, merged=False)
    if in_order != as_they_come:
        raise RuntimeError(f"skew {skew} s: {in_order} pairs in order, {as_they_come} as they come")
    memory = Memory(skew, iop, oop)
    print(
        f"skew {skew:3} s: OOP {oop / 2**20:6.1f} MiB, IOP {iop / 2**20:6.1f} MiB: {memory.ratio:.2f} times; "
        f"{in_order:,} pairs",
        flush=True,
    )
    return memory


def _run(plan: Join, sources: Sequence[_Source], flows: int, seconds: int, *, merged: bool) -> tuple[int, int]:
    """The most memory that is held, and the pairs."""
    operator, state, out = JoinOperator(plan), HeldState(), RowCount()
    ports = range(len(plan.inputs))
    ends = [[of.lag for of in sources if of.port == port] for port in ports]
    merges = [
        Merge(len(ends[port]), plan.inputs[port].schema.offset(plan.inputs[port].attribute)) for port in ports
    ]  # fmt: skip
    bounds = dict.fromkeys(sources, 0)
    stream, most = Flows(flows), 0
    for now in range(seconds + max(source.lag for source in sources) + 1):
        for source in sources:
            second = now - source.lag
            if second < 0:
                continue
            over = second >= seconds
            schema = plan.inputs[source.port].schema
            rows = stream.second(source.name, second, 0 if over else source.rate, schema, back=source.port == 1)
            bounds[source] = FOREVER if over else second + 1
            bound = min(value for of, value in bounds.items() if of.port == source.port)
            if merged:
                until = FOREVER if over else (second + 1) * NS
                rows = merges[source.port].take(source.number, rows, until)
            if len(rows):
                operator.on_batch(source.port, rows, state, out)
            operator.on_promise(source.port, Promise((Bound(PANE, bound),), bound == FOREVER), state, out)
        most = max(most, state.held + sum(merge.held for merge in merges))
    return most, out.count


def _report(results: Path, name: str, query: str, label: str, found: Sequence[Memory]) -> None:
    rows = [(memory.skew, memory.iop, memory.oop, memory.ratio) for memory in found]
    write_csv(results, name, ("skew_s", "iop_bytes", "oop_bytes", "oop_to_iop"), rows)
    number = name.removeprefix("fig_").replace("_", "-")
    lines: Mapping[str, Callable[[Memory], int]] = {"IOP": lambda m: m.iop, "OOP": lambda m: m.oop}
    mib = {way: spread(value(memory) / 2**20 for memory in found) for way, value in lines.items()}
    ours = (
        f"OOP takes {mib['OOP']} MiB and IOP {mib['IOP']}; OOP {found[0].ratio:.2f} times IOP's at {found[0].skew} s, "
        f"{found[-1].ratio:.2f} at {found[-1].skew}"
    )
    title = f"{query}: the most memory that is held (after fig. {number})"
    with Figure(results, name, title, ours) as axes:
        for way, value in lines.items():
            axes.plot([memory.skew for memory in found], [value(memory) / 2**20 for memory in found], "o-", label=way)
        axes.set_xlabel(label)
        axes.set_ylabel("MiB")
        axes.set_ylim(bottom=0)
        axes.legend()
