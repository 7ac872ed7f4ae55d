"""Two first starts at once, on hosts without a common lock, at every moment of each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from highlevel.spark.errors import TakenOver
from tests.world.job import JobLife
from tests.world.network import How, Interruption
from tests.world.schedule import Event, Kind
from tests.world.simulation import World

_BEGIN = (Event(Kind.CAPTURE, 1, 0, 3.0), Event(Kind.SEND, 2, 0, count=100), Event(Kind.SEND, 3, 1, count=100))


@pytest.mark.parametrize("call", ["committed", "init_transactions", "commit_transaction"])
def test_of_two_first_starts_one_runs_and_the_other_says_so(tmp_path: Path, call: str) -> None:
    """While one of them reads or writes, the other starts and runs."""
    other: list[JobLife] = []
    for after in range(7):
        root = tmp_path / str(after)
        root.mkdir()
        world = World(1, root)
        with world.in_force():
            world.happen(_BEGIN)

            def meanwhile(world: World = world) -> None:
                other.append(world._begin(world.config, False))
                while other[-1].running and other[-1].turn():
                    pass

            world.network.arm(Interruption(call, after, How.OTHERS_GO_ON, work=meanwhile))
            other.clear()
            first = world._begin(world.config, False)
            world.network.disarm()
            if first.running:
                first.turn()
            lives = [first, *other]
            assert [life.refused for life in lives] == [None] * len(lives), f"at call {after}: {world.story}"
            assert {type(life.ended) for life in lives} <= {type(None), TakenOver}
            world._job = next((life for life in lives if life.running), None)
            world.settle()
            world.judge()
        assert not world.wrong, f"at call {after}"
