"""`python -m bench.shared`: N queries that share a node, against N nodes.

Three sets of queries over pairs of addresses, which let their partials go every minute: `windows` count packets and
bytes over 1, 2, … N minutes; `aggregates` ask for something else each; `values` for what splits pairs by their ports.
The figures and plots go to bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.frames import MINUTE_NS, START_NS, Traffic, blocks_of, records_of
from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node, QueryPlan
from lowmark.query.plan.sharing import share
from lowmark.wire.frames import FrameBlock

__all__ = ["measure_shared"]

_SQL = "SELECT srcIP, destIP, {} [RANGE {} minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP, destIP"
_SETS = {
    "windows": ("count(*), sum(len)",) * 8,
    "aggregates": (
        "count(*)", "sum(len)", "max(len)", "avg(len)", "min(ttl)", "stddev(len)", "last(srcPort)", "bit_or(tcp_flags)",
    ),
    "values": (
        "count(distinct srcPort)", "median(srcPort)", "heavy_hitter(srcPort, 3)", "count(distinct srcPort), sum(len)",
    ),
}  # fmt: skip
_WAYS = ("one node", "a node each", "a kernel each")
_BLOCK = 32_768


@dataclass(frozen=True, slots=True)
class _Cost:
    nanoseconds: float  # of CPU, a packet
    rows: int  # that leave for Kafka
    words: int  # that these have


def measure_shared(
    results: Path, *, packets: int, groups: int, queries: Sequence[int], repeat: int, sets: Sequence[str] = tuple(_SETS)
) -> None:
    blocks = list(_blocks(packets, groups))
    found = {
        (name, count): _measured(_plans(name, count), blocks, repeat)
        for name in sets
        for count in queries
        if count <= len(_SETS[name])
    }
    write_csv(
        results, "shared", ("set", "queries", "way", "ns_a_packet", "rows_out", "bytes_out"),
        [
            (name, count, way, costs[way].nanoseconds, costs[way].rows, 8 * costs[way].words)
            for (name, count), costs in found.items()
            for way in _WAYS
        ],
    )  # fmt: skip
    for (name, count), costs in found.items():
        one, each, apart = (costs[way] for way in _WAYS)
        print(
            f"{name:10} {count:2} queries: one node {one.nanoseconds:.1f} ns a packet; a node each "
            f"{each.nanoseconds:.1f} ({each.nanoseconds / one.nanoseconds:.1f} times), a kernel each "
            f"{apart.nanoseconds:.1f} ({apart.nanoseconds / one.nanoseconds:.1f} times); rows to Kafka 1 to "
            f"{each.rows / one.rows:.1f}, bytes (before they are compressed) 1 to {each.words / one.words:.1f}"
        )
    for name in dict.fromkeys(name for name, _ in found):
        with Figure(results, f"shared_{name}", f"N queries over {groups:,} pairs of addresses: {name}") as axes:
            for way in _WAYS:
                points = [(count, costs[way].nanoseconds) for (of, count), costs in found.items() if of == name]
                axes.plot(*zip(*points, strict=True), "o-", label=way)
            axes.set_xlabel("queries")
            axes.set_ylabel("CPU nanoseconds a packet")
            axes.set_ylim(bottom=0)
            axes.legend()


def _plans(name: str, count: int) -> list[QueryPlan]:
    return [
        compile_query(_SQL.format(call, minutes), name=f"q{minutes}")
        for minutes, call in enumerate(_SETS[name][:count], 1)
    ]


def _measured(plans: Sequence[QueryPlan], blocks: Sequence[FrameBlock], repeat: int) -> dict[str, _Cost]:
    nodes = [replace(node, name=f"{plan.name}.{node.name}") for plan in plans for node in plan.stage.nodes]
    together = share(plans)[0].stage.nodes
    contenders = dict(
        zip(_WAYS, ([_started(together)], [_started(nodes)], [_started([node]) for node in nodes]), strict=True)
    )
    least: dict[str, _Cost] = {}
    for repetition in range(repeat + 1):
        shift = repetition * 2 * MINUTE_NS
        now = [replace(b, ts=b.ts + shift, low=b.low + shift, low_after=b.low_after + shift) for b in blocks]
        for way, runs in contenders.items():
            rows = words = 0
            began = time.thread_time_ns()
            for run in runs:
                for output in (output for block in now for output in run.take(block)):
                    rows, words = rows + len(output.rows), words + output.rows.size
            taken = (time.thread_time_ns() - began) / sum(map(len, blocks))
            # The first repetition warms up.
            if repetition and (way not in least or taken < least[way].nanoseconds):
                least[way] = _Cost(taken, rows, words)
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
