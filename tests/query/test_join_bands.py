"""The windows of a join against their definition, over small times."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.windows.join_bands import Bands
from lowmark.wire.rows.values import FOREVER, NEVER

TIMES = range(-6, 20)


@st.composite
def bands(draw: st.DrawFn) -> Bands:
    tumbling = draw(st.booleans())
    count = draw(st.integers(2, 3))
    size = st.integers(1, 5)
    return Bands((draw(size),) * count if tumbling else tuple(draw(size) for _ in range(count)), tumbling)


def meet(of: Bands, i: int, a: int, j: int, b: int) -> bool:
    """DESIGN: for inputs i before j, i.a - size(j) <= j.a < i.a + size(i)."""
    if of.tumbling:
        return a // of.sizes[0] == b // of.sizes[0]
    if i > j:
        i, a, j, b = j, b, i, a
    return a - of.sizes[j] <= b < a + of.sizes[i]


@given(bands())
def test_partners_are_those_of_the_definition(of: Bands) -> None:
    for i, j in product(range(len(of.sizes)), repeat=2):
        if i != j:
            for time in range(12):
                low, high = of.partners(i, time, j)
                assert [b for b in TIMES if meet(of, i, time, j, b)] == list(range(low, high))


@given(bands(), st.data())
def test_alive_is_what_can_meet_a_row_to_come(of: Bands, data: st.DataObject) -> None:
    bounds = [data.draw(st.one_of(st.integers(0, 8), st.sampled_from((NEVER, FOREVER)))) for _ in of.sizes]
    for i in range(len(of.sizes)):
        others = [(j, bound) for j, bound in enumerate(bounds) if j != i and bound != FOREVER]
        waiting = {
            a for a in range(12) if any(meet(of, i, a, j, b) and b >= bound for j, bound in others for b in TIMES)
        }
        assert waiting == {a for a in range(12) if a >= of.alive(i, bounds)}


@given(bands(), st.data())
def test_later_rows_lie_at_their_bounds_or_behind(of: Bands, data: st.DataObject) -> None:
    """A later row has a row to come in it; and the bound of each time is the least that there can be."""
    bounds = [data.draw(st.integers(0, 8)) for _ in of.sizes]
    least = of.output(bounds)
    later = [
        times
        for times in product(TIMES, repeat=len(of.sizes))
        if of.together(times) and any(time >= bound for time, bound in zip(times, bounds, strict=True))
    ]
    for i, bound in enumerate(least):
        assert all(times[i] >= bound for times in later)
        if len(of.sizes) == 2:
            assert min(times[i] for times in later) == bound


@given(bands(), st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)))
def test_together_is_of_every_pair(of: Bands, times: tuple[int, int, int]) -> None:
    chosen = times[: len(of.sizes)]
    pairs = [(i, j) for i in range(len(chosen)) for j in range(i)]
    assert of.together(chosen) == all(meet(of, i, chosen[i], j, chosen[j]) for i, j in pairs)


def test_nothing_is_known_before_all_have_promised() -> None:
    of = Bands((3, 2), False)
    assert of.output((NEVER, 5)) == (NEVER, NEVER)
    assert of.output((FOREVER, FOREVER)) == (FOREVER, FOREVER)
    assert of.output((FOREVER, 5)) == (3, 5)
    assert (of.alive(0, (FOREVER, 5)), of.alive(1, (FOREVER, 5))) == (3, FOREVER)
