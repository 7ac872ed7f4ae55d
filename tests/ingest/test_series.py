"""Several captures as one source, and captures to which somebody still writes."""

from __future__ import annotations

import glob
import gzip
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest.config import FileConfig
from ingest.disorder.declarations import Ordered, Scan
from ingest.files.errors import CaptureError
from ingest.files.source import FileSource
from lowmark.wire.frames import FrameBlock
from lowmark.wire.rows.values import FOREVER
from tests.fixtures import captures
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

    def stop(self, *said: str) -> None:
        """`said`: a part of each thing that could not be read."""
        self.source.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert len(self.source.damages) == len(said), self.source.damages
        for damage, part in zip(self.source.damages, said, strict=True):
            assert part in str(damage)
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


def in_place(path: Path, *seconds: int) -> None:
    """As `tcpdump -W` does it: the same file, cut and written from its beginning."""
    data = capture(path.parent.parent / "new", *seconds)
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


def replaced(path: Path, *seconds: int) -> None:
    capture(path.parent.parent / "new", *seconds)
    os.replace(path.parent.parent / "new", path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.mark.parametrize("anew", [in_place, replaced])
def test_a_ring_of_files_is_read_around(folder: Path, anew: Callable[..., None]) -> None:
    """A name that is written again is read again, in the order of writing: from the file read last on and around."""
    capture(folder / "0", 1)
    capture(folder / "1", 2, 3, 4)
    followed = Followed(folder)
    followed.reaches(1, 2, 3, 4)
    capture(folder / "2", 5)
    anew(folder / "0", 6, 7)
    followed.reaches(1, 2, 3, 4, 5, 6, 7)
    anew(folder / "1", 8, 9, 10)  # of the same length as before
    followed.reaches(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    anew(folder / "2", 11)
    anew(folder / "0", 12)
    followed.reaches(*range(1, 13))
    followed.stop()


@pytest.mark.parametrize("anew", [in_place, replaced])
def test_a_followed_file_that_is_written_anew_is_read_anew(folder: Path, anew: Callable[..., None]) -> None:
    path = folder / "a.pcap"
    capture(path, 1, 2, 3)
    followed = Followed(path)
    followed.reaches(1, 2, 3)
    anew(path, 4)
    followed.reaches(1, 2, 3, 4)
    anew(path, 5, 6, 7, 8, 9)
    followed.reaches(*range(1, 10))
    told = ["a.pcap: reading failed (the file shrank from", "a.pcap: the file was begun anew while it was read"]
    if anew is in_place:  # a moment ago something could have stood there that was not read
        assert len(followed.source.damages) == 2
        assert all(any(part in str(damage) for part in told) for damage in followed.source.damages)
        followed.source.damages.clear()
    followed.stop()


def test_a_file_that_is_written_anew_before_its_turn_is_told(folder: Path) -> None:
    capture(folder / "1", 1)
    capture(folder / "2", 2)
    capture(folder / "3", 3)
    of = source(folder, follow=True)
    of.start()
    blocks = of.blocks()
    seen = seconds(iter([next(blocks)]))
    in_place(folder / "2", 4)
    while len(seen) < 3:
        seen += seconds(iter([next(blocks)]))
    assert seen == [1, 4, 3]
    (damage,) = of.damages
    assert str(damage).startswith(f"{folder / '2'}: it was written anew before it was read")
    of.close()


def test_a_file_that_grows_when_a_later_one_was_begun_is_told_once(folder: Path) -> None:
    capture(folder / "1", 1)
    capture(folder / "2", 2)
    followed = Followed(folder)
    followed.reaches(1, 2)
    later = capture(folder.parent / "later", 3)[24:]
    for place in range(3, 6):
        with (folder / "1").open("ab") as file:
            file.write(later)
        capture(folder / str(place), place)
        followed.reaches(1, *range(2, place + 1))
    followed.stop(f"1: it grew by {len(later)} bytes when a later file had been begun: they are not read")


def test_what_is_no_capture_is_told_once_however_it_grows(folder: Path) -> None:
    (folder / "1").write_text("no capture")
    followed = Followed(folder)
    for place in range(2, 5):
        capture(folder / str(place), place)
        followed.reaches(*range(2, place + 1))
        with (folder / "1").open("a") as file:
            file.write("more of it")
    followed.stop("1: this is no capture")


def test_a_length_that_is_put_into_a_section_makes_no_other_file(folder: Path) -> None:
    """As some writers do at the end: the packets are the same."""
    path = folder / "a.pcapng"
    begin = captures.section("<") + captures.interface("<")
    path.write_bytes(begin + captures.enhanced("<", 0, 10**6, b"x", 1))
    followed = Followed(folder)
    followed.reaches(1)
    with path.open("r+b") as file:
        file.write(captures.section("<", length=len(path.read_bytes()) - 28))
        file.seek(0, os.SEEK_END)
        file.write(captures.enhanced("<", 0, 2 * 10**6, b"x", 1))
    followed.reaches(1, 2)
    capture(folder / "b.pcap", 3)
    followed.reaches(1, 2, 3)
    with path.open("r+b") as file:
        file.write(captures.section("<"))
    capture(folder / "c.pcap", 4)
    followed.reaches(1, 2, 3, 4)
    followed.stop()


@pytest.mark.parametrize("anew", [in_place, replaced])
def test_a_file_that_is_written_anew_between_the_passes_is_left_out(folder: Path, anew: Callable[..., None]) -> None:
    for place in (1, 2, 3):
        capture(folder / str(place), place)
    of = source(folder)
    of.start()
    blocks = of.blocks()
    first = next(blocks)
    anew(folder / "2", 9)
    assert seconds(iter([first, *blocks])) == [1, 3]
    (damage,) = of.damages
    assert str(damage).startswith(f"{folder / '2'}: it was written anew before it was read")
    of.close()


@pytest.mark.parametrize("follow", [False, True])
def test_what_is_looked_at_grows_with_the_number_of_files(
    tmp_path: Path, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with its square."""
    files = 300
    data = capture(tmp_path / "1", 1)
    for place in range(2, files + 1):
        (tmp_path / str(place)).write_bytes(data)
    calls = Counter[str]()
    for module, name in ((os, "stat"), (os, "fstat"), (os, "open"), (os, "pread"), (glob, "glob")):
        monkeypatch.setattr(module, name, counting(calls, name, getattr(module, name)))
    of = source(tmp_path, follow)
    of.start()
    seen = 0
    for block in of.blocks():
        seen += len(block)
        assert of.total_bytes == (None if follow else files * len(data))
        if seen == files:
            break
    assert seen == files
    assert calls["glob"] < 5
    assert sum(calls.values()) < 25 * files, calls
    of.close()


def counting(calls: Counter[str], name: str, function: Callable[..., object]) -> Callable[..., object]:
    def counted(*arguments: object, **options: object) -> object:
        calls[name] += 1
        return function(*arguments, **options)

    return counted
