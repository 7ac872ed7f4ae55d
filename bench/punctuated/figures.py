"""Ding's figures 8 to 12: PWJoin beside WJoin and PJoin over punctuated streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.baselines.punctuation_joins import PJoin, WJoin
from bench.common.join_runs import NS
from bench.common.reports import Figure, write_csv
from bench.common.response_times import Collected
from bench.punctuated.streams import Kind, Stream, Stretch, drawn, stretches
from highlevel.join.punctuated import PunctuatedJoinOperator
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.value_sets import ValueSet

__all__ = ["Setting", "measure_output", "measure_promises", "measure_state"]

_SQL = """SELECT /*+ algorithm(punctuated) */ a.ts, b.ts AS u, a.srcPort
FROM A AS a [RANGE {a} s], B AS b [RANGE {b} s] WHERE a.srcPort = b.destPort"""
_COLUMNS = ("srcPort", "destPort")

Make = Callable[[Join], PunctuatedJoinOperator]
PW: Mapping[str, Make] = {"PWJoin": PunctuatedJoinOperator, "WJoin": WJoin}
P: Mapping[str, Make] = {"PWJoin": PunctuatedJoinOperator, "PJoin": PJoin}


@dataclass(frozen=True, slots=True)
class Setting:
    """`rate`: tuples a second of each stream, one every 10 ms in the paper; `step_s`: of stream time, what comes in
    which is taken at once."""

    seconds: float = 120
    rate: float = 100
    step_s: float = 0.1
    repeats: int = 5
    seed: int = 3


@dataclass(slots=True)
class Run:
    """By stretch: rows kept, rows emitted so far, values promised to the output so far, seconds of CPU so far."""

    kept: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class _Out(Collected):
    """Counts the values that the output is promised for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.told = 0

    def promise(self, port: int, promise: Promise) -> None:
        if len(promise.bounds) == 1 and promise.bounds[0].values is not None:
            self.told += len(promise.bounds[0].values)


def measure_state(results: Path, setting: Setting, windows: Sequence[int] = (1, 5, 15)) -> dict[str, Run]:
    """Fig. 8: tuples in both states over time."""
    kinds = Kind(100), Kind(100)
    found: dict[str, Run] = {}
    for window in windows:
        runs = _runs(PW, (window, window), _streams(kinds, setting), setting)
        _same_answers(runs)
        found |= {f"{name}-{window}": run for name, run in runs.items()}
    mean = {name: sum(run.kept) / len(run.kept) for name, run in found.items()}
    ours = "on average WJoin keeps " + ", ".join(
        f"{mean[f'WJoin-{w}']:,.0f} tuples with windows of {w} s, {mean[f'WJoin-{w}'] / mean[f'PWJoin-{w}']:.2f} times "
        "those of PWJoin"
        for w in windows
    )
    kept = {name: run.kept for name, run in found.items()}
    _plot(results, 8, "Memory: tuples in both states", "tuples", kept, setting, ours)
    return found


def measure_output(
    results: Path, setting: Setting, slow: Setting, windows: Sequence[int] = (5, 15)
) -> dict[str, Run]:  # fmt: skip
    """Figs. 9 and 10: tuples put out by the seconds of CPU that it took; in the second no promise matches a tuple.
    `slow`: tuples are taken one by one, as in the paper; of it ratios are told alone."""
    found = _output((Kind(100), Kind(100)), setting, windows)
    ours = f"{_ratios(found, windows)}; one by one, {slow.rate:,.0f} tuples a second, "
    ours += _ratios(_output((Kind(100), Kind(100)), slow, windows), windows)
    _plot_output(results, 9, "Tuples put out", found, ours)
    kinds = Kind(30, irrelevant=True), Kind(30, random=True, irrelevant=True)
    irrelevant = _output(kinds, setting, windows[:1])
    ours = f"{_ratios(irrelevant, windows[:1])}; one by one, {slow.rate:,.0f} tuples a second, "
    ours += _ratios(_output(kinds, slow, windows[:1]), windows[:1])
    _plot_output(results, 10, "Tuples put out, irrelevant punctuations", irrelevant, ours)
    return found | {f"{name} irrelevant": run for name, run in irrelevant.items()}


def _output(kinds: tuple[Kind, Kind], setting: Setting, windows: Sequence[int]) -> dict[str, Run]:
    streams = _streams(kinds, setting)
    found: dict[str, Run] = {}
    for window in windows:
        runs = _runs(PW, (window, window), streams, setting)
        _same_answers(runs)
        found |= {f"{name}-{window}": run for name, run in runs.items()}
    return found


def _ratios(found: Mapping[str, Run], windows: Sequence[int]) -> str:
    rates = {w: found[f"WJoin-{w}"].seconds[-1] / found[f"PWJoin-{w}"].seconds[-1] for w in windows}
    each = " and ".join(f"{rate:.2f} times (windows of {w} s)" for w, rate in rates.items())
    return f"PWJoin puts out {each} what WJoin does"


