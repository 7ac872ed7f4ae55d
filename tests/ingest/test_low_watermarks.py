"""The laws of the low-watermark."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.columns import Columns
from ingest.disorder.declarations import Ordered, WithinTime, WithinTuples
from ingest.disorder.low_watermarks import NEVER, Lows, arrival_lows, least_after, scanned_lows
from lowmark.wire.frames import BAD_TIME
from lowmark.wire.rows.values import FOREVER

INT64 = st.integers(-(2**63), 2**63 - 1)
MINUTE = 60_000_000_000
NEAR = st.integers(-20, 20)
FAR = st.builds(lambda minutes, ns: minutes * MINUTE + ns, st.integers(-2, 3), st.integers(-2, 2))
TIMES = st.lists(st.one_of(st.none(), NEAR, NEAR, FAR, INT64), max_size=40)  # None: a frame without a time
CUTS = st.lists(st.integers(0, 40), max_size=6)
DECLARED = st.one_of(
    st.just(Ordered()),
    st.one_of(st.integers(0, 30), st.integers(0, 2**62)).map(WithinTime),
    st.integers(0, 12).map(WithinTuples),
)
Declared = Ordered | WithinTime | WithinTuples


def columns(times: list[int | None]) -> Columns:
    size = len(times)
    zero = np.zeros(size, np.int64)
    ts = np.array([12345 if t is None else t for t in times], np.int64)
    link = np.array([BAD_TIME if t is None else 1 for t in times], np.int32)
    return Columns(zero, zero, zero, ts, link)


def blocks(times: list[int | None], cuts: list[int]) -> list[Columns]:
    edges = [0, *sorted(min(c, len(times)) for c in cuts), len(times)]
    return [columns(times[a:b]) for a, b in pairwise(edges)]


def run(lows: Lows, parts: list[Columns]) -> tuple[list[int], list[int]]:
    """The low-watermark before every frame, and behind every block."""
    before, after = [], []
    for part in parts:
        low, low_after = lows.of(part)
        assert low.dtype == np.int64
        assert low.flags.c_contiguous
        before += low.tolist()
        after.append(low_after)
    return before, after


def believed(times: list[int | None]) -> list[int]:
    """The newest time that counts, behind each frame. The first nanosecond there is tells as little as none."""
    found: list[int] = []
    newest = confirmed = last = NEVER
    for time in times:
        if time not in (None, NEVER):
            if last == NEVER or time >= last - MINUTE:
                confirmed = max(confirmed, last)
            at_once = max(time - MINUTE, NEVER) <= confirmed
            newest = max(newest, confirmed, time if at_once else NEVER)
            last = time
        found.append(newest)
    return found


def by_definition(declared: Declared, times: list[int | None], place: int) -> int:
    """The low-watermark before the frame at `place`, by looking at everything before it."""
    match declared:
        case Ordered():
            seen, less = place, 0
        case WithinTime(bound_ns):
            seen, less = place, bound_ns
        case WithinTuples(count):
            seen, less = place - count, 0
    newest = believed(times)[seen - 1] if seen > 0 else NEVER
    return min(max(newest - less, NEVER), FOREVER - 1)


@given(declared=DECLARED, times=TIMES, cuts=CUTS)
@example(declared=Ordered(), times=[0, NEVER, 0], cuts=[])
def test_arrival_by_definition_wherever_blocks_are_cut(
    declared: Declared, times: list[int | None], cuts: list[int]
) -> None:
    parts = blocks(times, cuts)
    before, after = run(arrival_lows(declared), parts)
    whole = [by_definition(declared, times, place) for place in range(len(times) + 1)]
    assert before == whole[:-1]
    ends = np.cumsum([len(part.ts) for part in parts]).tolist()
    assert after == [whole[end] for end in ends]


@given(times=TIMES, cuts=CUTS)
def test_scan_promises_the_least_of_what_follows(times: list[int | None], cuts: list[int]) -> None:
    parts = blocks(times, cuts)
    before, after = run(scanned_lows(least_after(parts)), parts)
    ends = np.cumsum([len(part.ts) for part in parts]).tolist()
    known = [time for time in times if time is not None]
    greatest = min(max(known, default=NEVER), FOREVER - 1)
    assert after == [min((t for t in times[end:] if t is not None), default=greatest) for end in ends]
    promised = NEVER
    for part, end, low_after in zip(parts, ends, after, strict=True):
        assert before[end - len(part.ts) : end] == [promised] * len(part.ts)
        promised = low_after


@given(times=TIMES, cuts=CUTS)
def test_scan_promises_it_before_each_frame_where_blocks_are_cut_again(
    times: list[int | None], cuts: list[int]
) -> None:
    parts = blocks(times, cuts)
    before, after = run(scanned_lows(least_after(parts), within=True), parts)
    assert after == run(scanned_lows(least_after(parts)), parts)[1]
    greatest = min(max((time for time in times if time is not None), default=NEVER), FOREVER - 1)
    least = [min((t for t in times[place:] if t is not None), default=greatest) for place in range(len(times))]
    assert before == [min(low, greatest) for low in least]


@given(times=TIMES, cuts=CUTS, within=st.booleans())
def test_under_scan_nothing_is_ever_late(times: list[int | None], cuts: list[int], within: bool) -> None:
    parts = blocks(times, cuts)
    before, _ = run(scanned_lows(least_after(parts), within=within), parts)
    assert all(t is None or t >= low for t, low in zip(times, before, strict=True))


@given(declared=DECLARED, times=TIMES, cuts=CUTS)
def test_the_low_watermark_never_regresses(declared: Declared, times: list[int | None], cuts: list[int]) -> None:
    parts = blocks(times, cuts)
    makers: list[Callable[[], Lows]] = [
        lambda: arrival_lows(declared),
        lambda: scanned_lows(least_after(parts)),
        lambda: scanned_lows(least_after(parts), within=True),
    ]
    for lows in makers:
        before, after = run(lows(), parts)
        assert all(a <= b for a, b in pairwise(before))
        assert all(a <= b for a, b in pairwise(after))
        assert all(low < FOREVER for low in before + after)


@given(times=st.lists(st.integers(-1000, 1000), min_size=1, max_size=40), count=st.integers(0, 8), data=st.data())
def test_frames_at_most_n_places_late_are_on_time(times: list[int], count: int, data: st.DataObject) -> None:
    # In order, but within runs: no newer one came more than `count` places before.
    ordered, size = sorted(times), count + 1
    runs = [ordered[first : first + size] for first in range(0, len(ordered), size)]
    arrived: list[int | None] = [time for run_ in runs for time in data.draw(st.permutations(run_))]
    before, _ = run(arrival_lows(WithinTuples(count)), [columns(arrived)])
    assert all(t is not None and t >= low for t, low in zip(arrived, before, strict=True))


@given(times=st.lists(st.integers(-1000, 1000), max_size=40), bound=st.integers(0, 50), data=st.data())
def test_frames_delayed_within_the_bound_are_on_time(times: list[int], bound: int, data: st.DataObject) -> None:
    delays = data.draw(st.lists(st.integers(0, bound), min_size=len(times), max_size=len(times)))
    arrived: list[int | None] = [t for _, t in sorted((t + d, t) for t, d in zip(times, delays, strict=True))]
    before, _ = run(arrival_lows(WithinTime(bound)), [columns(arrived)])
    assert all(t is not None and t >= low for t, low in zip(arrived, before, strict=True))


def test_a_file_that_grew_between_the_passes_keeps_its_promises() -> None:
    parts = blocks([1, 2, 3, 4], [2])
    lows = scanned_lows(least_after(parts))
    _, after = run(lows, [*parts, columns([0])])
    assert after == [3, 4, 4]


YEARS = 40 * 365 * 24 * 60 * MINUTE


@given(
    seconds=st.lists(st.integers(0, 90), max_size=30), lone=st.sets(st.integers(0, 29)), declared=DECLARED, cuts=CUTS
)
def test_lone_frames_from_the_future_make_nothing_late(
    seconds: list[int], lone: set[int], declared: Declared, cuts: list[int]
) -> None:
    """Before any frame one, no two of them side by side."""
    arrived: list[int | None] = []
    for place, second in enumerate(sorted(seconds)):
        arrived += [YEARS - place] if place in lone else []
        arrived.append(second * MINUTE // 60)
    before, _ = run(arrival_lows(declared), blocks(arrived, cuts))
    assert all(time is not None and time >= low for time, low in zip(arrived, before, strict=True))


def test_a_jump_that_goes_on_is_followed_a_frame_later() -> None:
    hour = 60 * MINUTE
    before, after = run(arrival_lows(Ordered()), blocks([0, 1, hour, hour + 1], [3]))
    assert (before, after) == ([NEVER, NEVER, 1, 1], [1, hour + 1])


def test_a_calm_stream_counts_at_once() -> None:
    before, after = run(arrival_lows(Ordered()), blocks([0, 1, 5, 60 * MINUTE, 60 * MINUTE, 61 * MINUTE], [2, 3, 4, 5]))
    assert (before, after) == ([NEVER, NEVER, 1, 5, 5, 60 * MINUTE], [1, 5, 5, 60 * MINUTE, 61 * MINUTE])
