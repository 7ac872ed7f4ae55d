"""Figs. 5 to 11 of Wu et al.: buffers that the model predicts, what they lose, how much memory strategies take, and how
long results take."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median

import numpy as np

from bench.common.reports import Figure, spread, write_csv
from bench.oblivious.operator_runs import run_operator
from bench.oblivious.runs import (
    ROW_BYTES,
    Known,
    ObliviousJoin,
    Run,
    Setting,
    Tells,
    WindowJoin,
    run_query,
    streams_of,
)
from highlevel.join.oblivious.disk_buffer import DiskRoom
from lowmark.query.expr.evaluate import Ints
from lowmark.query.optimize.buffer_model import Buffering
from lowmark.query.options import Memory

__all__ = ["measure_buffers", "measure_latency", "measure_operator", "measure_strategies", "measure_windows"]

_BLOCK = 100 * ROW_BYTES
_LIMIT = 1 << 26

_NAMES = {
    Buffering.KEEP: "WO-Join",
    Buffering.SORT: "Memory-Sort First",
    Buffering.DISK: "Disk-Buffer First",
    Buffering.HYBRID: "Hybrid",
}
_SHORT = {Buffering.KEEP: "WO-Join", Buffering.SORT: "MSF", Buffering.DISK: "DBF", Buffering.HYBRID: "Hybrid"}

_Curves = dict[str, Sequence[float]]


def measure_buffers(results: Path, *, query_1: Setting, query_2: Setting, repeats: int) -> None:
    """Figs. 5 to 7, and the accuracy."""
    known: dict[Tells, list[Run]] = {tells: [] for tells in Tells}
    monitored, trees = [], []
    for seed in range(repeats):
        streams = streams_of(query_1, seed)
        for tells, runs in known.items():
            join = WindowJoin(3, known=Known(query_1, streams, tells))
            runs.append(run_query(query_1, streams, [join], backtracks=tells is Tells.COUNT))
        monitored.append(oblivious(query_1, seed, Buffering.KEEP))
        trees.append(oblivious(query_2, seed, Buffering.KEEP, backtracks=True))
    accuracies = {
        **{f"Query 1, all known, tuples meanwhile: {tells.value}": runs for tells, runs in known.items()},
        "Query 1, monitored": monitored, "Query 2, monitored": trees,
    }  # fmt: skip
    for name, runs in accuracies.items():
        print(f"{name}: accuracy {_accuracy(runs)}", flush=True)
    all_known = known[Tells.COUNT]
    write_csv(
        results, "wu_accuracy", ("what", "least", "mean", "runs"),
        [(name, str(min(run.accuracy for run in runs)), str(fmean(run.accuracy for run in runs)), len(runs))
         for name, runs in accuracies.items()],
    )  # fmt: skip
    for port in range(3):
        curves = {
            "optimal": _mean([run.inputs[0][port].needed for run in all_known]),
            "predicted, parameters known": _mean([run.inputs[0][port].predicted for run in all_known]),
            "predicted, monitored": _mean([run.inputs[0][port].predicted for run in monitored]),
        }
        ours = (
            f"parameters known {_times(curves, 'predicted, parameters known')}, monitored "
            f"{_times(curves, 'predicted, monitored')}, where anything is needed; accuracy known "
            f"{_accuracy(all_known)} ({_accuracy(known[Tells.MOMENT])} if equation 7 takes the rates of the moment), "
            f"monitored {_accuracy(monitored)}"
        )
        _over_time(results, f"wu_fig_5_s{port + 1}", f"Buffer of S{port + 1}, Query 1 (after fig. 5)", curves, ours)
    for number, port in ((6, 0), (7, 1)):
        series = [run.inputs[2][port] for run in trees]
        curves = {
            "optimal": _mean([one.needed for one in series]),
            "predicted, monitored": _mean([one.predicted for one in series]),
            "used": _mean([one.used for one in series]),
        }
        ours = f"{_times(curves, 'predicted, monitored')} where anything is needed; accuracy {_accuracy(trees)}"
        _over_time(results, f"wu_fig_{number}", f"Buffer of S{port + 7}, Query 2 (after fig. {number})", curves, ours)


def measure_windows(results: Path, *, query_1: Setting, query_2: Setting, repeats: int, target: float) -> None:
    """Fig. 8: all inputs of W-Join have one window, as a user would set it."""
    rows = []
    for name, setting in (("Query 1", query_1), ("Query 2", query_2)):
        for seed in range(repeats):
            ours = oblivious(setting, seed, Buffering.KEEP)
            first = max(1, round(ours.memory / sum(_inputs(setting))))
            at_par = windowed(setting, seed, first)
            window, run = _least_window(setting, seed, first, target)
            rows.append((name, seed, ours.memory, ours.accuracy, at_par.accuracy, window, run.memory, run.accuracy))
            print(
                f"{name}, run {seed}: W-Join needs {run.memory / ours.memory:.2f} times the memory for an accuracy of "
                f"{run.accuracy:.1%}; as much gives {at_par.accuracy:.0%}",
                flush=True,
            )
    header = ("query", "run", "wo_tuples", "wo_accuracy", "w_accuracy_with_as_much", "window", "w_tuples", "w_accuracy")
    write_csv(results, "wu_fig_8", header, rows)
    queries = ("Query 1", "Query 2")
    mean = {name: [fmean(float(row[at]) for row in rows if row[0] == name) for at in (2, 6, 4)] for name in queries}
    said = "; ".join(
        f"{name}: {w / wo:.2g} times the memory, accuracy {par:.0%} with as much" for name, (wo, w, par) in mean.items()
    )
    with Figure(results, "wu_fig_8", "WO-Join and W-Join (after fig. 8)", f"W-Join takes {said}") as axes:
        at = np.arange(2)
        for side, label in enumerate(("WO-Join", "W-Join")):
            axes.bar(at + 0.36 * side, [mean[name][side] for name in queries], 0.36, label=label)
        axes.set_xticks(at + 0.18, queries)
        axes.set_ylabel("tuples in memory, average")
        axes.legend()


def measure_strategies(results: Path, *, query_1: Setting, query_2: Setting, repeats: int) -> None:
    """Figs. 9 and 10."""
    rows, curves, mean = [], {}, {}
    for name, setting in (("Query 1", query_1), ("Query 2", query_2)):
        for strategy in Buffering:
            runs = [oblivious(setting, seed, strategy) for seed in range(repeats)]
            mean[name, strategy] = fmean(run.memory for run in runs)
            rows.append((name, strategy.value, mean[name, strategy], fmean(run.accuracy for run in runs)))
            if name == "Query 1":
                curves[_NAMES[strategy]] = _mean([run.inputs[0][2].used for run in runs])
    write_csv(results, "wu_fig_10", ("query", "strategy", "tuples", "accuracy"), rows)
    most = ", ".join(f"{label} {max(curve):,.0f}" for label, curve in curves.items())
    _over_time(results, "wu_fig_9", "Buffer of S3, Query 1 (after fig. 9)", curves, f"tuples at the most: {most}")
    said = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{_SHORT[way]} {mean[name, way] / mean[name, Buffering.KEEP]:.0%}"
            for way in (Buffering.SORT, Buffering.DISK, Buffering.HYBRID)
        )
        for name in ("Query 1", "Query 2")
    )
    least = min(float(row[3]) for row in rows)
    ours = f"of the memory of WO-Join, {said}; accuracy at least {least:.2%}"
    with Figure(results, "wu_fig_10", "Average memory (after fig. 10)", ours) as axes:
        at = np.arange(2)
        for place, strategy in enumerate(Buffering):
            values = [mean[name, strategy] for name in ("Query 1", "Query 2")]
            axes.bar(at + 0.2 * place, values, 0.2, label=_NAMES[strategy])
        axes.set_xticks(at + 0.3, ["Query 1", "Query 2"])
        axes.set_ylabel("tuples in memory, average")
        axes.legend()


def measure_operator(results: Path, *, query_1: Setting, repeats: int) -> None:
    """Query 1 through the product's operator: until the frontier has passed, and as the model says."""
    rows = []
    for memory in Memory:
        for way in Buffering:
            runs = [run_operator(query_1, seed, memory, way) for seed in range(repeats)]
            accuracy, kept, shed = (
                fmean(values) for values in zip(*((r.accuracy, r.kept, r.shed) for r in runs), strict=True)
            )
            rows.append((memory.value, way.value, accuracy, kept, max(run.most for run in runs), shed))
            print(
                f"operator, {memory.value}, {_NAMES[way]}: accuracy {accuracy:.2%}, {kept:,.0f} rows in memory on the "
                f"average, {shed:,.0f} given up before their time",
                flush=True,
            )
    write_csv(results, "wu_operator", ("memory", "strategy", "accuracy", "rows", "most_rows", "given_up"), rows)