def measure_promises(results: Path, setting: Setting) -> dict[str, Run]:
    """Figs. 11 and 12: promises of values that come out; the second where one stream promises nothing."""
    both = _runs(P, (1, 1), _streams((Kind(30), Kind(30, random=True)), setting), setting)
    one = _runs(P, (5, 5), _streams((Kind(0), Kind(30)), setting), setting)
    middle = len(both["PWJoin"].told) // 2
    (pw, pw_end), (p, p_end) = ((run.told[middle], run.told[-1]) for run in both.values())
    values = int(setting.seconds * setting.rate / 30)
    ours = f"{pw} by PWJoin and {p} by PJoin at half time, {pw_end} and {p_end} at the end, of {values}"
    counts = {name: run.told for name, run in both.items()}
    _plot(results, 11, "Punctuations put out", "punctuations", counts, setting, ours)
    steady = np.diff(one["PWJoin"].told[:: max(1, round(10 / setting.step_s))])
    ours = f"PWJoin {one['PWJoin'].told[-1]}, {steady.min()} to {steady.max()} in 10 s; PJoin {one['PJoin'].told[-1]}"
    counts = {name: run.told for name, run in one.items()}
    _plot(results, 12, "Punctuations put out, one stream has none", "punctuations", counts, setting, ours)
    return {f"{name} both": run for name, run in both.items()} | {f"{name} one": run for name, run in one.items()}


def _streams(kinds: tuple[Kind, Kind], setting: Setting) -> tuple[Stream, Stream]:
    random = np.random.default_rng(setting.seed)
    one, other = (drawn(kind, setting.seconds, setting.rate, random) for kind in kinds)
    return one, other


def _runs(
    joins: Mapping[str, Make], windows: tuple[int, int], streams: tuple[Stream, Stream], setting: Setting
) -> dict[str, Run]:  # fmt: skip
    """Each join over the same streams, in turn for each stretch of time. CPU time is the least of the repeats."""
    plan = compile_query(_SQL.format(a=windows[0], b=windows[1]), buckets=1).steps[0].plan
    assert isinstance(plan, Join)
    step_ns = int(setting.step_s * NS)
    plan = replace(plan, inputs=tuple(replace(port, unit=step_ns) for port in plan.inputs))
    schemas = plan.inputs[0].schema, plan.inputs[1].schema
    cut = list(stretches(streams, schemas, _COLUMNS, step_ns))
    best: dict[str, Run] = {}
    for _ in range(setting.repeats + 1):  # the first one compiles
        runs = {name: Run() for name in joins}
        made = {name: (make(plan), MemoryState(), _Out()) for name, make in joins.items()}
        for stretch in cut:
            for name, (operator, state, out) in made.items():
                began = time.process_time()
                _feed(operator, state, out, stretch, plan)
                spent = time.process_time() - began
                run = runs[name]
                run.kept.append(sum(len(operator.nodes(port, state)) for port in (0, 1)))
                run.emitted.append(out.count)
                run.told.append(out.told)
                run.seconds.append(spent + (run.seconds[-1] if run.seconds else 0.0))
                out.take()
        for name, run in runs.items():
            if name not in best or run.seconds[-1] < best[name].seconds[-1]:
                best[name] = run
    return best


def _feed(operator: PunctuatedJoinOperator, state: MemoryState, out: _Out, stretch: Stretch, plan: Join) -> None:
    for port, rows in enumerate(stretch.rows):
        if len(rows):
            operator.on_batch(port, rows, state, out)
    for port, values in enumerate(stretch.promised):
        if len(values):
            named = ValueSet.of_words(values.view(np.uint64)[:, None])
            operator.on_promise(port, Promise((Bound(plan.keys(port)[0], values=named),)), state, out)
    for port, of in enumerate(plan.inputs):
        operator.on_promise(port, Promise((Bound(PANE, below=stretch.end // of.unit),)), state, out)


def _same_answers(runs: Mapping[str, Run]) -> None:
    counts = {run.emitted[-1] for run in runs.values()}
    if len(counts) > 1:
        raise RuntimeError(f"the joins have put out different numbers of tuples: {sorted(counts)}")


def _plot(
    results: Path, number: int, title: str, unit: str, counts: Mapping[str, Sequence[int]], setting: Setting, ours: str
) -> None:  # fmt: skip
    """Over stream time."""
    times = (np.arange(1, 1 + len(next(iter(counts.values())))) * setting.step_s).tolist()
    names = list(counts)
    every = max(1, round(1 / setting.step_s))
    rows = [(times[at], *(counts[name][at] for name in names)) for at in range(every - 1, len(times), every)]
    write_csv(results, f"ding_fig_{number}", ("stream_s", *names), rows)
    with Figure(results, f"ding_fig_{number}", title, ours) as axes:
        for name in names:
            axes.plot(times, counts[name], label=name, linestyle="-" if name.startswith("PW") else "--")
        axes.set_xlabel("seconds of stream time")
        axes.set_ylabel(unit)
        axes.legend()


def _plot_output(results: Path, number: int, title: str, runs: Mapping[str, Run], ours: str) -> None:
    """Over CPU time: inputs are never drained."""
    rows = [
        (name, run.seconds[at], run.emitted[at]) for name, run in runs.items() for at in range(0, len(run.seconds), 10)
    ]
    write_csv(results, f"ding_fig_{number}", ("join", "cpu_s", "tuples"), rows)
    with Figure(results, f"ding_fig_{number}", title, ours) as axes:
        for name, run in runs.items():
            axes.plot(run.seconds, run.emitted, label=name, linestyle="-" if name.startswith("PW") else "--")
        axes.set_xlabel("seconds of CPU time")
        axes.set_ylabel("tuples put out")
        axes.legend()
