"""The text of declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.disorder.declarations import DisorderError, Ordered, Scan, WithinTime, WithinTuples, parse_disorder


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("ordered", Ordered()),
        (" SCAN ", Scan()),
        ("within 2 s", WithinTime(2_000_000_000)),
        ("Within 2s", WithinTime(2_000_000_000)),
        ("within 1.5 seconds", WithinTime(1_500_000_000)),
        ("within 50 ms", WithinTime(50_000_000)),
        ("within 7 µs", WithinTime(7_000)),
        ("within 7 us", WithinTime(7_000)),
        ("within 0 ns", WithinTime(0)),
        ("within 3 minutes", WithinTime(180_000_000_000)),
        ("within 1 day", WithinTime(86_400_000_000_000)),
        ("within 500 tuples", WithinTuples(500)),
        ("within 1 tuple", WithinTuples(1)),
    ],
)
def test_declarations_are_read(text: str, declared: object) -> None:
    assert parse_disorder(text) == declared


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "disorder '' is not known; valid are: ordered, scan, within 2 s"),
        ("sorted", "'sorted' is not known"),
        ("within", "'within' is not known"),
        ("within -1 s", "not known"),
        ("within 2", "not known"),
        ("within 2 fortnights", "'fortnights' is no unit; valid are"),
        ("within 2.5 tuples", "a whole one, at most 1000000"),
        ("within 1000001 tuples", "a whole one, at most 1000000"),
        ("within 0.5 ns", "finer than a nanosecond"),
        ("within 999999999999 days", "more than the 53375 days"),
    ],
)
def test_other_declarations_are_refused_with_what_is_valid(text: str, said: str) -> None:
    with pytest.raises(DisorderError) as error:
        parse_disorder(text)
    assert said in str(error.value)


@given(st.one_of(st.integers(0, 2**62).map(WithinTime), st.integers(0, 10**6).map(WithinTuples)))
def test_what_is_shown_reads_as_the_same(declared: WithinTime | WithinTuples) -> None:
    assert parse_disorder(str(declared)) == declared


def test_shown_as_people_write_it() -> None:
    assert str(WithinTime(2_000_000_000)) == "within 2 s"
    assert str(WithinTime(50_000_000)) == "within 50 ms"
    assert [str(Ordered()), str(Scan())] == ["ordered", "scan"]
