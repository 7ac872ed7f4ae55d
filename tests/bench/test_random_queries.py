"""A slice of the random queries; that a round can be drawn again, and what a failure says."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import strategies as st

from bench.random_queries import KINDS, Failure, Kind, run_round

ABOVE = [name for name in KINDS if name not in ("command", "lists", "late", "piped")]


@pytest.mark.parametrize("name", ABOVE)
def test_a_slice(name: str) -> None:
    number = 1 if "CI" in os.environ else time.time_ns()
    found = run_round(KINDS[name], number, examples=6)
    assert not isinstance(found, Failure), f"seed {number}\n{found.text}"
    assert len(found) >= 6


def test_a_round_is_drawn_again_from_its_number() -> None:
    def run(data: st.DataObject) -> str:
        return str(data.draw(st.integers()))

    kind = Kind(run, examples=9)
    first, again, other = (run_round(kind, number, 9) for number in (3, 3, 4))
    assert first == again != other


def test_a_failure_tells_the_case() -> None:
    def run(data: st.DataObject) -> str:
        number = data.draw(st.integers(0, 100))
        assert number < 10, f"{number} is too great"
        return str(number)

    found = run_round(Kind(run, examples=30), 1, 30, shrink=True)
    assert isinstance(found, Failure)
    assert "10 is too great" in found.text
