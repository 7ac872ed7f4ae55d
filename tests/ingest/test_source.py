"""Sources: frames joined with their promises, counted, stopped and replayed."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from ingest.config import FileConfig, Playback
from ingest.disorder.declarations import Disorder, DisorderError, Ordered, Scan, WithinTime
from ingest.disorder.low_watermarks import NEVER
from ingest.files.errors import CaptureError
from ingest.files.source import FileSource
from ingest.metrics import IngestMetrics
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.wire.frames import FrameBlock
from lowmark.wire.rows.values import FOREVER
from tests.fixtures import captures

SECONDS = 1_000_000_000


def write(path: Path, seconds: list[int]) -> Path:
    path.write_bytes(captures.pcap([(b"frame", 60, s, 0) for s in seconds]).data)
    return path


def source(path: Path | str, disorder: Disorder | None = None, replay: Playback | None = None) -> FileSource:
    return FileSource(FileConfig(name="tap-1", stream="Main", path=str(path), disorder=disorder, replay=replay), rank=3)


def copied(of: FileSource) -> list[tuple[list[int], list[int], int]]:
    of.start()
    blocks = [(b.ts.tolist(), b.low.tolist(), b.low_after) for b in of.blocks()]
    of.close()
    return blocks


def test_a_file_is_scanned_unless_told_otherwise(tmp_path: Path) -> None:
    of = source(write(tmp_path / "a.pcap", [5, 3, 4]))
    assert copied(of) == [
        ([5 * SECONDS, 3 * SECONDS, 4 * SECONDS], [NEVER] * 3, 5 * SECONDS),
        ([], [], FOREVER),
    ]
    assert of.disorder == Scan()
    assert (of.name, of.stream, of.rank, of.received, of.ended, of.damages) == ("tap-1", "Main", 3, 3, True, [])
    assert of.read_bytes == of.total_bytes == 24 + 3 * 21


def test_ordered_and_within_promise_frame_by_frame(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [5, 3, 9])
    assert copied(source(path, Ordered()))[0][1:] == ([NEVER, NEVER, 5 * SECONDS], 9 * SECONDS)
    assert copied(source(path, WithinTime(SECONDS)))[0][1:] == ([NEVER, NEVER, 4 * SECONDS], 8 * SECONDS)


def test_a_source_is_inert_until_it_starts(tmp_path: Path) -> None:
    of = source(tmp_path / "missing.pcap")
    assert (of.read_bytes, of.total_bytes, of.received) == (0, None, 0)
    with pytest.raises(RuntimeError, match="not been started"):
        next(of.blocks())
    with pytest.raises(CaptureError, match="no such file"):
        of.start()
    of.close()


@pytest.mark.parametrize("packed", [False, True])
def test_the_two_passes_of_a_scan_cut_the_same_blocks(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "many.pcap"
    write_capture(path, TrafficSpec(packets=150_000, jitter_ns=50_000_000, snaplen=60))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    of = source(path)
    of.start()
    low, frames, out_of_order = NEVER, 0, 0
    blocks = [(b.ts, b.low, b.low_after) for b in of.blocks()]
    assert len(blocks) > 4
    greatest = max(ts.max() for ts, *_ in blocks if len(ts))
    for place, (ts, lows, low_after) in enumerate(blocks):
        assert np.all(lows == low)
        assert np.all(ts >= low)
        out_of_order += int(np.count_nonzero(np.diff(ts) < 0))
        low, frames = low_after, frames + len(ts)
        rest = [t.min() for t, *_ in blocks[place + 1 :] if len(t)]
        # Where no time follows it is the greatest of all; that nothing at all follows is for the end to say.
        assert low_after == min(rest, default=greatest if place < len(blocks) - 1 else FOREVER)
    assert frames == of.received == 150_000
    assert out_of_order > 1000


def test_standard_input_and_pipes_are_not_scanned(tmp_path: Path) -> None:
    with pytest.raises(DisorderError, match="standard input can be read once"):
        source("-", Scan())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = bytes(captures.pcap([(b"x", 1, 7, 0)]).data)
    with pytest.raises(DisorderError, match="can be read once; declare ordered or within"):
        source(pipe, Scan()).start()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    of = source(pipe, None)
    assert copied(of)[-2:] == [([7 * SECONDS], [NEVER], NEVER), ([], [], FOREVER)]
    assert of.disorder == Ordered()
    writer.join()


def test_a_damaged_capture_ends_with_its_damage_known(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.pcap", [1, 2])
    path.write_bytes(path.read_bytes()[:-1])
    registry = CollectorRegistry()
    config = FileConfig(name="tap-1", stream="Main", path=str(path))
    of = FileSource(config, metrics=IngestMetrics(registry).of("tap-1", "Main"))
    of.start()
    for block in of.blocks():
        assert bool(of.damages) == (block.low_after == FOREVER or of.disorder == Scan())
    assert (of.received, of.ended) == (1, True)
    assert [damage.offset for damage in of.damages] == [45]
    assert value(registry, "lowmark_capture_damaged_total") == 1
    assert value(registry, "lowmark_frames_received_total") == 1
    assert value(registry, "lowmark_capture_read_bytes_total") == path.stat().st_size


def test_metrics_follow_the_blocks(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    config = FileConfig(name="tap-1", stream="Main", path=str(write(tmp_path / "a.pcap", [1, 2])), disorder=Ordered())
    of = FileSource(config, metrics=IngestMetrics(registry).of("tap-1", "Main"))
    of.start()
    assert len(list(of.blocks())) == 2
    assert value(registry, "lowmark_frames_received_total") == 2
    assert value(registry, "lowmark_capture_read_bytes_total") == of.total_bytes
    assert value(registry, "lowmark_capture_damaged_total") == 0
    assert value(registry, "lowmark_source_low_watermark_timestamp_seconds") == 2


def value(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(name, {"source": "tap-1", "stream": "Main"})


@pytest.mark.parametrize("disorder", [Ordered(), Scan()])
def test_a_stopped_source_ends_without_the_promise_of_an_end(tmp_path: Path, disorder: Disorder) -> None:
    path = tmp_path / "many.pcap"
    write_capture(path, TrafficSpec(packets=100_000))
    of = source(path, disorder)
    of.start()
    blocks = of.blocks()
    block = next(blocks)
    assert 0 < len(block) == of.received < 100_000
    of.stop()
    assert list(blocks) == []
    assert not of.ended
    early = source(path, disorder)
    early.start()
    early.stop()
    assert list(early.blocks()) == []


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1_000
        self.waits: list[float] = []

    def now_ns(self) -> int:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += round(seconds * 1e9)
        return False


def test_a_paced_source_delivers_when_frames_fall_due_and_moves_their_times(tmp_path: Path) -> None:
    path, clock, now = write(tmp_path / "a.pcap", [100, 101, 101, 105]), Clock(), 1_800_000_000 * SECONDS
    config = FileConfig(
        name="tap-1", stream="Main", path=str(path), disorder=Ordered(), replay=Playback(pace=2.0, rebase_to_ns=now)
    )
    of = FileSource(config, now_ns=clock.now_ns, wait=clock.wait)
    of.start()
    seen = []
    for block in of.blocks():
        assert isinstance(block, FrameBlock)
        if len(block) or block.low_after == FOREVER:  # else it says that it waits
            seen.append(((clock.now - 1000) / 1e9, [(t - now) // SECONDS for t in block.ts.tolist()], block.low_after))
    assert seen == [
        (0, [0], NEVER),  # one packet alone proves nothing
        (0.5, [1, 1], now + SECONDS),
        (2.5, [5], now + 5 * SECONDS),
        (2.5, [], FOREVER),
    ]
    assert of.ended


@pytest.mark.parametrize("pace", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_pace_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="a number above 0"):
        Playback(pace=pace)
    with pytest.raises(ValueError, match="tick_ns"):
        Playback(tick_ns=0)
