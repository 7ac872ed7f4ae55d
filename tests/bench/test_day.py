"""That what a bucket keeps does not grow with the time that has passed."""

from __future__ import annotations

import pytest

from bench.day import most, simulate

HOUR = 6  # samples


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sliding", "distinct", "rows", "idle PA let go", "slide by rank", "stages"])
def test_state_stays_as_it_was(kind: str) -> None:
    samples = simulate(kind, hours=5, rate=2)
    (pieces, size), (later_pieces, later) = most(samples[:HOUR]), most(samples[-HOUR:])
    assert later_pieces <= 1.2 * pieces
    assert later <= 1.5 * size
    assert samples[-1].rows > samples[HOUR - 1].rows > 0
