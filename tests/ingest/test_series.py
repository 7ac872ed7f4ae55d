"""Several captures as one source, and captures to which somebody still writes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.config import FileConfig
from ingest.damage import CaptureError
from ingest.disorder import Ordered, Scan
from ingest.source import FileSource
from lowmark.wire.frames import FOREVER, FrameBlock
from tests.naive.frames import Spec, frame, write_pcap

SECOND = 10**9


def capture(path: Path, *seconds: int) -> bytes:
    return write_pcap(path, [frame(Spec(ts=second * SECOND)) for second in seconds]).read_bytes()


def source(path: Path | str, follow: bool = False) -> FileSource:
    return FileSource(FileConfig(name="a", stream="A", path=str(path), follow=follow))


def seconds(blocks: Iterator[FrameBlock]) -> list[int]:
    return [ts // SECOND for block in blocks for ts in block.ts.tolist()]


def test_a_folder_and_a_pattern_are_one_capture_in_the_order_of_their_names(tmp_path: Path) -> None:
    capture(tmp_path / "trace", 1, 2)
    (tmp_path / "trace2.gz").write_bytes(gzip.compress(capture(tmp_path / "trace2", 3, 5)))
    (tmp_path / "trace2").unlink()
    capture(tmp_path / "trace10", 4, 6)
    (tmp_path / "deeper").mkdir()
    for path in (tmp_path, tmp_path / "trace*"):
        of = source(path)
        of.start()
        assert of.disorder == Scan()
        blocks = list(of.blocks())
        assert seconds(iter(blocks)) == [1, 2, 3, 5, 4, 6]
        assert [block.low_after for block in blocks] == [3 * SECOND, 4 * SECOND, 6 * SECOND, FOREVER]
        assert of.read_bytes == of.total_bytes
        assert not of.damages
        of.close()


def test_a_name_with_signs_of_a_pattern_is_a_name_first(tmp_path: Path) -> None:
    capture(tmp_path / "a[1].pcap", 1)
    capture(tmp_path / "a1.pcap", 2)
    of = source(tmp_path / "a[1].pcap")
    of.start()
    assert seconds(of.blocks()) == [1]


def test_damage_in_the_middle_is_told_and_reading_goes_on(tmp_path: Path) -> None:
    whole = capture(tmp_path / "1.pcap", 1, 2)
    (tmp_path / "1.pcap").write_bytes(whole[:-3])
    (tmp_path / "2.txt").write_text("no capture")
    capture(tmp_path / "3.pcap", 3)
    of = source(tmp_path)
    of.start()
    assert seconds(of.blocks()) == [1, 3]
    cut, foreign = of.damages
    assert "1.pcap: the capture ends in the middle" in str(cut)
    assert "2.txt: this is no capture" in str(foreign)


def test_what_is_no_capture_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.txt").write_text("no capture")
    capture(tmp_path / "1.pcap", 1, 2)
    of = source(tmp_path)
    of.start()
    assert seconds(of.blocks()) == [1, 2]
    (damage,) = of.damages
    assert damage.kind == "left out"
    assert str(damage).startswith(f"{tmp_path / '0.txt'}: this is no capture (its first bytes are 6e 6f 20 63); ")
    assert "what stands before" not in str(damage)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="there is no file there"):
        source(tmp_path).start()


class Followed:
    """A source that is read in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.source = source(path, follow=True)
        self.seen: list[int] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.source.start()
        for block in self.source.blocks():
            with self._news:
                self.seen += [ts // SECOND for ts in block.ts.tolist()]
                self._news.notify()

    def reaches(self, *expected: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.seen == list(expected), 20), self.seen

    def stop(self) -> None:
        self.source.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert not self.source.damages
        assert not self.source.ended
        self.source.close()


def test_a_file_that_grows(tmp_path: Path) -> None:
    """From nothing, and in the middle of a header or a packet."""
    whole = capture(tmp_path / "whole", 1, 2, 3)
    path = tmp_path / "growing"
    path.touch()
    followed = Followed(path)
    record = (len(whole) - 24) // 3
    with path.open("ab", buffering=0) as file:
        file.write(whole[:3])
        file.write(whole[3 : 24 + record])
        followed.reaches(1)
        file.write(whole[24 + record : -3])
        followed.reaches(1, 2)
        file.write(whole[-3:])
        followed.reaches(1, 2, 3)
    assert followed.source.disorder == Ordered()
    followed.stop()


def test_a_folder_that_grows(tmp_path: Path) -> None:
    """A file is read to its end before the next, and the last one goes on growing."""
    followed = Followed(tmp_path)
    whole = capture(tmp_path / "1.pcap", 1)
    followed.reaches(1)
    later = capture(tmp_path.parent / "later", 2, 3)[24:]
    with (tmp_path / "1.pcap").open("ab") as file:
        file.write(later)
    (tmp_path / "2.pcap").write_bytes(gzip.compress(whole))
    followed.reaches(1, 2, 3, 1)
    capture(tmp_path / "10.pcap", 10)
    followed.reaches(1, 2, 3, 1, 10)
    followed.stop()
