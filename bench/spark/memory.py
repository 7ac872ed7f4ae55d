"""Resident memory over many windows: of a capture process, of the job's JVM and of its Python workers."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.common.processes import Sample, Sampler, child, measured
from bench.common.reports import Figure, write_csv
from bench.common.settings import PAIRS, Installation
from bench.common.watching import Watcher
from lowmark.app.kafka.broker import Broker
from lowmark.app.traffic import TrafficSpec, write_capture

__all__ = ["measure_memory"]

_RATE = 2_000  # packets a second of packet time
_GROUPS = 5_000
_EARLY = 50
_AROUND = 5  # windows on each side that a figure is the median of
_START_S = 120.0
_TIMEOUT_S = 400.0
_MIB = 1 << 20
_ONE_GOAL_MIB, _FURTHER_GOAL_MIB = 400, 100


@dataclass(frozen=True, slots=True)
class _Series:
    """Bytes of its own (without pages of files) by the number of windows complete at that time."""

    name: str
    points: tuple[tuple[int, int], ...]

    def around(self, window: int) -> float:
        """In MiB."""
        near = [size for at, size in self.points if abs(at - window) <= _AROUND]
        return statistics.median(near) / _MIB if near else float("nan")


def measure_memory(results: Path, *, windows: int, pace: float) -> None:
    """The capture is replayed at `pace` while the job runs. Tables have 2^20 slots, as they have by default."""
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name, Broker(Path(name) / "broker") as broker:
        folder = Path(name)
        seconds = windows + 2 * _AROUND
        spec = TrafficSpec(packets=_RATE * seconds, duration_ns=seconds * 1_000_000_000, groups=_GROUPS)
        write_capture(folder / "main.pcap", spec)
        series = _over_windows(folder, broker.bootstrap, spec, windows, pace)
        peaks = {count: _peak(folder, broker.bootstrap, count) for count in (1, 2)}
    _report(results, series, windows, peaks)


def _installation(folder: Path, bootstrap: str, capture: Path, sources: int) -> Installation:
    taps = {f"tap{number}": capture for number in range(sources)}
    installation = Installation(folder, bootstrap, PAIRS.format(window="1 second"), {"Main": taps})
    installation.create_topics()
    return installation


def _over_windows(folder: Path, bootstrap: str, spec: TrafficSpec, windows: int, pace: float) -> list[_Series]:
    installation = _installation(folder / "run", bootstrap, folder / "main.pcap", 1)
    seen: list[tuple[float, int]] = []
    with (
        child(folder / "job.log", "-m", "lowmark", "run", "-c", installation.path) as job,
        Sampler(job.process.pid) as of_job,
        Watcher(installation) as watcher,
    ):
        job.await_saying("running", _START_S)
        with (
            child(folder / "capture.log", *_capture(installation), "--pace", str(pace)) as capture,
            Sampler(capture.process.pid) as of_capture,
        ):
            deadline = time.monotonic() + _TIMEOUT_S
            complete = 0
            while complete < windows:
                job.check()
                capture.check()
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"only {complete} windows in {_TIMEOUT_S:.0f} s:\n{job.said()}\n{capture.said()}"
                    )
                for _ in watcher.poll():
                    complete = max(complete, (watcher.complete_to - spec.start_ns) // 1_000_000_000)
                    seen.append((time.time(), complete))
    return [
        _series("capture", of_capture.samples, "main", seen),
        _series("job: JVM", of_job.samples, "java", seen),
        _series("job: driver", of_job.samples, "main", seen),
        _series("job: workers", of_job.samples, "python", seen),
    ]


def _capture(installation: Installation) -> tuple[str | Path, ...]:
    return "-m", "lowmark", "capture", "-c", installation.path


def _series(name: str, samples: Sequence[Sample], part: str, seen: Sequence[tuple[float, int]]) -> _Series:
    points, windows, place = [], 0, 0
    for sample in samples:
        while place < len(seen) and seen[place][0] <= sample.at:
            windows = max(windows, seen[place][1])
            place += 1
        if windows and sample.own_bytes.get(part):
            points.append((windows, sample.own_bytes[part]))
    return _Series(name, tuple(points))


def _peak(folder: Path, bootstrap: str, sources: int) -> float:
    """The most that a capture process of so many sources ever had resident, pages of the file included; in MiB."""
    installation = _installation(folder / f"sources{sources}", bootstrap, folder / "main.pcap", sources)
    return measured([sys.executable, *_capture(installation)], timeout_s=_TIMEOUT_S).peak_bytes / _MIB


def _report(results: Path, series: Sequence[_Series], windows: int, peaks: Mapping[int, float]) -> None:
    rows: list[tuple[object, ...]] = []
    for one in series:
        early, late = one.around(_EARLY), one.around(windows)
        print(f"{one.name:12} {early:7.1f} MiB at window {_EARLY}, {late:7.1f} at {windows}: {late - early:+.1f}")
        rows += [(one.name, window, round(size / _MIB, 2)) for window, size in one.points]
    further = peaks[2] - peaks[1]
    for what, value, goal in (("one source", peaks[1], _ONE_GOAL_MIB), ("each further", further, _FURTHER_GOAL_MIB)):
        verdict = "reached" if value <= goal else "missed"
        print(f"capture, {what}: {value:.0f} MiB resident at most (goal {goal}: {verdict})")
    rows += [(f"capture of {count} sources, peak", "", round(peak, 2)) for count, peak in peaks.items()]
    write_csv(results, "memory", ("process", "windows", "mib"), rows)
    with Figure(results, "memory", f"Resident memory over {windows} one-second windows") as axes:
        for one in series:
            axes.plot([window for window, _ in one.points], [size / _MIB for _, size in one.points], label=one.name)
        axes.set_xlabel("windows complete")
        axes.set_ylabel("MiB of its own")
        axes.set_ylim(bottom=0)
        axes.legend()