def measure_latency(results: Path, *, query_1: Setting, repeats: int) -> None:
    """Fig. 11: tuple by tuple, on a virtual clock on which work takes what it takes here, disk and all."""
    found: dict[str, list[float]] = {"W-Join": [], **{_SHORT[way]: [] for way in Buffering}}
    for seed in range(repeats):
        streams = streams_of(query_1, seed)
        window = max(len(stream.keys) for stream in streams)
        found["W-Join"].append(median(run_query(query_1, streams, [WindowJoin(3, [window] * 3)]).latencies))
        for way in Buffering:
            found[_SHORT[way]].append(median(oblivious(query_1, seed, way).latencies))
    times = {name: fmean(values) for name, values in found.items()}
    write_csv(results, "wu_fig_11", ("join", "median_latency_s"), list(times.items()))
    plain = times["WO-Join"]
    ours = (
        f"WO-Join {plain * 1e6:.0f} µs, {plain / times['W-Join']:.1f} times W-Join; "
        f"DBF {times['DBF'] / plain - 1:+.0%} on WO-Join; "
        f"MSF {times['MSF']:.2g} s and Hybrid {times['Hybrid']:.2g} s, {times['MSF'] / plain:,.0f} times WO-Join (they "
        "wait for tuples, which takes no less on a faster machine)"
    )
    with Figure(results, "wu_fig_11", "Latency of results, Query 1 (after fig. 11)", ours) as axes:
        axes.bar(list(times), list(times.values()))
        axes.set_yscale("log")
        axes.set_ylabel("seconds, median")


