"""A source that waits for bytes, be they the first ones of a capture, starts at once and can be stopped."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.config import FileConfig
from ingest.disorder.declarations import Ordered
from ingest.files.source import FileSource
from tests.fixtures import captures
from tests.naive.frames import Spec, frame, write_pcap


def _begun_gzip(data: bytes) -> bytes:
    """All of it can be unpacked, but the compressed data have not ended."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cut", [0, 5])
def test_stop_while_a_pipe_is_silent(packed: bool, cut: int, tmp_path: Path) -> None:
    """What had arrived was delivered; neither the capture's end nor a packet that was cut off is told as damage."""
    capture = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * 10**9)) for second in (1, 2, 3)]).read_bytes()
    sent = capture[: len(capture) - cut]
    reading, writing = os.pipe()
    os.write(writing, _begun_gzip(sent) if packed else sent)
    source = FileSource(FileConfig(name="a", stream="A", path=f"/dev/fd/{reading}", disorder=Ordered()))
    source.start()
    delivered = threading.Event()
    frames: list[int] = []

    def read() -> None:
        for block in source.blocks():
            frames.append(len(block))
            if sum(frames) == 3 - bool(cut):
                delivered.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert delivered.wait(20)
    source.stop()
    reader.join(10)
    assert not reader.is_alive()
    assert not source.ended
    assert not source.damages
    source.close()
    os.close(writing)
    os.close(reading)


def test_a_pipe_that_ends_ends_its_source(tmp_path: Path) -> None:
    capture = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=10**9))]).read_bytes()
    reading, writing = os.pipe()
    os.write(writing, gzip.compress(capture))
    os.close(writing)
    source = FileSource(FileConfig(name="a", stream="A", path=f"/dev/fd/{reading}", disorder=Ordered()))
    source.start()
    assert sum(map(len, source.blocks())) == 1
    assert source.ended
    source.close()
    os.close(reading)


PCAP = bytes(captures.pcap([]).data)
BEGINNINGS = {
    "nothing": b"",
    "one byte": PCAP[:1],
    "a part of a pcap's header": PCAP[:23],
    "a pcap's header": PCAP,
    "a part of a section's header": captures.section("<")[:10],
    "a section's header": captures.section("<"),
    "a part of gzip's magic": gzip.compress(PCAP)[:1],
    "gzip's header": gzip.compress(PCAP)[:10],
    "an empty gzip": gzip.compress(b""),
    "a pcap's header in gzip": _begun_gzip(PCAP),
    "a part of xz's magic": lzma.compress(PCAP)[:3],
    "xz's header": lzma.compress(PCAP)[:12],
}


def _pipe(folder: Path, beginning: bytes) -> tuple[FileConfig, Callable[[], None]]:
    """A named pipe that a process has opened for writing, and what ends it."""
    path = folder / "pipe"
    os.mkfifo(path)
    writing = os.open(path, os.O_RDWR)
    os.write(writing, beginning)
    return FileConfig(name="a", stream="A", path=str(path), disorder=Ordered()), lambda: os.close(writing)


def _unopened(folder: Path, _: bytes) -> tuple[FileConfig, Callable[[], None]]:
    """One that nobody has opened yet."""
    path = folder / "pipe"
    os.mkfifo(path)
    return FileConfig(name="a", stream="A", path=str(path), disorder=Ordered()), lambda: None


def _growing(folder: Path, beginning: bytes) -> tuple[FileConfig, Callable[[], None]]:
    path = folder / "growing"
    path.write_bytes(beginning)
    return FileConfig(name="a", stream="A", path=str(path), follow=True), lambda: None


def _last_of_a_folder(folder: Path, beginning: bytes) -> tuple[FileConfig, Callable[[], None]]:
    (folder / "1.pcap").write_bytes(PCAP)
    (folder / "2.pcap").write_bytes(beginning)
    return FileConfig(name="a", stream="A", path=str(folder), follow=True), lambda: None


def _empty_folder(folder: Path, _: bytes) -> tuple[FileConfig, Callable[[], None]]:
    return FileConfig(name="a", stream="A", path=str(folder), follow=True), lambda: None


@pytest.mark.parametrize(
    ("made", "beginning"),
    [
        *((made, beginning) for made in (_pipe, _growing, _last_of_a_folder) for beginning in BEGINNINGS),
        (_unopened, "nothing"),
        (_empty_folder, "nothing"),
    ],
)
def test_what_has_only_begun_starts_and_stops_at_once(
    made: Callable[[Path, bytes], tuple[FileConfig, Callable[[], None]]], beginning: str, tmp_path: Path
) -> None:
    """Neither is told as damage that nothing has come yet."""
    config, end = made(tmp_path, BEGINNINGS[beginning])
    source = FileSource(config)
    starter = threading.Thread(target=source.start, daemon=True)
    starter.start()
    starter.join(10)
    assert not starter.is_alive()
    waits, frames = threading.Event(), list[int]()

    def read() -> None:
        for block in source.blocks():
            frames.append(len(block))
            waits.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    if "gzip" not in beginning and "xz" not in beginning:  # of these it is not seen that they wait
        assert waits.wait(10)
    source.stop()
    reader.join(10)
    assert not reader.is_alive()
    assert sum(frames) == 0
    assert not source.ended
    assert not source.damages
    source.close()
    end()


def test_a_pipe_that_is_opened_late_is_read(tmp_path: Path) -> None:
    capture = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=10**9))]).read_bytes()
    config, _ = _unopened(tmp_path, b"")
    source = FileSource(config)
    source.start()
    blocks = source.blocks()
    assert len(next(blocks)) == 0
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(capture,))
    writer.start()
    assert sum(map(len, blocks)) == 1
    assert source.ended
    assert not source.damages
    writer.join()
    source.close()


@pytest.mark.parametrize("beginning", ["nothing", "a part of a pcap's header"])
def test_a_pipe_that_ends_before_its_capture_begins_is_unreadable(beginning: str, tmp_path: Path) -> None:
    config, _ = _unopened(tmp_path, b"")
    source = FileSource(config)
    source.start()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(BEGINNINGS[beginning],))
    writer.start()
    assert sum(map(len, source.blocks())) == 0
    writer.join()
    (damage,) = source.damages
    assert damage.offset is None
    assert "pipe: " in str(damage)
    source.close()
