"""The comparison of result rows that the acceptance tests stand on."""

from __future__ import annotations

import pytest

from tests.naive.compare import Row, differences, wrong_orders

ROW: Row = {"srcIP": "10.0.0.1", "n": 2, "share": 0.1}


@pytest.mark.parametrize(
    "other",
    [{"n": 2, "share": 0.1 + 1e-11, "srcIP": "10.0.0.1"}, {**ROW, "n": 2.0}, {**ROW, "n": 2.0000000001}],
)
def test_equal(other: Row) -> None:
    assert not differences([ROW, other], [other, ROW])


@pytest.mark.parametrize(
    "other",
    [{**ROW, "n": 3}, {**ROW, "n": "2"}, {**ROW, "n": None}, {**ROW, "share": 0.1 + 1e-8}, {**ROW, "n": True},
     {**ROW, "more": None}, {"srcIP": "10.0.0.1", "n": 2}],
)  # fmt: skip
def test_different(other: Row) -> None:
    assert differences([other], [ROW])
    assert differences([ROW], [other])


def test_booleans_are_no_numbers() -> None:
    assert differences([{"a": True}], [{"a": 1}])
    assert not differences([{"a": True}], [{"a": True}])


def test_bags() -> None:
    assert differences([ROW], [ROW, ROW])
    assert differences([ROW, ROW], [ROW])
    assert differences([ROW, ROW, {**ROW, "n": 1}], [ROW, {**ROW, "n": 1}, {**ROW, "n": 1}])


def test_order_is_that_of_each_window() -> None:
    a, b, c = ({"window_start": start, "window_end": start + 1, "n": n} for start, n in ((1, 1), (1, 2), (2, 0)))
    assert not wrong_orders([c, a, b], [a, b, c])
    assert wrong_orders([b, a, c], [a, b, c])
