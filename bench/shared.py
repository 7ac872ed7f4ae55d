"""`python -m bench.shared`: N queries that share a node, against N nodes.

They count packets and bytes of each pair of addresses over 1, 2, … N minutes, every minute. The figures and a plot go
to bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.frames import MINUTE_NS, START_NS, Traffic, blocks_of, records_of
from bench.reports import RESULTS, Figure, describe_machine, write_csv
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan import Node, QueryPlan
from lowmark.wire.frames import FrameBlock

__all__ = ["measure_shared"]

_SQL = "SELECT srcIP, destIP, count(*), sum(len) [RANGE {} minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP, destIP"
_WAYS = ("one node", "a node each", "a kernel each")
_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class _Cost:
    nanoseconds: float  # of CPU, a packet
    rows: int  # that leave for Kafka


def measure_shared(results: Path, *, packets: int, groups: int, queries: Sequence[int], repeat: int) -> None:
    blocks = list(_blocks(packets, groups))
    found = {count: _measured(count, blocks, repeat) for count in queries}
    write_csv(
        results, "shared", ("queries", "way", "ns_a_packet", "rows_out"),
        [(count, way, costs[way].nanoseconds, costs[way].rows) for count, costs in found.items() for way in _WAYS],
    )  # fmt: skip
    for count, costs in found.items():
        one, each, apart = (costs[way] for way in _WAYS)
        print(
            f"{count:2} queries: one node {one.nanoseconds:.1f} ns a packet; a node each {each.nanoseconds:.1f} "
            f"({each.nanoseconds / one.nanoseconds:.1f} times), a kernel each {apart.nanoseconds:.1f} "
            f"({apart.nanoseconds / one.nanoseconds:.1f} times); rows to Kafka 1 to {each.rows / one.rows:.1f}"
        )
    with Figure(results, "shared", f"N queries over {groups:,} pairs of addresses") as axes:
        for way in _WAYS:
            axes.plot(list(found), [costs[way].nanoseconds for costs in found.values()], "o-", label=way)
        axes.set_xlabel("queries")
        axes.set_ylabel("CPU nanoseconds a packet")
        axes.set_ylim(bottom=0)
        axes.legend()


def _plans(count: int) -> list[QueryPlan]:
    plans = [compile_query(_SQL.format(minutes), name=f"q{minutes}") for minutes in range(1, count + 1)]
    if len({plan.stage.fingerprint for plan in plans}) > 1:
        raise RuntimeError("queries that were to share a stage have several")
    return plans


def _measured(count: int, blocks: Sequence[FrameBlock], repeat: int) -> dict[str, _Cost]:
    plans = _plans(count)
    nodes = [replace(node, name=f"{plan.name}.{node.name}") for plan in plans for node in plan.stage.nodes]
    contenders = dict(
        zip(_WAYS, ([_started(nodes[:1])], [_started(nodes)], [_started([node]) for node in nodes]), strict=True)
    )
    least: dict[str, _Cost] = {}
    for repetition in range(repeat + 1):
        shift = repetition * 2 * MINUTE_NS
        now = [replace(b, ts=b.ts + shift, low=b.low + shift, low_after=b.low_after + shift) for b in blocks]
        for way, runs in contenders.items():
            rows = 0
            began = time.thread_time_ns()
            for run in runs:
                rows += sum(len(output.rows) for block in now for output in run.take(block))
            taken = (time.thread_time_ns() - began) / sum(map(len, blocks))
            # The first repetition warms up.
            if repetition and (way not in least or taken < least[way].nanoseconds):
                least[way] = _Cost(taken, rows)
    return least


def _started(nodes: Sequence[Node]) -> SourceNodes:
    made = SourceNodes(nodes, stream="Main", config=LowLevelConfig())
    made.start()
    return made


def _blocks(packets: int, groups: int) -> Iterator[FrameBlock]:
    """A minute and a half of packets, in order."""
    times = START_NS + np.arange(packets, dtype=np.int64) * (3 * MINUTE_NS // 2 // packets)
    yield from blocks_of(records_of(Traffic(groups, False, 4), packets), times, _BLOCK)


def _main(
    packets: Annotated[int, typer.Option(help="Packets of a repetition.")] = 1_000_000,
    groups: Annotated[int, typer.Option(help="Pairs of addresses.")] = 66_000,
    queries: Annotated[list[int] | None, typer.Option(help="Numbers of queries (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; the least counts.")] = 3,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_shared(results, packets=packets, groups=groups, queries=queries or [1, 2, 4, 8], repeat=repeat)


if __name__ == "__main__":
    typer.run(_main)
