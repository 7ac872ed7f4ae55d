"""The laws of replays. No test waits: the clock is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from ingest.config import Playback
from ingest.disorder.low_watermarks import NEVER
from ingest.files.replay import replayed
from lowmark.wire.frames import BAD_TIME, FrameBlock
from lowmark.wire.rows.values import FOREVER

HOUR = 3_600_000_000_000
SECOND = 1_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)


class Clock:
    def __init__(self, stop_after: int = 10**9) -> None:
        self.now = 0
        self.left = stop_after

    def wait(self, seconds: float) -> bool:
        assert seconds > 0
        self.now += max(1, round(seconds * 1e9))
        self.left -= 1
        return self.left < 0


def blocks(times: list[list[int | None]], ended: bool = True) -> Iterator[FrameBlock]:
    """Ordered by declaration, whatever the times are."""
    low = NEVER
    for part in times:
        ts = np.array([7 if t is None else t for t in part], np.int64)
        link = np.array([BAD_TIME if t is None else 1 for t in part], np.int32)
        timed = np.where(link == BAD_TIME, NEVER, ts)
        newest = np.maximum.accumulate(np.append(np.int64(low), timed)) if len(part) else np.array([low])
        newest = np.minimum(newest, FOREVER - 1)
        low = int(newest[-1])
        zero = np.zeros(len(part), np.int64)
        yield FrameBlock(np.zeros(0, np.uint8), np.arange(len(part)), zero, zero, ts, link, newest[:-1], low, dropped=1)
    if ended:
        none = np.zeros(0, np.int64)
        yield FrameBlock(np.zeros(0, np.uint8), none, none, none, none, np.zeros(0, np.int32), none, int(FOREVER))


def play(times: list[list[int | None]], replay: Playback, clock: Clock | None = None) -> list[tuple[int, FrameBlock]]:
    clock = clock or Clock()
    return [
        (clock.now, b) for b in replayed(blocks(times), replay, start_ns=0, now_ns=lambda: clock.now, wait=clock.wait)
    ]


def arrivals(played: list[tuple[int, FrameBlock]]) -> list[tuple[int, int]]:
    """When each frame came, and its time."""
    return [(at, ts) for at, block in played for ts in block.ts.tolist()]


PARTS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 100 * SECOND)), max_size=10), max_size=5)


@given(times=PARTS, pace=st.sampled_from([0.5, 1.0, 10.0]))
def test_frames_come_in_order_never_early_and_at_most_a_tick_late(times: list[list[int | None]], pace: float) -> None:
    tick = 20_000_000
    played = play(times, Playback(pace=pace, tick_ns=tick))
    plain = [t for part in times for t in part]
    assert [ts for _, ts in arrivals(played)] == [7 if t is None else t for t in plain]
    timed = [t for t in plain if t is not None]
    newest = None
    for (at, _), t in zip(arrivals(played), plain, strict=True):
        # Everything is within a minute and forty seconds; whoever is doubted may only come early.
        newest = t if newest is None else newest if t is None else max(newest, t)
        if newest is not None:
            assert at <= max(0.0, (newest - timed[0]) / pace) + tick + 1000
    assert all(a <= b for (a, _), (b, _) in pairwise(arrivals(played)))
    assert played[-1][1].low_after == FOREVER


@given(times=PARTS)
def test_a_block_comes_several_times_a_second_whatever_falls_due(times: list[list[int | None]]) -> None:
    played = play(times, Playback(pace=1.0))
    assert all(b - a <= 200_000_000 + 1000 for (a, _), (b, _) in pairwise(played))


@given(times=PARTS, pace=st.sampled_from([None, 1.0]))
def test_promises_and_counts_survive_the_cutting(times: list[list[int | None]], pace: float | None) -> None:
    played = [b for _, b in play(times, Playback(pace=pace))]
    before = [low for b in blocks(times) for low in b.low.tolist()]
    assert [low for b in played for low in b.low.tolist()] == before
    assert sum(b.dropped for b in played) == len(times)
    for block, following in pairwise(played):
        assert block.low_after <= (following.low[0] if len(following) else following.low_after)


@given(
    times=st.lists(st.lists(st.one_of(st.none(), INT64), max_size=8), max_size=4), to=INT64, origin=st.none() | INT64
)
def test_rebasing_shifts_times_and_promises_alike(times: list[list[int | None]], to: int, origin: int | None) -> None:
    played = [b for _, b in play(times, Playback(rebase_to_ns=to, rebase_from_ns=origin))]
    plain = [t for part in times for t in part]
    first = origin if origin is not None else next((t for t in plain if t is not None), None)
    assume(first is not None)
    assert first is not None
    links = [x for b in played for x in b.link.tolist()]
    stamps = [x for b in played for x in b.ts.tolist()]
    lows = [x for b in played for x in b.low.tolist()]
    old = [x for b in blocks(times) for x in b.low.tolist()]
    for t, link, ts, low, was in zip(plain, links, stamps, lows, old, strict=True):
        fits = t is not None and -(2**63) <= t - first + to < 2**63
        assert (link != BAD_TIME) == fits or abs(to - first) >= 2**64 - 1
        assert link == BAD_TIME or (t is not None and ts == t - first + to)
        assert low == NEVER or low <= max(was - first + to, NEVER)
        # Who was not late before is not late now.
        assert link == BAD_TIME or t is None or t < was or ts >= low
    assert all(a <= b for a, b in pairwise(lows))
    assert played[-1].low_after == FOREVER


def test_two_sources_are_rebased_by_one_origin() -> None:
    replay = Playback(rebase_to_ns=10**18, rebase_from_ns=100 * SECOND)
    (_, first), _ = play([[100 * SECOND]], replay)
    (_, second), _ = play([[103 * SECOND]], replay)
    assert second.ts[0] - first.ts[0] == 3 * SECOND
    assert first.ts[0] == 10**18


def test_a_lone_frame_far_ahead_holds_nothing_up() -> None:
    played = arrivals(play([[0, SECOND, 900 * HOUR, 2 * SECOND, 3 * SECOND]], Playback(pace=1.0)))
    assert [at for at, _ in played] == [0, SECOND, SECOND, 2 * SECOND, 3 * SECOND]


def test_a_lone_frame_far_ahead_at_the_end_of_a_block_holds_nothing_up() -> None:
    played = arrivals(play([[0, SECOND, 900 * HOUR], [2 * SECOND, 3 * SECOND]], Playback(pace=1.0)))
    assert [at for at, _ in played] == [0, SECOND, SECOND, 2 * SECOND, 3 * SECOND]


def test_a_real_lull_is_waited_for() -> None:
    played = arrivals(play([[0, SECOND, HOUR, HOUR + SECOND]], Playback(pace=1.0)))
    assert [at for at, _ in played] == [0, SECOND, HOUR, HOUR + SECOND]


def test_a_lull_between_blocks_of_one_frame_is_waited_for_from_the_second_on() -> None:
    played = arrivals(play([[0], [HOUR], [HOUR + SECOND], [HOUR + 2 * SECOND]], Playback(pace=1.0)))
    assert [at for at, _ in played] == [0, 0, HOUR + SECOND, HOUR + 2 * SECOND]


def test_stopping_while_it_waits_ends_the_replay() -> None:
    played = play([[0, SECOND, 2 * SECOND]], Playback(pace=1.0), Clock(stop_after=5))
    assert [ts for _, ts in arrivals(played)] == [0, SECOND]


def test_a_fast_capture_is_delivered_in_ticks() -> None:
    played = play([[n * 1_000 for n in range(100_000)]], Playback(pace=1.0, tick_ns=10_000_000))
    assert 10 <= len(played) <= 13
