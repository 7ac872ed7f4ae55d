"""A simulated Spark: the micro-batches of one query, its logs and its state on the disk, and tasks that run twice.

As Spark does it: a batch's input is written down before it runs, its end after its output was handed over. A restarted
query runs a batch again whose end is not written down, with the same input, from the state before it. Nothing that it
writes is made durable.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from pyspark.sql import Row

from highlevel.spark.checkpoint.placement import task_of
from tests.world.clients import Broker
from tests.world.log import Place
from tests.world.network import How, Interruption, Killed, Process

__all__ = ["Session", "Stream"]

Offsets = dict[Place, int]
Pieces = dict[tuple[str, int], bytes]
State = dict[int, Pieces]
Work = list[tuple[int, list[Row], Pieces]]
"""Of a task: keys with their rows and the state before."""

_WORKERS = 2
_CALLS = ("flush", "send_offsets_to_transaction", "commit_transaction", "init_transactions")


class Worker(Process):
    """A worker process of Python. It may outlive the driver by the task that it does."""

    def __init__(self, session: Session, number: int) -> None:
        super().__init__(f"worker {number} of {session.owner}")
        self.session = session
        self.sinks: dict[str, Any] = {}  # by place
        self.task = 0  # the one that it does …
        self.key = 0  # … and the key whose rows it has


class Session:
    """A SparkSession of one process. `read` is what `highlevel.spark.source.partials` is replaced by."""

    def __init__(self, broker: Broker, owner: Process, random: Random, most: int) -> None:
        self.owner = owner
        self.streams = SimpleNamespace(addListener=lambda of: None, removeListener=lambda of: None)
        self.properties: dict[str, str] = {}
        self.sparkContext = SimpleNamespace(setLocalProperty=self.properties.__setitem__)
        self.workers = [Worker(self, number) for number in range(_WORKERS)]
        self.broker = broker
        self.random = random
        self.most = most  # records of a partition in one batch
        self.twice = 0  # tasks that will run twice
        self.started: Stream | None = None

    def other_worker(self, than: Worker) -> Worker:
        return next(worker for worker in self.workers if worker is not than)

    def read(self, keys: Mapping[str, list[int]], starts: Mapping[str, Sequence[int]]) -> Frame:
        return Frame(self, keys, starts)


class Frame:
    """The chain of calls by which a query is made."""

    def __init__(self, session: Session, keys: Mapping[str, list[int]], starts: Mapping[str, Sequence[int]]) -> None:
        self._session = session
        self._keys = keys
        self._starts = starts
        self._processor: Any = None
        self._take: Callable[[Any, int], None] = lambda batch, number: None
        self._folder = Path()

    def groupBy(self, key: str) -> Frame:
        return self

    def transformWithState(self, processor: Any, *how: object) -> Frame:
        self._processor = processor
        return self

    @property
    def writeStream(self) -> Frame:
        return self

    def foreachBatch(self, take: Callable[[Any, int], None]) -> Frame:
        self._take = take
        return self

    def option(self, name: str, value: str) -> Frame:
        if name == "checkpointLocation":
            self._folder = Path(value)
        return self

    def queryName(self, name: str) -> Frame:
        return self

    def start(self) -> Stream:
        self._session.started = Stream(
            self._session, self._keys, self._starts, self._processor, self._take, self._folder
        )
        return self._session.started


class Stream:
    """A running query. `turn` runs its next batch."""

    def __init__(
        self, session: Session, keys: Mapping[str, list[int]], starts: Mapping[str, Sequence[int]], processor: Any,
        take: Callable[[Any, int], None], folder: Path,
    ) -> None:  # fmt: skip
        self._session = session
        self._keys = {(topic, partition): key for topic, each in keys.items() for partition, key in enumerate(each)}
        self._starts = {(topic, at): offset for topic, of in starts.items() for at, offset in enumerate(of)}
        self._processor = processor
        self._take = take
        self._folder = folder
        self.isActive = True
        self.status = {"message": ""}
        self.lastProgress = None
        self._failure: Exception | None = None
        self._tasks: int = processor._spec.tasks
        for log in ("offsets", "commits", *(f"state/0/{shard}" for shard in range(self._tasks))):
            (folder / log).mkdir(parents=True, exist_ok=True)
        metadata = folder / "metadata"
        if not metadata.exists():
            metadata.write_text('{"id":"world"}')

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        self.isActive = False

    def turn(self) -> bool:
        """Run a batch; False: there is nothing to read. What it raises has ended the query."""
        try:
            return self._turn()
        except Exception as error:
            self.isActive = False
            self._failure = error
            raise

    def _turn(self) -> bool:
        planned, ended = self._last("offsets"), self._last("commits")
        if planned > ended:
            number = planned
        else:
            number = planned + 1
            before = self._offsets(planned)
            now = self._ends(before)
            if now == before:
                return False
            by_topic: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in now.items():
                by_topic.setdefault(topic, {})[str(partition)] = offset
            text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(by_topic)}'
            (self._folder / "offsets" / str(number)).write_text(text)
        self._take(Batch(lambda: self._run(number)), number)
        self._session.broker.network.check(self._session.owner)
        (self._folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return True

    def _last(self, log: str) -> int:
        return max((int(file.name) for file in (self._folder / log).iterdir()), default=-1)

    def _offsets(self, number: int) -> Offsets:
        if number < 0:
            return self._first()
        lines = (self._folder / "offsets" / str(number)).read_text().splitlines()
        return {(topic, int(part)): end for topic, parts in json.loads(lines[2]).items() for part, end in parts.items()}

    def _first(self) -> Offsets:
        """Where the first batch begins. It is written down, because a later start does not say it any more."""
        file = self._folder / "starts"
        if not file.exists():
            file.write_bytes(pickle.dumps(self._starts))
        starts: Offsets = pickle.loads(file.read_bytes())
        return starts

    def _ends(self, before: Offsets) -> Offsets:
        found: Offsets = {}
        for place in self._keys:
            partition = self._session.broker.log[place]
            start = max(before.get(place, 0), partition.low)
            found[place] = max(before.get(place, 0), min(partition.stable, start + self._session.most))
        return found

    def _run(self, number: int) -> list[Row]:
        """Run the batch's tasks; the state after it is the next version."""
        before, upto = self._offsets(number - 1), self._offsets(number)
        state = self._state(number)
        rows: dict[int, list[Row]] = {}
        for place, key in self._keys.items():
            first = before.get(place, 0)
            found = self._read(place, first, upto.get(place, first))
            if found:
                rows.setdefault(key, []).extend(found)
        reports: list[Row] = []
        tasks = sorted({task_of(key, self._tasks) for key in rows})
        self._session.random.shuffle(tasks)
        for task in tasks:
            keys = sorted(key for key in rows if task_of(key, self._tasks) == task)
            self._session.random.shuffle(keys)
            for key in keys:
                self._session.random.shuffle(rows[key])
            done, after = self._task(task, [(key, rows[key], state.get(key, {})) for key in keys])
            reports += done
            state |= after
        for shard in range(self._tasks):
            pieces = {key: of for key, of in state.items() if task_of(key, self._tasks) == shard}
            (self._folder / f"state/0/{shard}/{number + 1}.changelog").write_bytes(pickle.dumps(pieces))
        return reports

    def _task(self, task: int, work: Work) -> tuple[list[Row], State]:
        """A task that fails with its worker is done once more by another one. One that runs twice is done by another
        worker while it makes a call, and goes on then for nothing."""
        session = self._session
        network = session.broker.network
        others: list[tuple[list[Row], State] | Exception] = []

        def another() -> None:
            try:
                others.append(self._attempt(task, work, session.other_worker(worker)))
            except Exception as error:
                others.append(error)

        worker = session.random.choice(session.workers)
        twice = None
        if session.twice:
            session.twice -= 1
            twice = Interruption(session.random.choice(_CALLS), 0, How.OTHERS_GO_ON, work=another)
            network.arm(twice)
        try:
            done = self._attempt(task, work, worker)
        except Killed:
            if not session.owner.alive:
                raise
            session.workers[session.workers.index(worker)] = fresh = Worker(session, session.random.randrange(100))
            done = self._attempt(task, work, fresh)
        except Exception:
            if not others:
                raise
        finally:
            if twice is not None:
                network.disarm(twice)
        if others:
            if isinstance(others[0], Exception):
                raise others[0]
            done = others[0]
        return done

    def _attempt(self, task: int, work: Work, worker: Worker) -> tuple[list[Row], State]:
        state: State = {}
        done: list[Row] = []
        worker.task = task
        processor = copy(self._processor)
        pieces = MapState({})
        with self._session.broker.network.running(worker):
            processor.init(SimpleNamespace(getMapState=lambda *names: pieces))
            for key, rows, base in work:
                worker.key = key
                pieces.of = state[key] = dict(base)
                done += processor.handleInputRows((key,), iter(rows), None)
            processor.close()
        self._session.broker.network.check(self._session.owner)
        return done, state

    def _state(self, version: int) -> State:
        """Raises FileNotFoundError if it is not there, as Spark does in other words."""
        if version == 0:
            return {}
        found: State = {}
        for shard in range(self._tasks):
            found |= pickle.loads((self._folder / f"state/0/{shard}/{version}.changelog").read_bytes())
        return found

    def _read(self, place: Place, start: int, end: int) -> list[Row]:
        topic, partition = place
        return [
            Row(
                key=0, topic=topic, partition=partition, offset=entry.offset, appended_us=entry.appended_ns // 1000,
                headers=[{"key": name, "value": value} for name, value in entry.headers], value=entry.value,
            )
            for entry in self._session.broker.log[place].read(start)
            if entry.offset < end
        ]  # fmt: skip


class Batch:
    """The rows of a batch, which are computed when they are asked for."""

    def __init__(self, run: Callable[[], list[Row]]) -> None:
        self._run = run

    def collect(self) -> list[Row]:
        return self._run()


class MapState:
    """Spark's state of the key whose turn it is: pieces by (space, number)."""

    def __init__(self, pieces: Pieces) -> None:
        self.of = pieces

    def getValue(self, key: tuple[str, int]) -> tuple[bytes] | None:
        piece = self.of.get(key)
        return None if piece is None else (piece,)

    def updateValue(self, key: tuple[str, int], value: tuple[bytes]) -> None:
        self.of[key] = bytes(value[0])

    def removeKey(self, key: tuple[str, int]) -> None:
        self.of.pop(key, None)

    def keys(self) -> Iterator[tuple[str, int]]:
        return iter(list(self.of))

    def clear(self) -> None:
        self.of.clear()
