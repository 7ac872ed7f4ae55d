"""Where the time of `lowmark query -r` goes: one part after the other is put in, and the difference is the part's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.common.settings import PAIRS
from ingest.config import FileConfig
from ingest.disorder.declarations import Disorder, Ordered, Scan
from ingest.files.source import FileSource
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes
from lowmark.app.local.bindings import bind
from lowmark.app.local.formats import Format
from lowmark.app.local.output import open_output
from lowmark.app.local.runner import LocalRun
from lowmark.query.compile import compile_query

__all__ = ["parts_of"]

_REPEAT = 2


def parts_of(capture: Path) -> dict[str, float]:
    """CPU nanoseconds a packet, the least of some runs, of a file that the system may have in memory: `read` turns it
    into columns, `scan` does so a first time and finds the low-watermarks, `kernel` is parsing, hash, table and flush,
    `emission` the way of partials into final rows, `output` their text."""
    steps: dict[str, Callable[[], int]] = {
        "read": lambda: _read(capture, Ordered()),
        "scan": lambda: _read(capture, Scan()),
        "kernel": lambda: _read(capture, Scan(), SourceNodes(_PLAN.stage.nodes, stream="Main")),
        "emission": lambda: _answered(capture, None),
        "output": lambda: _answered(capture, Path(os.devnull)),
    }
    least = dict.fromkeys(steps, float("inf"))
    for _ in range(_REPEAT):
        for name, step in steps.items():
            begun = time.process_time_ns()
            packets = step()
            least[name] = min(least[name], (time.process_time_ns() - begun) / max(1, packets))
    shares, before = {}, 0.0
    for name, whole in least.items():
        shares[name] = max(0.0, whole - before)
        before = max(before, whole)
    return shares


_PLAN = compile_query(PAIRS.format(window="1 minute"), streams={"Main": 1}, buckets=1)


def _read(capture: Path, disorder: Disorder, nodes: SourceNodes | None = None) -> int:
    source = FileSource(FileConfig(name="main", stream="Main", path=str(capture), disorder=disorder))
    source.start()
    if nodes is not None:
        nodes.start()
    for block in source.blocks():
        if nodes is not None:
            for _ in nodes.take(block):
                pass
    source.close()
    return source.received


def _answered(capture: Path, output: Path | None) -> int:
    bindings = bind((f"Main={capture}",), (), ("Main",), print)
    run = LocalRun(
        _PLAN, bindings, disorder=None, config=LowLevelConfig(), tell=lambda text: None, on_late=lambda news: None
    )
    run.start()
    sink = None if output is None else open_output(Format.JSONL, output, _PLAN.output)
    for rows in run.results():
        if sink is not None:
            sink.write(rows)
    if sink is not None:
        sink.close()
    run.close()
    return run.received
