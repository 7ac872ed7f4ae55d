"""`python -m bench.closings`: what PUNCTUATE ON costs a packet on the capture host, by how long connections are.

A count and a sum by connection, with the clause against without it, over the same TCP packets: so many connections are
open at a time, and each closes by a FIN from both ends after so many packets; `none closes` has no FIN. Repetitions are
interleaved and the least CPU time of each counts. The figures and a plot go to bench/results. A query without the
clause has the same kernel as ever: what watches for FIN is a part of the kernel only where somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.frames import FRAME, MINUTE_NS, START_NS, STRIDE, blocks_of
from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.kernel import generated, nodes_of, timed
from lowlevel.config import LowLevelConfig
from lowmark.wire.frames import FrameBlock

SQL = "SELECT conn, count(*), sum(len) [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM Main GROUP BY conn"
_BLOCK = 32_768
_FIN, _ACK = 1, 16


def connections(
    packets: int, opened: int, length: int, closing: bool, block: int = _BLOCK
) -> list[FrameBlock]:  # fmt: skip
    """A minute and a half of TCP packets over IPv4, in order: connections of `length` packets, in both directions in
    turn, `opened` of them at a time."""
    places = np.arange(packets)
    turn, number = places // opened % length, places // (opened * length) * opened + places % opened
    scattered = (number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8").view(np.uint8).reshape(-1, 8)
    records = np.zeros((packets, STRIDE), np.uint8)
    made, back = records[:, STRIDE - FRAME :], turn % 2 == 1
    made[:, 12:14], made[:, 14], made[:, 16:18], made[:, 22:24] = (8, 0), 0x45, (0, 82), (64, 6)
    ends = scattered[:, :4], scattered[:, 4:]
    ports = scattered[:, 2:4] | 0x80, np.full((packets, 2), (1, 187), np.uint8)
    for at, of in ((26, ends), (34, ports)):
        size = of[0].shape[1]
        made[:, at : at + size] = np.where(back[:, None], of[1], of[0])
        made[:, at + size : at + 2 * size] = np.where(back[:, None], of[0], of[1])
    made[:, 46], made[:, 47] = 5 << 4, _ACK
    if closing:
        made[turn >= length - 2, 47] = _ACK | _FIN
    times = START_NS + np.arange(packets, dtype=np.int64) * (3 * MINUTE_NS // 2 // packets)
    return list(blocks_of(records, times, block))


def measure_closings(results: Path, *, packets: int, opened: int, lengths: Sequence[int], repeat: int) -> None:
    config = LowLevelConfig(slots=1 << 20)
    traffic = {f"{length} packets": connections(packets, opened, length, True) for length in lengths}
    traffic["none closes"] = connections(packets, opened, max(lengths), False)
    takers = {}
    for name, blocks in traffic.items():
        for clause in ("", " PUNCTUATE ON conn"):
            takers[name + clause] = (generated(nodes_of([SQL + clause]), config), blocks)
    least = timed(takers, repeat)
    rows = []
    for name in traffic:
        plain, punctuated = least[name], least[f"{name} PUNCTUATE ON conn"]
        print(
            f"{name:>16}: {plain:6.1f} ns a packet, with the clause {punctuated:6.1f}: {punctuated / plain:.2f} times"
        )
        rows.append((name, plain, punctuated, punctuated / plain))
    write_csv(results, "closings", ("connections", "ns_a_packet", "ns_with_clause", "ratio"), rows)
    with Figure(results, "closings", "What PUNCTUATE ON costs a packet") as axes:
        bars = axes.bar(range(len(rows)), [ratio for *_, ratio in rows])
        axes.bar_label(bars, fmt="%.2f")
        axes.axhline(1, color="black", linestyle="--")
        axes.set_xticks(range(len(rows)), [name for name, *_ in rows])
        axes.set_ylabel("time / time without the clause")


def _main(
    packets: Annotated[int, typer.Option(help="Packets of a repetition.")] = 500_000,
    opened: Annotated[int, typer.Option(help="Connections that are open at a time.")] = 5_000,
    lengths: Annotated[list[int] | None, typer.Option(help="Packets of a connection (repeatable).")] = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; the least counts.")] = 5,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_closings(results, packets=packets, opened=opened, lengths=lengths or [4, 20, 100], repeat=repeat)


if __name__ == "__main__":
    typer.run(_main)
