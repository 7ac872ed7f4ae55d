"""`lowmark query -r` against what else answers the same question from a file: packets per CPU-second, start-up apart.

The cost of a packet is the slope between two files that differ in their number of packets alone, so neither start-up
nor the result rows count; both passes of `--disorder scan` do. All answers are compared with a tally of the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.common.processes import Usage, measured
from bench.common.reports import Figure, write_csv
from bench.peers.answers import Verdict, judge
from bench.peers.parts import parts_of
from bench.peers.programs import LOWMARK, PEERS, Contender
from bench.peers.tally import pcap_head, tally
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.jit.cache_folder import cache_root

__all__ = ["measure_peers"]

_TIMEOUT_S = 400.0
_DURATION_NS = 180_000_000_000
_GOAL, _GOAL_PEER = 20.0, "pmacctd"
_LEAST_S = 0.01  # smaller differences are none
_MIB = 1 << 20


@dataclass
class _Cost:
    """Of a contender: its runs over the smaller and the larger file, and over one of a single packet."""

    contender: Contender
    pairs: int
    sizes: tuple[int, int]
    runs: tuple[list[Usage], list[Usage]] = field(default_factory=lambda: ([], []))
    start_up: list[Usage] = field(default_factory=list)
    verdict: Verdict | None = None

    def least(self, of: int) -> Usage:
        return min(self.runs[of], key=lambda usage: usage.cpu_s)

    @property
    def per_cpu_s(self) -> float:
        return (self.sizes[1] - self.sizes[0]) / max(_LEAST_S, self.least(1).cpu_s - self.least(0).cpu_s)

    @property
    def start_up_s(self) -> float:
        return min(usage.cpu_s for usage in self.start_up)

    @property
    def peak_mib(self) -> float:
        return max(usage.peak_bytes for usage in self.runs[1]) / _MIB


def measure_peers(
    results: Path, *, few: int, many: int, most: int, pairs: Sequence[int], repeat: int, snaplen: int, keep: bool
) -> None:
    """Captures of `few`, `many` and `most` packets in three minutes. Peers get the first two, or a part of them;
    lowmark the first and the last, or start-up would hide the difference."""
    present = [peer for peer in PEERS if not _left_out(peer)]
    costs: list[_Cost] = []
    parts: dict[int, dict[str, float]] = {}
    with _captures(snaplen, keep) as captures:
        for count in pairs:
            at_pairs = [_Cost(LOWMARK, count, (few, most))]
            at_pairs += [_Cost(peer, count, (few // peer.part, many // peer.part)) for peer in present]
            # Contenders take turns, so that a disturbance from outside does not meet one of them alone.
            for repetition in range(repeat):
                for cost in at_pairs:
                    _measure(captures, cost, judged=repetition == 0)
            _tell(at_pairs)
            parts[count] = parts_of(captures.of(count, most))
            whole = sum(parts[count].values())
            told = ", ".join(f"{part} {ns:.1f} ({100 * ns / whole:.0f}%)" for part, ns in parts[count].items())
            print(f"where lowmark's time goes, ns a packet of {most:,}: {told}", flush=True)
            costs += at_pairs
            captures.drop()
    _report(results, costs, parts)


def _left_out(peer: Contender) -> bool:
    reason = peer.missing()
    if reason is not None:
        print(f"{peer.name}: left out, {reason}")
    return reason is not None


@dataclass
class _Captures:
    """Of the traffic writer, made when they are asked for."""

    folder: Path
    snaplen: int
    keep: bool
    _tallies: dict[tuple[Path, int], pa.Table] = field(default_factory=dict)

    def of(self, pairs: int, packets: int) -> Path:
        path = self.folder / f"{pairs}-{packets}-{self.snaplen}.pcap"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            spec = TrafficSpec(packets=packets, duration_ns=_DURATION_NS, groups=pairs, snaplen=self.snaplen)
            write_capture(unfinished, spec)
            unfinished.rename(path)
        return path

    def one(self, pairs: int, packets: int) -> Path:
        return pcap_head(self.of(pairs, packets), 1, self.folder / "one.pcap")

    def tally(self, capture: Path, late_s: int) -> pa.Table:
        if (capture, late_s) not in self._tallies:
            self._tallies[capture, late_s] = tally(capture, late_s)
        return self._tallies[capture, late_s]

    def drop(self) -> None:
        """Those that there are by now are not needed any more."""
        self._tallies.clear()
        if not self.keep:
            for path in self.folder.iterdir():
                path.unlink()


@contextmanager
def _captures(snaplen: int, keep: bool) -> Iterator[_Captures]:
    """In a folder of the cache that stays, or in one that goes."""
    root = cache_root() / "captures"
    root.mkdir(parents=True, exist_ok=True)
    if keep:
        yield _Captures(root, snaplen, keep)
        print(f"the captures are in {root}")
    else:
        with tempfile.TemporaryDirectory(dir=root) as name:
            yield _Captures(Path(name), snaplen, keep)


def _measure(captures: _Captures, cost: _Cost, *, judged: bool) -> None:
    contender = cost.contender
    cost.start_up.append(_run(captures, contender, captures.one(cost.pairs, cost.sizes[0]))[0])
    for of, packets in enumerate(cost.sizes):
        capture = captures.of(cost.pairs, packets)
        usage, answer = _run(captures, contender, capture, read=judged and of == 1)
        cost.runs[of].append(usage)
        if answer is not None:
            expected = captures.tally(capture, contender.late_s)
            cost.verdict = judge(answer, expected, contender.length, contender.whole)


def _run(captures: _Captures, contender: Contender, capture: Path, read: bool = False) -> tuple[Usage, pa.Table | None]:
    with tempfile.TemporaryDirectory(prefix="answer-", dir=captures.folder.parent) as name:
        target = Path(name)
        command = contender.command(capture, target)
        writes_itself = target / "out" in command
        usage = measured(command, timeout_s=_TIMEOUT_S, output=target / ("stdout" if writes_itself else "out"))
        return usage, contender.answer(target) if read else None


def _tell(costs: Sequence[_Cost]) -> None:
    ours = costs[0]
    print(
        f"{ours.pairs:,} pairs{'':12} M packets/CPU-s  lowmark is    CPU-s of packets      start-up  peak MiB  answer"
    )
    for cost in costs:
        print(
            f"  {cost.contender.name:20}{cost.per_cpu_s / 1e6:17.3f}{ours.per_cpu_s / cost.per_cpu_s:9.1f} x"
            f"{cost.least(0).cpu_s:10.2f} of {cost.sizes[0] / 1e6:4.2f} M,{cost.least(1).cpu_s:7.2f} of "
            f"{cost.sizes[1] / 1e6:5.2f} M{cost.start_up_s:7.2f}{cost.peak_mib:9.0f}  {cost.verdict}",
            flush=True,
        )
        if cost.contender.name == _GOAL_PEER:
            ratio = ours.per_cpu_s / cost.per_cpu_s
            print(f"{'':24}goal {_GOAL:.0f} times: {'reached' if ratio >= _GOAL else 'missed'}")


def _report(results: Path, costs: Sequence[_Cost], parts: dict[int, dict[str, float]]) -> None:
    ours = {cost.pairs: cost for cost in costs if cost.contender is LOWMARK}
    write_csv(
        results, "peers",
        ("contender", "pairs", "few", "many", "cpu_s_few", "cpu_s_many", "wall_s_few", "wall_s_many", "start_cpu_s",
         "peak_mib", "packets_per_cpu_s", "lowmark_ratio", "answer"),
        [
            (
                cost.contender.name, cost.pairs, *cost.sizes, cost.least(0).cpu_s, cost.least(1).cpu_s,
                cost.least(0).wall_s, cost.least(1).wall_s, cost.start_up_s, cost.peak_mib, cost.per_cpu_s,
                ours[cost.pairs].per_cpu_s / cost.per_cpu_s, str(cost.verdict),
            )
            for cost in costs
        ],
    )  # fmt: skip
    rows = [(pairs, part, ns) for pairs, of in parts.items() for part, ns in of.items()]
    write_csv(results, "peers-parts", ("pairs", "part", "ns_per_packet"), rows)
    names = list(dict.fromkeys(cost.contender.name for cost in reversed(costs)))
    with Figure(results, "peers", "Pairs of addresses each minute from a file, start-up apart") as axes:
        height = 0.8 / len(ours)
        for place, pairs in enumerate(ours):
            of = {cost.contender.name: cost.per_cpu_s / 1e6 for cost in costs if cost.pairs == pairs}
            at = [number + height * (len(ours) / 2 - place - 0.5) for number in range(len(names))]
            bars = axes.barh(at, [of[name] for name in names], height, label=f"{pairs:,} pairs")
            axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7)
        axes.set_yticks(range(len(names)), names)
        axes.set_xscale("log")
        axes.set_xlabel("million packets per CPU-second (log)")
        axes.margins(x=0.15)
        axes.legend()
    if lossy := [cost for cost in ours.values() if cost.verdict is None or not cost.verdict.exact]:
        raise RuntimeError(f"lowmark's own answer is wrong: {lossy[0].verdict}")
