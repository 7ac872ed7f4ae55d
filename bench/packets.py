"""`lowmark query -r` against what else answers the same question from a file: packets per CPU-second, start-up apart.

The cost of a packet is the slope between two files that differ in their number of packets alone, so neither start-up
nor the result rows count; both passes of `--disorder scan` do. Answers are compared on a shorter part of the file.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import LOWMARK, PEERS, Answer, Contender
from bench.processes import Usage, measured
from bench.reports import Figure, write_csv
from lowmark.app.traffic import TrafficSpec, write_capture

__all__ = ["measure_packets"]

_TIMEOUT_S = 300.0
_DURATION_NS = 180_000_000_000
_START_NS = 1_714_564_800_000_000_000
_GOAL = 20.0
_LEAST_S = 0.01  # smaller differences are none
_ROW = 24 * " "


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Packets of the two files that a contender is given."""

    few: int
    many: int


@dataclass(frozen=True, slots=True)
class _Cost:
    contender: str
    sizes: _Sizes
    few: Usage  # the least of the runs, in CPU seconds
    many: Usage

    @property
    def per_cpu_s(self) -> float:
        return (self.sizes.many - self.sizes.few) / max(_LEAST_S, self.many.cpu_s - self.few.cpu_s)

    @property
    def per_s(self) -> float:
        return (self.sizes.many - self.sizes.few) / max(_LEAST_S, self.many.wall_s - self.few.wall_s)


