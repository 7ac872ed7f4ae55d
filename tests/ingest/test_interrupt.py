"""A source that waits for bytes of a pipe can be stopped."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from pathlib import Path

import pytest

from ingest.config import FileConfig
from ingest.disorder import Ordered
from ingest.source import FileSource
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
