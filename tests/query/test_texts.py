"""A slice of the random texts: each is answered or refused in a sentence, in a moment. `bench.texts` tries any
number."""

from __future__ import annotations

import os
import time

import pytest

from tests.query.randomtexts import SHAPES, draw, try_text

_MOMENT_S = 5.0
"""On the processor: `bench.texts` holds it to one second, on a machine that does nothing else."""


@pytest.mark.parametrize("part", range(4))
def test_each_text_is_answered_or_refused_in_a_sentence(part: int) -> None:
    first = 1 if "CI" in os.environ else time.time_ns() // 1000
    answered = 0
    for seed in range(first + part * 100, first + part * 100 + 100):
        outcome = try_text(draw(seed))
        assert not outcome.found, f"seed {seed}\n{outcome.found}"
        assert outcome.answered or outcome.message, f"seed {seed}"
        assert outcome.seconds < _MOMENT_S, f"seed {seed}"
        answered += outcome.answered
    assert answered > 10


def test_a_seed_draws_its_text_again() -> None:
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert {draw(seed).shape for seed in range(99)} == set(SHAPES)
