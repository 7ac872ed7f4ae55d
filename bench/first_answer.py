"""`python -m bench.first_answer`: how long a person waits for the first row of `lowmark query`, from the shell.

A small capture, and four cases: nothing is kept yet (the first query on this machine); a query never seen before, while
the parts that all queries share are kept; a query whose constants alone are new; a query seen before. Beside them
processes that do the beginning of it and end, each a step more than the one before, and tshark where it is installed,
over the same capture. Each case has its own process; repetitions are interleaved, and the median of their wall time and
of their CPU time counts; the first case runs once. Then 1, 2, 5, 10 and 20 queries on one source: the CPU time of their
common kernel, compiled. The figures and a plot go to bench/results.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.kernel import nodes_of
from lowlevel.kernel.cache import compile_kernel
from lowlevel.kernel.codegen.assemble import Build, assemble, kernel_parameters
from lowmark.app.traffic import TrafficSpec, write_capture

_KEYS = tuple(combinations(("srcIP", "destIP", "srcPort", "destPort", "proto", "tos", "ttl", "tcp_flags", "vlan"), 2))
_SUMMED = ("ip_len", "payload_len", "len")
_SQL = "SELECT {0}, {1}, count(*), sum({2}) [RANGE 1 minute] FROM Main WHERE len > {3} GROUP BY {0}, {1}"
_SEEN = _SQL.format("srcIP", "destIP", "len", 60)
_SOURCE_QUERIES = (1, 2, 5, 10, 20)

_STARTED = "import gc, os; gc.disable(); os.environ['OPENBLAS_NUM_THREADS'] = '1'; "
_BEGINNINGS = {
    "python": "pass",
    "command line": "import lowmark.app.cli",
    "packages": "import lowmark.app.cli, numpy, pyarrow, lark, llvmlite.binding, pydantic",
    "everything": "import lowmark.app.cli, lowmark.app.local.answer, llvmlite.binding, pydantic",
    "plan": "import lowmark.app.cli, lowmark.app.local.answer as a, llvmlite.binding, pydantic; "
    "a.compile_query({sql!r}, name='query', buckets=1)",
}
"""Programs that import and do ever more of what a query needs."""


def _form(number: int) -> tuple[str, str, str]:
    """The number-th of the forms that differ in more than constants."""
    return (*_KEYS[number % len(_KEYS)], _SUMMED[number // len(_KEYS)])


def _timed(command: Sequence[str], cache: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command that must succeed."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # An installed lowmark has its bytecode; that of a checkout is written by its first run.
    environment = {**os.environ, "LOWMARK_CACHE": str(cache), "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _query(capture: Path, sql: str) -> list[str]:
    return [sys.executable, "-m", "lowmark", "query", "-r", str(capture), "--format", "jsonl", sql]


def measure_first_answer(results: Path, *, repeat: int) -> None:
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as folder:
        capture, kept = Path(folder) / "small.pcap", Path(folder) / "kept"
        write_capture(capture, TrafficSpec(packets=2_000, duration_ns=120 * 10**9, groups=100))
        _timed(_query(capture, _SEEN), kept)
        found: dict[str, list[tuple[float, float]]] = {}
        for number in range(repeat):
            cases = {
                name: [sys.executable, "-c", _STARTED + program.format(sql=_SEEN) + "; gc.freeze()"]
                for name, program in _BEGINNINGS.items()
            }
            cases["seen before"] = _query(capture, _SEEN)
            cases["other constants"] = _query(capture, _SQL.format("srcIP", "destIP", "len", 61 + number))
            cases["never seen"] = _query(capture, _SQL.format(*_form(number), 60))
            if tshark := shutil.which("tshark"):
                cases["tshark"] = [tshark, "-r", str(capture), "-q", "-z", "conv,ip"]
            for name, command in cases.items():
                found.setdefault(name, []).append(_timed(command, kept))
        found["nothing kept"] = [_timed(_query(capture, _SEEN), Path(folder) / "empty")]
    _report(results, found)
    _measure_sources(results, repeat)


def _report(results: Path, found: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    seen = median(wall for wall, _ in found["seen before"])
    rows = []
    for name, times in found.items():
        wall, cpu = median(wall for wall, _ in times), median(cpu for _, cpu in times)
        print(f"{name:>16}: {wall:.2f} s ({cpu:.2f} s of CPU), {wall / seen:.2f} times a query seen before", flush=True)
        rows.append((name, wall, cpu, wall / seen))
    write_csv(results, "first-answer", ("case", "wall_s", "cpu_s", "ratio"), rows)


def _measure_sources(results: Path, repeat: int) -> None:
    """The queries of a source are one kernel."""
    seconds = []
    for count in _SOURCE_QUERIES:
        queries = [_SQL.format(*_form(number), 60) for number in range(count)]
        reductions = [node.reduction for node in nodes_of(queries)]
        kinds = [kind for _, kind in kernel_parameters(reductions, [False] * len(reductions))]
        least = float("inf")
        for _ in range(repeat):
            begun = time.process_time()
            compile_kernel(assemble(reductions, Build.FAST).text, kinds)
            least = min(least, time.process_time() - begun)
        seconds.append(least)
        print(f"{count:2} queries on a source: their kernel compiles in {least:.2f} s of CPU, "
              f"{least / count / seconds[0]:.2f} times one query a query", flush=True)  # fmt: skip
    write_csv(results, "first-answer-queries", ("queries", "cpu_s"), list(zip(_SOURCE_QUERIES, seconds, strict=True)))
    with Figure(results, "first-answer", "CPU time to compile the kernel of a source") as axes:
        axes.plot(_SOURCE_QUERIES, seconds, "o-", label="measured")
        axes.plot(_SOURCE_QUERIES, [count * seconds[0] for count in _SOURCE_QUERIES], "--", label="linear")
        axes.set_xlabel("queries")
        axes.set_ylabel("seconds")
        axes.legend()


def _main(
    repeat: Annotated[int, typer.Option(help="Repetitions; the median counts.")] = 5,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    measure_first_answer(results, repeat=repeat)


if __name__ == "__main__":
    typer.run(_main)
