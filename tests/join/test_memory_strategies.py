"""Memory strategies of window-oblivious joins: the disk buffer with real files and limits, sorting, the policy."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highlevel.interface import State, Words
from highlevel.join.oblivious.disk_buffer import DiskBuffer, DiskBufferError, DiskFull, DiskRoom, room_of
from highlevel.join.oblivious.memory_policy import Handling, MemoryPolicy
from highlevel.join.oblivious.sort_buffer import SortBuffer, sort_space
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.optimize.buffer_model import Buffering, Traits, reserve_for
from tests.join.scrambled import scrambled, scrambling

BLOCK = 4096


def rows_of(keys: list[int], first: int = 0) -> Words:
    """A key, and a number that tells a row from all others."""
    return np.array([[key, first + at] for at, key in enumerate(keys)], np.int64).reshape(-1, 2).view(np.uint64)


def taken(buffer: DiskBuffer, least: int, through: int | None, state: State) -> list[list[int]]:
    return [row for part in buffer.take(least, through, state) for row in part.view(np.int64).tolist()]


def put_take() -> st.SearchStrategy[list[tuple[list[int], int, int | None]]]:
    """Keys that come, and then how many rows are wanted, and up to which key."""
    keys = st.lists(st.integers(-5, 400), max_size=12)
    wanted = st.tuples(st.integers(0, 10), st.one_of(st.none(), st.integers(-5, 400)))
    return st.lists(st.tuples(keys, wanted).map(lambda both: (both[0], *both[1])), max_size=30)


@given(steps=put_take(), restarts=st.booleans())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_disk_buffer_is_a_queue(
    tmp_path: Path, steps: list[tuple[list[int], int, int | None]], restarts: bool
) -> None:
    """Nothing is lost, and nothing passes another row; enough comes out; also if the state is read anew each time."""
    room = DiskRoom(tmp_path, 1 << 20, block=64)  # four rows
    store, came, out = MemoryByteStore(), 0, 0
    state = PiecewiseState(store, "stage")
    buffer = DiskBuffer("in.0", room, 2, 0)
    waiting: list[list[int]] = []
    for keys, least, through in steps:
        rows = rows_of(keys, came)
        came += len(keys)
        waiting += rows.view(np.int64).tolist()
        buffer.put(rows, state)
        found = taken(buffer, least, through, state)
        assert found == waiting[: len(found)]
        del waiting[: len(found)]
        out += len(found)
        assert len(found) >= min(least, len(waiting) + len(found))
        assert through is None or all(key > through for key, _ in waiting)
        assert buffer.waiting(state) == len(waiting)
        state.commit()
        if restarts:
            state, buffer = PiecewiseState(store, "stage"), DiskBuffer("in.0", room, 2, 0)
    assert taken(buffer, 1 << 30, None, state) == waiting
    if restarts:  # blocks of a state that was thrown away
        gc.collect()
    assert (room.used, room.size) == (0, 0)
    room.close()


def test_rows_that_wait_are_not_in_memory(tmp_path: Path) -> None:
    room, state = DiskRoom(tmp_path, 1 << 24, block=BLOCK), MemoryState()
    buffer = DiskBuffer("in.0", room, 2, 0)
    for first in range(0, 100_000, 1000):
        buffer.put(rows_of(list(range(first, first + 1000))), state)
    assert buffer.waiting(state) == 100_000
    assert buffer.held(state) < BLOCK
    assert room.size >= 100_000 // 256 * BLOCK
    assert list(tmp_path.iterdir()) == []  # the file has no name: nothing is left over when the process is killed
    parts = buffer.take(100_000, None, state)
    assert max(part.nbytes for part in parts) <= BLOCK
    assert room.size == 0


def test_room_is_used_again(tmp_path: Path) -> None:
    """The file does not grow with what has passed through it."""
    room, state = DiskRoom(tmp_path, 40 * BLOCK, block=BLOCK), MemoryState()
    buffer = DiskBuffer("in.0", room, 2, 0)
    for at in range(500):
        buffer.put(rows_of(list(range(at * 256, (at + 1) * 256))), state)
        if at >= 20:
            assert len(taken(buffer, 256, None, state)) == 256
    assert buffer.refused is None
    assert room.size <= 40 * BLOCK


def test_a_reached_limit_is_told_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room, state = DiskRoom(tmp_path, 2 * BLOCK, block=BLOCK), MemoryState()
    buffer = DiskBuffer("in.0", room, 2, 0)
    buffer.put(rows_of(list(range(1000))), state)
    assert buffer.refused == f"the disk buffer in {tmp_path} holds the 8,192 bytes that it may take"
    assert "rows wait in memory" in caplog.text
    assert buffer.held(state) == (1000 - 512) * 16
    assert len(taken(buffer, 300, None, state)) == 512
    buffer.put(rows_of(list(range(1000, 1100))), state)
    assert buffer.refused is None
    assert [key for key, _ in taken(buffer, 1000, None, state)] == list(range(512, 1100))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path, 2 * BLOCK, block=BLOCK)
    room._file.close()
    room._file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115  # closed below
    with pytest.raises(DiskFull, match="takes no more: No space left on device; 0 bytes of rows are on it"):
        room.write(b"rows")
    room.close()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskBufferError, match="nothing can be written there: Not a directory"):
        DiskRoom(tmp_path / "file" / "inside", 1 << 20)
    with pytest.raises(DiskBufferError, match="less than one block; give it 262,144 bytes or more"):
        DiskRoom(tmp_path, 1000)


def test_a_host_without_a_folder_for_temporary_files_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    with pytest.raises(DiskBufferError, match="No usable temporary directory found; set TMPDIR"):
        room_of(12_345_678)


@pytest.mark.parametrize(("change", "words"), [(b"", "has been cut"), (b"x" * BLOCK, "not those that were written")])
def test_damage_is_told(tmp_path: Path, change: bytes, words: str) -> None:
    room, state = DiskRoom(tmp_path, 2 * BLOCK, block=BLOCK), MemoryState()
    buffer = DiskBuffer("in.0", room, 2, 0)
    buffer.put(rows_of(list(range(256))), state)
    os.ftruncate(room._file.fileno(), 0)
    os.pwrite(room._file.fileno(), change, 0)
    with pytest.raises(DiskBufferError, match=words):
        list(buffer.take(1, None, state))


@given(keys=scrambled(), cut=st.integers(1, 9))
def test_sorted_rows_leave_in_order(keys: list[int], cut: int) -> None:
    """After k others, if k is the scrambling factor (4.1)."""
    space = sort_space("sorting", 2, 0)
    piece, left = SortBuffer(np.empty((0, 2), np.uint64), 0), []
    for at in range(0, len(keys), cut):
        left += piece.add(rows_of(keys[at : at + cut], at), scrambling(keys)).view(np.int64).tolist()
        piece = space.decode(space.encode(piece))
        assert len(piece.rows) <= scrambling(keys)
    left += piece.add(rows_of([]), scrambling(keys), below=1 << 40).view(np.int64).tolist()
    assert left == sorted([key, at] for at, key in enumerate(keys))
    assert not len(piece.rows)


INPUTS = (Traits(50, 100, 2), Traits(50, 200, 3))
AHEAD = ((0, 5000), (-5000, 0))
TOGETHER = ((0, 0), (0, 0))


def test_the_policy_spills_what_is_far_ahead() -> None:
    policy = MemoryPolicy((24, 24), forced=Buffering.DISK, reserve=100, in_flight=50)
    keeps = Handling(0, False, 0)
    assert policy.handling(Buffering.DISK, INPUTS, (249, 0), (0, 0)) == (keeps, keeps)
    assert policy.handling(Buffering.DISK, INPUTS, (250, 0), (0, 0)) == (Handling(0, True, 0), keeps)
    assert policy.handling(Buffering.DISK, INPUTS, (40, 0), (500, 0))[0] == Handling(0, True, 60)
    assert policy.handling(Buffering.KEEP, INPUTS, (40, 0), (500, 0))[0] == Handling(0, True, 500)
    assert policy.handling(Buffering.SORT, INPUTS, (4000, 0), (0, 0)) == (
        Handling(100, False, 0),
        Handling(200, False, 0),
    )


def test_without_a_reserve_rows_on_disk_have_no_partners_in_memory() -> None:
    policy = MemoryPolicy((24, 24))
    assert reserve_for(INPUTS, Buffering.DISK) == 400
    assert reserve_for(INPUTS, Buffering.HYBRID) == 6
    assert policy.handling(Buffering.HYBRID, INPUTS, (9, 0), (0, 0))[0] == Handling(100, True, 0)


def test_the_policy_follows_the_bound() -> None:
    """Up at once, down when there is room to spare."""
    policy = MemoryPolicy((24, 24), bound=24 * 1000)
    assert policy.strategy(INPUTS, TOGETHER, Buffering.KEEP) is Buffering.KEEP
    assert policy.strategy(INPUTS, AHEAD, Buffering.KEEP) is Buffering.DISK
    assert policy.strategy(INPUTS, TOGETHER, Buffering.DISK) is Buffering.KEEP
    tight = MemoryPolicy((24, 24), bound=24 * 620)
    assert tight.strategy(INPUTS, TOGETHER, Buffering.KEEP) is Buffering.KEEP
    assert tight.strategy(INPUTS, TOGETHER, Buffering.DISK) is Buffering.DISK
    assert MemoryPolicy((24, 24), bound=24).strategy(INPUTS, AHEAD, Buffering.KEEP) is Buffering.HYBRID
    assert MemoryPolicy((24, 24)).strategy(INPUTS, AHEAD, Buffering.HYBRID) is Buffering.KEEP


def test_blocks_may_be_collected_while_the_room_is_at_work(tmp_path: Path) -> None:
    """The collector of garbage runs anywhere, also in a thread that has just locked the room."""
    room, state = DiskRoom(tmp_path, 8 * BLOCK, block=BLOCK), MemoryState()
    buffer = DiskBuffer("in.0", room, 2, 0)
    buffer.put(rows_of(list(range(1024))), state)
    assert room.used == 4 * BLOCK
    cycle: list[object] = [state]
    cycle.append(cycle)
    with room._lock:
        del state, cycle
        gc.collect()
    assert (room.used, room.size) == (0, 0)
