"""Each result once, whatever is killed. `python -m bench.kills` does the same for longer."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.kills import Kills

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("LOWMARK_TEST_KILLS"),
        reason="three to four minutes, and not yet seen to pass often: LOWMARK_TEST_KILLS=1 runs it",
    ),
]

KILLS, WITHIN_S = 50, 180
"""As many, or as many as fit: a machine that is busy with other things takes a minute for a start."""


def test_each_result_is_there_once_whatever_is_killed_while_queries_and_sources_change(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILLS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"KILLS_SEED={seed}")
    with Kills(tmp_path, seed) as kills:
        kills.run(KILLS, WITHIN_S)
        kills.end()
    print(f"{dict(kills.kills)}; {kills.starts} starts, {kills.changes} changes")
    assert kills.count > 2
