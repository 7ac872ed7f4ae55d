"""What waits on disk comes back as it was and in its order, whatever the disk does."""

from __future__ import annotations

import errno
import os
from collections import deque
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowlevel.config import LowLevelConfigError, QueueConfig
from lowlevel.emitter import Emitter
from lowlevel.spill import Backlog, SpillError, SpillFolder
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.records.record import WireRecord, header

RECORDS = st.builds(
    WireRecord,
    st.none() | st.binary(max_size=9),
    st.binary(max_size=200),
    st.lists(st.builds(header, st.sampled_from(["a", "b"]), st.integers()), max_size=3).map(tuple),
)
in_tmp = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def numbered(number: int, size: int = 1000) -> WireRecord:
    return WireRecord(None, number.to_bytes(8, "big") + bytes(size), (header("sequence", number),))


@given(st.lists(st.lists(RECORDS) | st.integers(0, 5)))
@in_tmp
def test_first_in_first_out(tmp_path: Path, steps: list[list[WireRecord] | int]) -> None:
    """A number: so many are taken."""
    backlog = Backlog(SpillFolder(tmp_path))
    expected: deque[tuple[WireRecord, float]] = deque()
    now_s = 0.5
    for step in steps:
        if isinstance(step, int):
            for put in islice(backlog.drain(), step):
                assert put == expected.popleft()
                assert backlog.since_s == put[1]
        else:
            for record in step:
                now_s += 0.1
                backlog.put(record, now_s)
                expected.append((record, now_s))
                assert backlog.since_s <= expected[0][1]
        assert backlog.records == len(expected)
    assert list(backlog.drain()) == list(expected)
    assert not backlog


def test_a_disk_that_is_full_keeps_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not take stays in memory, behind what it took. When all has left, the disk is tried anew."""
    folder = SpillFolder(tmp_path)
    backlog = Backlog(folder)
    backlog.put(numbered(0), 1.5)
    write = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at + len(data) > 3000:
            write(file, data[:100], at)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    took = []
    for number in range(1, 5):
        backlog.put(numbered(number), 1.5)
        took.append(not folder.full)
    assert took == [True, False, False, False]
    assert list(backlog.drain()) == [(numbered(number), 1.5) for number in range(5)]
    backlog.put(numbered(5), 1.5)
    assert not folder.full


def test_a_small_record_that_fits_does_not_make_room_for_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Punctuations fit into what is left of a full disk: data that do not would pile up in memory."""
    write, room = os.pwrite, 3 << 20

    def nearly_full(file: int, data: bytes, at: int) -> int:
        nonlocal room
        if len(data) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        room -= len(data)
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    emitter = Emitter(KafkaSettings("127.0.0.1:1"), QueueConfig(max_bytes=1 << 20, spill=tmp_path))
    emitter.serve({"t": ["q"]})
    number = 0
    for _ in range(400):
        while emitter.room("t", 300_000):
            emitter.put("t", number % 3, numbered(number, 300_000))
            number += 1
        emitter.put("t", 3 + number % 3, numbered(number))
        number += 1
    (state,) = emitter.states()
    assert state.queued_bytes < 6 << 20


def test_a_folder_that_is_gone_keeps_the_order(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    files = SpillFolder(folder)
    backlog = Backlog(files)
    folder.rmdir()
    backlog.put(numbered(0), 1.5)
    backlog.put(numbered(1), 1.5)
    assert files.full
    assert list(backlog.drain()) == [(numbered(0), 1.5), (numbered(1), 1.5)]
    folder.mkdir()
    backlog.put(numbered(2), 1.5)
    assert not files.full


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path)
    files = []
    make = folder.file
    folder.file = lambda: files.append(make()) or files[-1]  # type: ignore[method-assign,func-returns-value]
    backlog = Backlog(folder)
    backlog.put(numbered(0), 1.5)
    os.ftruncate(files[0].fileno(), 20)
    with pytest.raises(SpillError, match="has been cut"):
        next(backlog.drain())


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    backlog = Backlog(SpillFolder(tmp_path))
    backlog.put(numbered(0), 1.5)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LowLevelConfigError, match="nothing can be written there"):
        Emitter(KafkaSettings("127.0.0.1:1"), QueueConfig(spill=tmp_path / "file"))


def test_room_is_that_of_memory_and_disk(tmp_path: Path) -> None:
    emitter = Emitter(KafkaSettings("127.0.0.1:1"), QueueConfig(max_bytes=1 << 20, spill=tmp_path, spill_bytes=2 << 20))
    emitter.serve({"t": ["q"]})
    number = 0
    while emitter.room("t", 10_000):
        emitter.put("t", number % 3, numbered(number, 10_000))
        number += 1
    (state,) = emitter.states()
    assert 2.8 * (1 << 20) < state.queued_bytes < 3.2 * (1 << 20)
    assert 1.9 * (1 << 20) < state.spilled_bytes <= 2.1 * (1 << 20)
    emitter.put("t", 0, numbered(number))  # a punctuation is taken in any case
    assert emitter.states()[0].queued_records == number + 1