def measure_packets(results: Path, *, few: int, many: int, most: int, pairs: int, repeat: int) -> None:
    """Captures of `few`, `many` and `most` packets of `pairs` pairs in three minutes. Peers get the first two, slow
    ones a tenth and a fifth of the first; lowmark the first and the last, or start-up would hide the difference."""
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name:
        folder = Path(name)
        slow = _Sizes(few // 10, few // 5)
        captures = {
            count: _write(folder / f"{count}.pcap", count, pairs) for count in (few, many, most, slow.few, slow.many)
        }
        contenders = [LOWMARK, *(peer for peer in PEERS if not _left_out(peer))]
        _compare(folder, slow.many, pairs, contenders)
        one = _head(captures[few], folder)
        start_up = min((_run(folder, LOWMARK, one, "len")[0] for _ in range(3)), key=lambda usage: usage.wall_s)
        print(f"{LOWMARK.name}: a capture of one packet takes {start_up.wall_s:.2f} s ({start_up.cpu_s:.2f} CPU-s)")
        sizes = {peer.name: slow if peer.slow else _Sizes(few, many) for peer in contenders[1:]}
        costs = _costs(folder, captures, contenders, sizes | {LOWMARK.name: _Sizes(few, most)}, repeat)
    _report(results, costs, start_up, pairs)


def _left_out(peer: Contender) -> bool:
    program = peer.missing()
    if program is not None:
        print(f"{peer.name}: left out, {program} is not installed")
    return program is not None


def _write(path: Path, packets: int, pairs: int, earlier_s: int = 0) -> Path:
    start_ns = _START_NS - earlier_s * 1_000_000_000
    write_capture(path, TrafficSpec(packets=packets, duration_ns=_DURATION_NS, groups=pairs, start_ns=start_ns))
    return path


def _head(capture: Path, folder: Path) -> Path:
    """A capture of its first packet."""
    with capture.open("rb") as file:
        data = file.read(24 + 16)
        data += file.read(struct.unpack_from("<I", data, 24 + 8)[0])
    path = folder / "one.pcap"
    path.write_bytes(data)
    return path


def _run(folder: Path, contender: Contender, capture: Path, length: str) -> tuple[Usage, Answer]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        target = Path(name)
        command = contender.command(capture, target, length)
        writes_itself = target / "out" in command
        usage = measured(command, timeout_s=_TIMEOUT_S, output=target / ("stdout" if writes_itself else "out"))
        return usage, contender.answer(target)


def _packets(answer: Answer) -> int:
    return sum(packets for packets, _ in answer.values())


def _compare(folder: Path, packets: int, pairs: int, contenders: Sequence[Contender]) -> None:
    """RuntimeError where two answers differ."""
    capture = _write(folder / "compared.pcap", packets, pairs)
    for contender in contenders[1:]:
        # The same packets, put so many seconds earlier, fall into our minutes as these do into the contender's.
        ours = _write(folder / "ours.pcap", packets, pairs, contender.late_s)
        _, expected = _run(folder, LOWMARK, ours, contender.length)
        _, found = _run(folder, contender, capture, contender.length)
        if found != expected:
            differing = {key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
            example = min(differing)
            raise RuntimeError(
                f"{contender.name} and lowmark differ in {len(differing)} of {len(expected)} rows, for example "
                f"{example}: {found.get(example)} and {expected.get(example)}"
            )
        print(f"{contender.name}: the same {len(expected)} rows as lowmark")


def _costs(
    folder: Path,
    captures: Mapping[int, Path],
    contenders: Sequence[Contender],
    sizes: Mapping[str, _Sizes],
    repeat: int,
) -> list[_Cost]:
    """Contenders take turns, so that a disturbance from outside does not meet one of them alone."""
    runs: dict[tuple[str, int], list[Usage]] = {}
    for _ in range(repeat):
        for contender in contenders:
            for packets in (sizes[contender.name].few, sizes[contender.name].many):
                usage, answer = _run(folder, contender, captures[packets], contender.length)
                if (lost := packets - _packets(answer)) != 0:
                    print(f"{contender.name}: lost {lost} of {packets} packets in this run")
                runs.setdefault((contender.name, packets), []).append(usage)

    def least(name: str, packets: int) -> Usage:
        return min(runs[name, packets], key=lambda usage: usage.cpu_s)

    return [
        _Cost(name, sizes[name], least(name, sizes[name].few), least(name, sizes[name].many))
        for name in (contender.name for contender in contenders)
    ]


def _report(results: Path, costs: Sequence[_Cost], start_up: Usage, pairs: int) -> None:
    ours = costs[0]
    print(f"{_ROW}   M packets/CPU-s   M packets/s   CPU-s at each size   lowmark is")
    rows: list[tuple[object, ...]] = []
    for cost in costs:
        ratio = ours.per_cpu_s / cost.per_cpu_s
        print(
            f"{cost.contender:24}{cost.per_cpu_s / 1e6:18.3f}{cost.per_s / 1e6:14.3f}"
            f"{cost.few.cpu_s:14.2f}{cost.many.cpu_s:7.2f}{ratio:11.1f} times"
        )
        rows.append(
            (
                cost.contender, pairs, cost.sizes.few, cost.sizes.many, cost.few.cpu_s, cost.many.cpu_s,
                cost.few.wall_s, cost.many.wall_s, cost.per_cpu_s, ratio,
            )
        )  # fmt: skip
        if cost.contender == "pmacctd":
            print(f"{_ROW}   goal against pmacctd: {_GOAL:.0f} times: {'reached' if ratio >= _GOAL else 'missed'}")
    rows.append(("start-up", pairs, 1, 1, start_up.cpu_s, start_up.cpu_s, start_up.wall_s, start_up.wall_s, "", ""))
    header = ("contender", "pairs", "few", "many", "cpu_s_few", "cpu_s_many", "wall_s_few", "wall_s_many",
              "packets_per_cpu_s", "lowmark_ratio")  # fmt: skip
    write_csv(results, "packets", header, rows)
    with Figure(results, "packets", f"Pairs each minute from a file, {pairs} pairs: start-up apart") as axes:
        names = [cost.contender for cost in reversed(costs)]
        bars = axes.barh(names, [cost.per_cpu_s / 1e6 for cost in reversed(costs)])
        axes.bar_label(bars, fmt="%.2f", padding=3)
        axes.set_xscale("log")
        axes.set_xlabel("million packets per CPU-second (log)")
        axes.margins(x=0.15)
