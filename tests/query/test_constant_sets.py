"""Sets as ranges: against sets of numbers."""

from __future__ import annotations

import math
import pickle
from ipaddress import ip_address, summarize_address_range
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.expr.constant_sets import KeyRange, Ranges, blocks, key_of, value_of
from lowmark.wire.rows.schema import Kind

_BOUNDS = {
    kind: (0, 2 ** (64 * kind.words) - 1) if kind.words > 1 else (-(2**63), 2**63 - 1)
    for kind in (Kind.INT, Kind.IP, Kind.COMMUNITY_ID)
}
KINDS = st.sampled_from(sorted(_BOUNDS, key=lambda kind: kind.value))


def spans_near(kind: Kind) -> st.SearchStrategy[list[KeyRange]]:
    """About the ends of the kind, where a word ends, and where its sign turns."""
    least, most = _BOUNDS[kind]
    starts = [least, most - 40, 0, *((1 << 63, 1 << 64, 1 << 127) if kind.words > 1 else (-20,))]
    one = st.tuples(st.sampled_from(starts), st.integers(0, 30), st.integers(0, 9))
    return st.lists(one.map(lambda t: (t[0] + t[1], t[0] + t[1] + t[2])), max_size=12)


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), spans_near(kind))))
def test_a_set_holds_what_its_parts_hold_in_ranges_that_do_not_touch(asked: tuple[Kind, list[KeyRange]]) -> None:
    kind, spans = asked
    ranges = Ranges.of(kind, spans)
    held = {key for first, last in spans for key in range(first, last + 1)}
    found = list(ranges.spans)
    assert {key for first, last in found for key in range(first, last + 1)} == held
    assert len(found) == len(ranges)
    assert all(first <= last for first, last in found)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    assert all(key in ranges for key in held)
    least, most = _BOUNDS[kind]
    outside = {key + step for key in held for step in (-1, 1)} - held
    assert not any(key in ranges for key in outside if least <= key <= most)


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), spans_near(kind), st.randoms())))
def test_equal_sets_are_equal_however_they_are_made(asked: tuple[Kind, list[KeyRange], Random]) -> None:
    kind, spans, random = asked
    ranges = Ranges.of(kind, spans)
    keys = [(key, key) for first, last in spans for key in range(first, last + 1)]
    random.shuffle(keys)
    same = Ranges.of(kind, keys)
    assert (same, hash(same), same.digest, repr(same)) == (ranges, hash(ranges), ranges.digest, repr(ranges))
    assert pickle.loads(pickle.dumps(ranges)) == ranges


@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), spans_near(kind))))
def test_rows_are_in_order_as_signed_words(asked: tuple[Kind, list[KeyRange]]) -> None:
    rows = [tuple(row) for row in Ranges.of(*asked).matrix.tolist()]
    words = asked[0].words
    firsts, lasts = [row[:words] for row in rows], [row[words:] for row in rows]
    assert firsts == sorted(firsts)
    assert all(first <= last for first, last in zip(firsts, lasts, strict=True))


@given(st.lists(st.floats(allow_nan=False), max_size=8), st.floats())
def test_doubles_are_in_a_set_as_they_are_equal(values: list[float], sought: float) -> None:
    keys = [key_of(Kind.FLOAT, value) for value in values]
    ranges = Ranges.of(Kind.FLOAT, [(key, key) for key in keys if key is not None])
    assert all(value in ranges for value in values)
    assert (sought in ranges) == any(sought == value for value in values)
    assert all(value_of(Kind.FLOAT, key) == value for key, value in zip(keys, values, strict=True) if key is not None)


def test_a_set_of_doubles_knows_one_zero_and_no_nan() -> None:
    zero = key_of(Kind.FLOAT, -0.0)
    assert zero == 0
    assert 0.0 in Ranges.of(Kind.FLOAT, [(0, 0)])
    assert key_of(Kind.FLOAT, math.nan) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_blocks_are_the_prefixes_of_a_range(one: int, other: int) -> None:
    first, last = sorted((one, other))
    networks = summarize_address_range(ip_address(first), ip_address(last))
    expected = [(int(network.network_address), int(network.broadcast_address)) for network in networks]
    assert list(blocks((first, last))) == expected


@pytest.mark.parametrize(("spans", "only"), [([], None), ([(7, 7)], 7), ([(7, 8)], None), ([(7, 7), (9, 9)], None)])
def test_the_one_value_of_a_set(spans: list[KeyRange], only: int | None) -> None:
    assert Ranges.of(Kind.INT, spans).only == only
