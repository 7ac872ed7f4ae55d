"""A query is quarantined while a part of another bucket's results is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome
from tests.world.network import How, Interruption
from tests.world.schedule import Event, Kind
from tests.world.simulation import World
from tests.world.spark import Worker

_FAILS = "sliding"
_BEGIN = (
    Event(Kind.CAPTURE, 1, 0, 4.0), Event(Kind.CAPTURE, 1, 1, 4.0),
    Event(Kind.SEND, 2, 0, count=100), Event(Kind.SEND, 3, 1, count=100),
)  # fmt: skip


def _bucket(driver: BucketDriver) -> int | None:
    return driver._queries[0]._place.bucket if driver._queries else None


class _Fault:
    """From `armed` on, an operator of the query fails in all buckets but one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._raised = False
        self._begun = -1  # the bucket that has begun to write
        self.armed = False
        self.met = False  # whether a job without the query goes on with what was begun with it

    @contextmanager
    def in_force(self) -> Iterator[None]:
        flush = BucketDriver.flush

        def failing(driver: BucketDriver) -> Outcome:
            self._raised = self.armed and _bucket(driver) != self._begun and _FAILS in self._names(driver)
            if self._raised:
                raise ValueError("more than it takes")
            self.met |= _bucket(driver) == self._begun and self.armed and _FAILS in self._names(driver)
            return flush(driver)

        with (
            mock.patch.object(BucketDriver, "flush", failing),
            mock.patch.object(BucketDriver, "failed", property(lambda driver: (_FAILS,) if self._raised else ())),
        ):
            yield

    def stop_between_parts(self) -> None:
        """The job and its worker."""
        worker, job = self._world.network.current, self._world._job
        if not isinstance(worker, Worker) or job is None or job._query is None:
            return  # the job starts
        of = {key: bucket for (_, bucket), key in job._query._spec.placements.items()}
        self._begun = of[worker.key]
        job.kill()
        worker.alive = False

    def _names(self, driver: BucketDriver) -> set[str]:
        return {each.plan.name for each in driver._queries}


def test_the_other_queries_rows_are_there_once(tmp_path: Path) -> None:
    met = 0
    for seed in range(8):
        root = tmp_path / str(seed)
        root.mkdir()
        world = World(seed, root, ("tumbling", _FAILS))
        world._part_bytes, world._most = 100, 100
        fault = _Fault(world)
        with world.in_force(), fault.in_force():
            world.happen(_BEGIN)
            world._turn()
            world.network.arm(Interruption("commit_transaction", 1, How.OTHERS_GO_ON, work=fault.stop_between_parts))
            world._turn()
            world.network.disarm()
            fault.armed = True
            world.settle()
            world.plans = tuple(plan for plan in world.plans if plan.name != _FAILS)
            world.judge()
        assert not world.wrong, f"seed {seed}: {world.wrong} {world.story}"
        met += fault.met
    assert met