def oblivious(setting: Setting, seed: int, strategy: Buffering, *, backtracks: bool = False) -> Run:
    with _room() as room:
        joins = [ObliviousJoin(inputs, strategy, room) for inputs in _inputs(setting)]
        return run_query(setting, streams_of(setting, seed), joins, backtracks=backtracks)


def windowed(setting: Setting, seed: int, window: int) -> Run:
    joins = [WindowJoin(inputs, [window] * inputs) for inputs in _inputs(setting)]
    return run_query(setting, streams_of(setting, seed), joins)


def _least_window(setting: Setting, seed: int, first: int, target: float) -> tuple[int, Run]:
    """The least window that is enough, to 2%."""
    low, high, run = first, first, windowed(setting, seed, first)
    while run.accuracy < target:
        low, high = high, high * 2
        run = windowed(setting, seed, high)
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        tried = windowed(setting, seed, middle)
        if tried.accuracy < target:
            low = middle
        else:
            high, run = middle, tried
    return high, run


def _inputs(setting: Setting) -> tuple[int, ...]:
    """Of each join."""
    return (3,) if setting.inputs == 3 else (3, 3, 2)


@contextmanager
def _room() -> Iterator[DiskRoom]:
    with tempfile.TemporaryDirectory() as folder:
        room = DiskRoom(Path(folder), _LIMIT, _BLOCK)
        try:
            yield room
        finally:
            room.close()


def _mean(series: Sequence[Ints]) -> Sequence[float]:
    found: Sequence[float] = np.mean(series, axis=0).tolist()
    return found


def _accuracy(runs: Sequence[Run]) -> str:
    return f"{fmean(run.accuracy for run in runs):.2%}"


def _times(curves: _Curves, predicted: str) -> str:
    """The median ratio to what is needed, and its range."""
    pairs = zip(curves["optimal"], curves[predicted], strict=True)
    ratios = [found / needed for needed, found in pairs if needed >= 10]
    return f"{median(ratios):.2f} times the optimal buffer ({spread(ratios)})" if ratios else "nothing is needed"


def _over_time(results: Path, name: str, title: str, curves: _Curves, ours: str) -> None:
    rows = list(zip(range(len(next(iter(curves.values())))), *curves.values(), strict=True))
    write_csv(results, name, ("second", *curves), rows)
    with Figure(results, name, title, ours) as axes:
        for label, curve in curves.items():
            axes.plot(curve, label=label)
        axes.set_xlabel("seconds")
        axes.set_ylabel("tuples")
        axes.set_ylim(bottom=0)
        axes.legend()
