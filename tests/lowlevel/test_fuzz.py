"""The fast build of the kernel equals the checked one on damaged frames; `bench.fuzz` does any number of them."""

from __future__ import annotations

import pytest

from bench.fuzz import differing


@pytest.mark.slow
def test_the_builds_agree_on_damaged_frames() -> None:
    assert differing(200_000, 1) is None
