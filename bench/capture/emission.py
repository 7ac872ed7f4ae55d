"""When partials leave a table after the end of their window: rows a millisecond of packet time, by flush mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.common.frames import START_NS, Traffic, blocks_of, records_of
from bench.common.reports import Figure, write_csv
from lowlevel.config import Flush, FlushOrder, LowLevelConfig
from lowlevel.node import NodeOutput, SourceNodes
from lowmark.query.compile import compile_query
from lowmark.wire.records.partials import PANE

__all__ = ["Emission", "emission", "measure_emission", "modes"]

_SECOND_NS = 1_000_000_000
_MS_NS = 1_000_000
_PANES = 3
_SLOTS = 1 << 20
_SEED = 5


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """Of the windows that ended while packets came, on average."""

    rows: npt.NDArray[np.float64]  # by millisecond after the end
    burst: float  # the most rows in a millisecond
    before: float  # rows that had left by collisions before the end
    promised_ms: float  # after the end

    def out_by(self, share: float) -> int:
        """Milliseconds after the end by which this share of the rows is out."""
        return int(np.searchsorted(np.cumsum(self.rows), share * self.rows.sum() * (1 - 1e-12))) + 1


def modes(slots: int = _SLOTS) -> dict[str, LowLevelConfig]:
    return {
        "full": LowLevelConfig(slots=slots, flush=Flush.FULL),
        "slow": LowLevelConfig(slots=slots),
        "lazy": LowLevelConfig(slots=slots, flush=Flush.LAZY),
        "in order": LowLevelConfig(slots=slots, order=FlushOrder.PRESERVED, flush_every=1),
    }


def measure_emission(results: Path, *, groups: int, rate: int, pane_s: int) -> None:
    found: dict[tuple[str, str], Emission] = {}
    for traffic in (Traffic(groups), Traffic(groups, zipf=True)):
        for mode, config in modes().items():
            seen = found[traffic.name, mode] = emission(traffic, config, rate, pane_s)
            print(
                f"{traffic.name:18} {mode:9} {seen.rows.sum():8,.0f} rows after a window's end, half of them by "
                f"{seen.out_by(0.5):5} ms, 99% by {seen.out_by(0.99):5}, all by {seen.out_by(1.0):5}, promised at "
                f"{seen.promised_ms:6.0f}; at most {seen.burst:8,.0f} a ms; {seen.before:,.0f} rows before"
            )
    _report(results, found)


def emission(traffic: Traffic, config: LowLevelConfig, rate: int, pane_s: int) -> Emission:
    """The node of Q8-1 over panes of packets that come evenly; blocks of a millisecond."""
    sql = f"SELECT srcIP, destIP, count(*) [RANGE {pane_s} seconds] FROM Main GROUP BY srcIP, destIP"
    (node,) = compile_query(sql, streams={"Main": 1}, buckets=1).stage.nodes
    nodes = SourceNodes([node], stream="Main", config=config, seed=_SEED)
    nodes.start()
    column, pane_of = node.reduction.schema.offset(PANE), node.reduction.pane
    packets = rate * pane_s
    records = records_of(traffic, 2 * packets)
    left: dict[int, list[tuple[int, int]]] = {}  # of each pane: when, and how many rows
    promised: dict[int, int] = {}

    def note(outputs: Iterator[NodeOutput], now_ns: int) -> None:
        for output in outputs:
            panes = output.rows[:, column].astype(np.int64) - first
            for pane, rows in enumerate(np.bincount(panes, minlength=_PANES).tolist()):
                left.setdefault(first + pane, []).append((now_ns, rows))
            if output.progress is not None:
                promised.setdefault(output.progress.promised_ns, now_ns)

    first = pane_of.index(START_NS)
    first_ns = pane_of.start(first)
    ends_ns = [first_ns + number * pane_s * _SECOND_NS for number in range(1, _PANES + 1)]
    for number in range(_PANES):
        start_ns = first_ns + number * pane_s * _SECOND_NS
        ts = start_ns + np.arange(packets, dtype=np.int64) * (pane_s * _SECOND_NS) // packets
        # Not the packets of the pane before: else each group would come exactly a pane after it came last.
        skipped = number * packets // _PANES
        for block in blocks_of(records[skipped : skipped + packets], ts, max(1, rate // 1000)):
            note(nodes.take(block), block.low_after)
            # Else rows would wait for thousands of others, and leave together.
            note(nodes.heartbeat(0), block.low_after)
    # A window that the end of the packets would cut off is not counted.
    known = [end_ns for end_ns in ends_ns if any(bound >= end_ns for bound in promised)]
    return _averaged(left, promised, {pane_of.index(end_ns - 1): end_ns for end_ns in known})


def _averaged(
    left: Mapping[int, Sequence[tuple[int, int]]], promised: Mapping[int, int], ends_ns: Mapping[int, int]
) -> Emission:
    """Over the panes whose ends these are. RuntimeError where there are none."""
    if not ends_ns:
        raise RuntimeError("no window has ended and left the table: more packets or shorter windows are needed")
    length = max((now_ns - ends_ns[pane]) // _MS_NS for pane in ends_ns for now_ns, _ in left[pane]) + 1
    rows = np.zeros((len(ends_ns), max(1, length)))
    before = 0
    for place, (pane, end_ns) in enumerate(ends_ns.items()):
        for now_ns, count in left[pane]:
            if now_ns >= end_ns:
                rows[place, (now_ns - end_ns) // _MS_NS] += count
            else:
                before += count
    waits = [min(now for bound, now in promised.items() if bound >= end_ns) - end_ns for end_ns in ends_ns.values()]
    wait_ns = sum(waits) / len(waits)
    return Emission(rows.mean(0), rows.max(1).mean(), before / len(ends_ns), wait_ns / _MS_NS)


def _report(results: Path, found: Mapping[tuple[str, str], Emission]) -> None:
    rows: list[tuple[object, ...]] = []
    for (traffic, mode), seen in found.items():
        edges = np.unique(np.geomspace(1, len(seen.rows), 60).astype(int))
        for first, last in pairwise([0, *edges]):
            share = seen.rows[:last].sum() / seen.rows.sum()
            part = seen.rows[first:last]
            rows.append((traffic, mode, int(last), round(part.mean(), 2), round(part.max(), 1), round(share, 5)))
    header = ("packets", "flush", "until_ms", "rows_per_ms", "most_rows_in_a_ms", "share_out")
    write_csv(results, "flush", header, rows)
    styles = dict(zip(dict.fromkeys(traffic for traffic, _ in found), ("-", ":"), strict=True))
    colours = dict(zip(dict.fromkeys(mode for _, mode in found), ("C3", "C0", "C2", "C7"), strict=True))
    with Figure(results, "flush", "Share of a window's partials that are out after its end") as axes:
        for (traffic, mode), seen in found.items():
            at = np.arange(1, len(seen.rows) + 1)
            share = np.cumsum(seen.rows) / seen.rows.sum()
            axes.plot(at, share, styles[traffic], color=colours[mode], label=f"{mode}, {traffic}")
        axes.set_xscale("log")
        axes.set_xlabel("ms of packet time after the window's end")
        axes.legend(fontsize=7)
    with Figure(results, "flush-rows", "Partials that leave after a window's end") as axes:
        for traffic, mode in found:
            points = [(row[2], row[3]) for row in rows if row[:2] == (traffic, mode)]
            axes.plot(*zip(*points, strict=True), styles[traffic], color=colours[mode], label=f"{mode}, {traffic}")
        axes.set_xscale("log")
        axes.set_yscale("symlog")
        axes.set_xlabel("ms of packet time after the window's end")
        axes.set_ylabel("rows a ms")
        axes.legend(fontsize=7)
