"""What reading costs a frame: printed (pytest -s), and held against a bound that only a change of kind would pass."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ingest.columns import Columns
from ingest.config import FileConfig
from ingest.disorder.declarations import Ordered, Scan
from ingest.files.capture import open_capture
from ingest.files.pcap import HEADER, PcapWalker
from ingest.files.source import FileSource
from lowmark.app.traffic import TrafficSpec, write_capture

pytestmark = pytest.mark.slow
PACKETS = 2_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("speed") / "a.pcap"
    write_capture(made, TrafficSpec(packets=PACKETS, groups=1000))
    return made


def test_reading_costs_nanoseconds_a_frame(path: Path) -> None:
    best = {}
    for _ in range(4):
        for name, reading in (("capture", plain), ("ordered", ordered), ("scan", scan), ("walk in memory", walk)):
            start = time.perf_counter()
            assert reading(path) == PACKETS
            best[name] = min(best.get(name, np.inf), (time.perf_counter() - start) / PACKETS * 1e9)
    print({name: f"{ns:.1f} ns a frame" for name, ns in best.items()})
    assert best["scan"] < 200


def plain(path: Path) -> int:
    capture = open_capture(str(path))
    frames = sum(len(frames) for frames in capture.blocks())
    capture.close()
    return frames


def ordered(path: Path) -> int:
    return through(FileSource(FileConfig(name="a", stream="Main", path=str(path), disorder=Ordered())))


def scan(path: Path) -> int:
    return through(FileSource(FileConfig(name="a", stream="Main", path=str(path), disorder=Scan())))


def through(source: FileSource) -> int:
    source.start()
    frames = sum(len(block) for block in source.blocks())
    source.close()
    return frames


_memory: dict[Path, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}


def walk(path: Path) -> int:
    if path not in _memory:
        _memory[path] = np.fromfile(path, np.uint8)
        _memory[path].flags.writeable = False
    data, out = _memory[path], Columns.of_size(32_768)
    walker, position, frames = PcapWalker("a", data[:HEADER].tobytes()), HEADER, 0
    while position < len(data):
        step = walker.walk(data, position, len(data), len(data), out)
        position, frames = step.position, frames + step.count
    return frames
