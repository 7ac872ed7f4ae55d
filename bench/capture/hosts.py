"""One query over many capture hosts: what a host more costs, and whether the answer is that of a single host.

Hosts are captures of one stream whose clocks are ahead or behind; `lowmark query` reads them side by side. Together
they always hold equally many packets. The single host of the comparison has seen all of these packets itself.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.common.processes import Usage, measured
from bench.common.reports import Figure, write_csv
from bench.common.settings import PAIRS
from lowmark.app.traffic import TrafficSpec, write_capture

__all__ = ["measure_hosts"]

_DURATION_NS = 180_000_000_000
_START_NS = 1_714_564_800_000_000_000
_SECOND_NS = 1_000_000_000
_FILE_HEADER = 24
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Cost:
    hosts: int
    packets: int
    start_up: Usage  # of captures of a packet each
    usage: Usage  # the least of the runs, in CPU seconds
    rows: int
    exact: bool

    @property
    def cpu_s(self) -> float:
        """Without the start-up."""
        return max(1e-3, self.usage.cpu_s - self.start_up.cpu_s)

    @property
    def per_cpu_s(self) -> float:
        return self.packets / self.cpu_s


def measure_hosts(results: Path, *, hosts: Sequence[int], packets: int, pairs: int, skew_s: float, repeat: int) -> None:
    """Clocks are spread evenly from `skew_s` behind to as much ahead."""
    costs = []
    for count in hosts:
        with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name:
            folder = Path(name)
            captures = _captures(folder, "host", packets // count, pairs, count, skew_s)
            few = _captures(folder, "one", 1, 1, count, skew_s)
            runs = [_run(folder, captures, pairs) for _ in range(repeat)]
            start_up = min((_run(folder, few, pairs)[0] for _ in range(repeat)), key=lambda usage: usage.cpu_s)
            _, expected = _run(folder, [_together(folder / "all.pcap", captures)], pairs)
            exact = all(rows == expected for _, rows in runs)
            usage = min((usage for usage, _ in runs), key=lambda usage: usage.cpu_s)
        costs.append(cost := _Cost(count, packets // count * count, start_up, usage, len(expected), exact))
        print(
            f"{count:3} hosts: {cost.per_cpu_s / 1e6:6.2f} M packets/CPU-s, {cost.cpu_s:.2f} CPU-s and "
            f"{start_up.cpu_s:.2f} to start, {usage.peak_bytes / (1 << 20):,.0f} MiB at most; {len(expected)} rows, "
            f"{'those' if exact else 'NOT those'} of a single host",
            flush=True,
        )
    _report(results, costs, packets, pairs, skew_s)
    if not all(cost.exact for cost in costs):
        raise RuntimeError("the union of the hosts has another answer than a single host")


def _captures(folder: Path, name: str, packets: int, pairs: int, count: int, skew_s: float) -> list[Path]:
    paths = []
    for number in range(count):
        skew_ns = int((2 * number / max(1, count - 1) - 1) * skew_s * _SECOND_NS)
        paths.append(folder / f"{name}{number}.pcap")
        # Without IPv6 all seeds have the same pairs, and other packets of them.
        spec = TrafficSpec(
            packets=packets, duration_ns=_DURATION_NS, start_ns=_START_NS + skew_ns, groups=pairs, ipv6=0, seed=number
        )
        write_capture(paths[-1], spec)
    return paths


def _together(path: Path, captures: Sequence[Path]) -> Path:
    """All packets in one capture, a host's after those of the one before: a scan puts up with any order."""
    with path.open("wb") as target:
        for number, capture in enumerate(captures):
            with capture.open("rb") as source:
                source.seek(_FILE_HEADER if number else 0)
                shutil.copyfileobj(source, target)
    return path


def _run(folder: Path, captures: Sequence[Path], pairs: int) -> tuple[Usage, list[str]]:
    """The rows in an order of their own. A host's table has twice the room for the pairs, and no more: all are in one
    process here, and the system gives it each page of a table with zeros in it, which takes longer than the packets."""
    table = 1 << (2 * pairs - 1).bit_length()
    out = folder / "rows.jsonl"
    read = [argument for capture in captures for argument in ("-r", f"Main={capture}")]
    sql = PAIRS.format(window="1 minute")
    command = [sys.executable, "-m", "lowmark", "query", "-q", *read, "--table", str(table), "--format", "jsonl"]
    usage = measured([*command, "-o", out, sql], timeout_s=_TIMEOUT_S)
    return usage, sorted(out.read_text().splitlines())


def _report(results: Path, costs: Sequence[_Cost], packets: int, pairs: int, skew_s: float) -> None:
    write_csv(
        results, "sources",
        ("hosts", "packets", "pairs", "skew_s", "cpu_s", "wall_s", "start_cpu_s", "peak_mib", "packets_per_cpu_s",
         "of_one_host", "rows", "exact"),
        [
            (
                cost.hosts, cost.packets, pairs, skew_s, cost.usage.cpu_s, cost.usage.wall_s, cost.start_up.cpu_s,
                cost.usage.peak_bytes / (1 << 20), cost.per_cpu_s, cost.cpu_s / costs[0].cpu_s, cost.rows,
                "yes" if cost.exact else "no",
            )
            for cost in costs
        ],
    )  # fmt: skip
    with Figure(
        results, "sources", f"One query over many hosts: {packets:,} packets together, {pairs:,} pairs"
    ) as axes:
        axes.plot([cost.hosts for cost in costs], [cost.per_cpu_s / 1e6 for cost in costs], "o-")
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"hosts, of clocks up to {skew_s:g} s ahead or behind")
        axes.set_ylabel("million packets per CPU-second")
