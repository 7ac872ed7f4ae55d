"""The world: one process that holds capture hosts, the job and a broker, and lets a schedule happen to them."""

from __future__ import annotations

import functools
import logging
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

from highlevel.spark.errors import JobStopped, TakenOver
from lowlevel import node
from lowlevel.source_registration import SourcesLog
from lowlevel.spill import SpillFolder
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.rosters import Action, Request
from tests.naive.packets import Packet
from tests.world.capture import KAFKA, SOURCES, CaptureHost, cached_kernels, traffic
from tests.world.clients import Broker
from tests.world.clock import SECOND, Clock
from tests.world.disk import Disk
from tests.world.job import JobLife, wired
from tests.world.network import Interruption, Killed, Network, Process
from tests.world.oracle import check, is_listed, listed_runs
from tests.world.schedule import Event, Kind, Schedule, schedule, with_changes

__all__ = ["Outcome", "World", "run"]

_STREAM = "Main"
_NAMES = ("left", "right", "third")
_BUCKETS = 2
_SECONDS = 9.0
_LATER_SECONDS = 22.0
"""Of a source that joins while the job runs: it counts from ten seconds later on."""

_ROUNDS = 60
_GRANULE_NS = 2 * SECOND

_QUERIES = {
    "tumbling": "SELECT srcIP, count(*), sum(len) [RANGE TUMBLING 2 seconds, WA ts] FROM Main GROUP BY srcIP",
    "sliding": "SELECT srcIP, count(*), max(len) [RANGE 4 seconds, SLIDE 2 seconds, WA ts] FROM Main GROUP BY srcIP",
    "shares": "SELECT srcIP, count(*), 100 * sum(len) / total(sum(len)) AS share [RANGE TUMBLING 2 seconds, WA ts] "
    "FROM Main GROUP BY srcIP",
}
"""The rows of the last go through an exchange."""

_TEXTS = ("GROUP BY", "WHERE len > 0 GROUP BY")
"""The two texts of a query that changes: they mean the same, and read different stages."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    wrong: tuple[str, ...]
    story: tuple[str, ...]


@functools.cache
def _configured(
    queries: tuple[str, ...], names: tuple[str, ...], text: str
) -> tuple[Config, tuple[QueryPlan, ...]]:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lowmark.toml"
        path.write_text(
            '[kafka]\nbootstrap = "world:1"\n'
            f"[job]\nbuckets = {_BUCKETS}\nshuffle_partitions = 2\n[streams.{_STREAM}]\n"
            + "".join(f'[sources.{name}]\nstream = "{_STREAM}"\ninterface = "{name}"\n' for name in names)
            + "".join(f'[queries.{query}]\nsql = "{_QUERIES[query].replace(_TEXTS[0], text)}"\n' for query in queries)
        )
        config = load_config(path)
        return config, plan_queries(config)


def _name(random: Random) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128))


class World:
    def __init__(self, seed: int, root: Path, queries: tuple[str, ...] = (), changes: bool = False) -> None:
        """`queries`: those that run; none: the seed chooses one. `changes`: their text may change, and captures serve
        the stages of both texts."""
        random = Random(seed)
        self.story: list[str] = []
        self.wrong: list[str] = []
        self._random = random
        self.clock = Clock()
        self.network = Network(self._meanwhile, self.clock.pass_by, self._tell)
        self.broker = Broker(self.clock, self.network)
        self._root = root
        (root / "checkpoint").mkdir()
        self._disk = Disk(root / "checkpoint")
        chosen = random.choice(sorted(_QUERIES))
        self._queries = queries or (chosen,)
        self._names = _NAMES[: random.choice((1, 2, 2, 2))]
        self._text, self._changed = 0, False  # … since a job has run last
        self._back = False  # whether a text has come back
        self._configure()
        self._every = self.plans
        if changes:
            self._every = (*self.plans, *_configured(self._queries, self._names, _TEXTS[1])[1])
        self._make_topics()
        late = random.choice((0.0, 0.0, 0.0, 0.03))
        self.losses = late > 0
        self._late = late
        self._jobs: list[JobLife] = []
        self.hosts: list[CaptureHost] = []
        for _ in self._names:
            self._add_host()
        self._job: JobLife | None = None
        self._anew = False
        self._may_refuse = False  # something has happened after which a start is rightly refused
        self._copied = False
        self._crashed = self._deleted = False
        """The host, and partials: both together can leave a batch that must run again, without its input."""
        self._events: deque[Event] = deque()
        self._most = random.choice((4, 20, 100))
        self._part_bytes = random.choice((100, 400, 1 << 24))

    def _add_host(self) -> CaptureHost:
        rank, random = len(self.hosts), self._random
        stages = list({plan.stage.fingerprint: plan.stage for plan in self._every}.values())
        packets = traffic(Random(random.randrange(1 << 30)), self.clock.now_ns + SECOND // 2, _SECONDS, self._late)
        host = CaptureHost(
            self.broker, stages, _STREAM, _NAMES[rank], rank, packets, Random(random.randrange(1 << 30)),
            SpillFolder(self._root / "spill"),
        )  # fmt: skip
        self.hosts.append(host)
        return host

    def _configure(self) -> None:
        config, self.plans = _configured(self._queries, self._names, _TEXTS[self._text])
        self.config = replace(config, path=self._root / "lowmark.toml")

    def _make_topics(self) -> None:
        log = self.broker.log
        log.make(SOURCES, 1)
        log.make(Topic(TopicKind.DEAD, None).name, 1)
        for plan in self._every:
            log.make(Topic(TopicKind.PARTIALS, plan.stage.fingerprint).name, _BUCKETS)
            log.make(Topic(TopicKind.RESULTS, plan.name).name, _BUCKETS)
            log.make(Topic(TopicKind.LATE, plan.name).name, _BUCKETS)
            if plan.exchanges is not None:
                log.make(Topic(TopicKind.EXCHANGE, plan.exchanges.fingerprint).name, _BUCKETS)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        with ExitStack() as stack:
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            stack.enter_context(self.clock.in_force())
            stack.enter_context(self.broker.in_force())
            stack.enter_context(self._disk.in_force())
            stack.enter_context(wired(self.broker, self._part_bytes))
            stack.enter_context(mock.patch.object(node, "kernel", cached_kernels))
            names = Random(self._random.randrange(1 << 30))
            stack.enter_context(mock.patch.object(uuid, "uuid4", partial(_name, names)))
            yield

    def happen(self, events: Schedule) -> None:
        for host in self.hosts:
            host.start()
        self._events.extend(events)
        while self._events and not self.wrong:
            self._do(self._events.popleft())

    def settle(self) -> None:
        """All faults are over, and everybody starts again: what must become true does."""
        self.network.disarm()
        self._late_requests()
        self.broker.coordinator.holds_markers = False
        self.broker.coordinator.write_markers()
        end_ns = max(host.packets[-1].arrival_ns for host in self.hosts)
        for host in self.hosts:
            if not host.alive:
                host.start()
            self._ask(Action.RETURN, host.name)
        for _ in range(2):
            while self.clock.now_ns < end_ns + 5 * SECOND:
                self.clock.pass_by(2.0)
            for host in self.hosts:
                host.look()
            self.clock.pass_by(2.0)
        for _ in range(_ROUNDS):
            self.clock.pass_by(1.0)
            for host in self.hosts:
                host.send(1000)
            if self._job is not None and self._job.alive:
                self._job.rule()
            if not self._turn() and not any(host.waits for host in self.hosts):
                return
            if self.wrong:
                return
        self.wrong.append("the job does not come to rest")

    def judge(self) -> None:
        upto_ns = max(host.packets[-1].arrival_ns for host in self.hosts) + 2 * SECOND
        listed = listed_runs(self.broker.log, _STREAM)
        packets: Mapping[str, Sequence[Sequence[Packet]]] = {
            _STREAM: [
                [
                    seen.packet(_STREAM, host.rank, position)
                    for position, seen in enumerate(host.packets)
                    if is_listed(listed.get(host.name, ()), seen.ts, _GRANULE_NS)
                ]
                for host in self.hosts
            ]
        }
        losses = self.losses or any(host.gave_up for host in self.hosts)
        self.wrong += [f"{name} is configured, and not listed" for name in self._names if name not in listed]
        for plan in self.plans:
            self.wrong += check(self.broker.log, plan, packets, upto_ns, losses)

    def _meanwhile(self, count: int) -> None:
        for _ in range(count):
            if self._events:
                self._do(self._events.popleft())

    def _tell(self, text: str) -> None:
        self.story.append(f"{self.clock.monotonic():8.2f}  {text.replace(str(self._root), '')}")

    def _do(self, event: Event) -> None:
        self._tell(str(event))
        if self.broker.coordinator.torn:
            self.wrong.append(f"a transaction of {self.broker.coordinator.torn[0]} was torn")
        host = self.hosts[event.source % len(self.hosts)]
        match event.kind:
            case Kind.CAPTURE:
                self.clock.pass_by(event.seconds)
                if not host.alive:
                    self._capture(host, host.start)
                self._capture(host, host.look)
            case Kind.SEND:
                self._capture(host, lambda: host.send(event.count))
            case Kind.SENDER_FAILS:
                self._capture(host, lambda: host.send(event.count, fail=True))
            case Kind.CAPTURE_DIES:
                self.losses = True
                host.kill()
            case Kind.JOB:
                self._turn()
            case Kind.INTERRUPT:
                assert event.how is not None
                self.network.arm(Interruption(event.call, event.count, event.how, 1 + event.seed % 4))
            case Kind.JOB_DIES:
                if self._job is not None:
                    self._job.kill()
            case Kind.SECOND_START:
                self._second_start(event.seed % 3)
            case Kind.TASK_TWICE:
                if self._job is not None:
                    self._job.session.twice += 1
            case Kind.HOST_CRASHES:
                self._kill_jobs()
                self._disk.crash(Random(event.seed))
                self._crashed = True
                self._may_refuse |= self._deleted
            case Kind.SNAPSHOT:
                if self._idle or self._job is None:
                    self._disk.copy(self._root / "copy")
                    self._copied = True
            case Kind.RESTORE:
                if self._copied:
                    self._kill_jobs()
                    self._disk.restore(self._root / "copy")
                    self._may_refuse = True
            case Kind.RETENTION:
                self._truncate(event.count)
            case Kind.FORGET:
                self.broker.coordinator.forget()
                self._may_refuse = True
            case Kind.LATE_REQUESTS:
                self._late_requests()
            case Kind.HOLD_MARKERS:
                self.broker.coordinator.holds_markers = True
            case Kind.RULE:
                if self._idle:
                    self._job.rule()  # type: ignore[union-attr]  # an idle one is there
            case Kind.SOURCE_JOINS:
                self._source_joins()
            case Kind.EXCLUDE:
                self._ask(Action.EXCLUDE, host.name)
                self.losses = True
            case Kind.RETURN:
                self._ask(Action.RETURN, host.name)
            case Kind.CHANGE_TEXT:
                self._change_text()
                if self._job is not None:
                    self._job.kill()
            case Kind.NEW_GENERATION:
                self._anew = True
                if self._job is not None:
                    self._job.kill()
            case Kind.SLOW:
                self.network.slow_s = 4.0 if self._part_bytes < 1000 else 0.1

    def _change_text(self) -> None:
        """The job is started anew with it. A text that comes back begins in the middle of its stage."""
        self._text, self._changed = 1 - self._text, not self._changed
        self.losses |= self._back
        self._back = True
        self._configure()

    def _source_joins(self) -> None:
        """The job is started anew with the configuration that lists it."""
        if len(self._names) == len(_NAMES):
            return
        self._names = _NAMES[: len(self._names) + 1]
        self._configure()
        self._capture(host := self._add_host(), host.start)
        if self._job is not None:
            self._job.kill()

    def _ask(self, action: Action, source: str) -> None:
        person = Process("a person")
        with self.network.running(person), suppress(KafkaProblem, Killed):
            SourcesLog(KAFKA, SOURCES).append(Request("job", _STREAM, source, action, "a person"))

    @property
    def _idle(self) -> bool:
        """Whether the job's process runs and is not in a call at this moment."""
        return self._job is not None and self._job.alive and not self.network.busy(self._job.process)

    def _capture(self, host: CaptureHost, work: Callable[[], None]) -> None:
        try:
            work()
        except (Killed, KafkaProblem):
            host.kill()
            self.losses = True

    def _turn(self) -> bool:
        """The job runs a batch; if it is not there, it starts. Whether it had anything to do."""
        if self._job is not None and self._job.alive and self.network.busy(self._job.process):
            return False
        if any(life.alive and not life.running for life in self._jobs):
            return False  # one is starting
        if self._job is None or not self._job.alive:
            anew, self._anew = self._anew, False
            self._job = self._begin(self.config, False, anew)
            if anew and not self._job.running:
                self._anew = True
            self._look_at(self._job)
            return True
        worked = self._job.turn()
        self._look_at(self._job)
        return worked or not self._job.alive

    def _begin(self, config: Config, locked: bool, anew: bool = False) -> JobLife:
        life = JobLife(
            len(self._jobs) + 1, config, self.plans, self.broker, Random(self._random.randrange(1 << 30)), self._most
        )
        self._jobs.append(life)
        self._tell(f"{life.process} starts{' a new generation' if anew else ''}")
        life.start(anew, locked)
        self.losses |= life.begins_in_the_middle  # of who has not promised since, windows say so
        return life

    def _second_start(self, how: int) -> None:
        """On the same host, where the lock of the checkpoint holds; on another one; with another checkpoint. A start
        that is refused leaves the job that runs alone."""
        before = self._job
        if before is None or not before.running or not self._idle:
            return
        elsewhere = self.config
        if how == 2:
            elsewhere = replace(self.config, path=self._root / "elsewhere" / "lowmark.toml")
            shutil.rmtree(self._root / "elsewhere", ignore_errors=True)
        second = self._begin(elsewhere, how == 0)
        if second.running:
            if how == 2 and before.wrote:
                self.wrong.append(f"{second.process} was let in beside {before.process}, with another checkpoint")
            self._job = second
            self._may_refuse |= how == 2  # the former checkpoint is not the one of the results any more
            return
        if second.refused is not None or how == 0:
            before.turn()
            if isinstance(before.ended, TakenOver):
                self.wrong.append(f"{second.process} was refused, and has fenced {before.process}")

    def _look_at(self, life: JobLife) -> None:
        """Judge how it has ended, and do what a person would do."""
        if life.running:
            self._changed = False
        if life.refused is not None:
            self._tell(f"{life.process} is refused: {life.refused}")
            if self._changed and "must be run once more" in str(life.refused):
                self._change_text()
                return
            if not self._may_refuse:
                self.wrong.append(f"{life.process} was refused without a reason: {life.refused}")
            self._anew = True
        elif life.ended is not None:
            self._tell(f"{life.process} ends: {type(life.ended).__name__}: {life.ended}")
            if not isinstance(life.ended, JobStopped | KafkaProblem):
                self.wrong.append(f"{life.process} ended with {type(life.ended).__name__}: {life.ended}")

    def _kill_jobs(self) -> None:
        for life in self._jobs:
            if life.alive:
                life.kill()

    def _truncate(self, keep: int) -> None:
        for plan in self._every:
            for partition in self.broker.log.topics[Topic(TopicKind.PARTIALS, plan.stage.fingerprint).name]:
                if partition.high - keep > partition.low:
                    partition.truncate(partition.high - keep)
                    self.losses = self._deleted = True
                    self._may_refuse |= self._crashed

    def _late_requests(self) -> None:
        self.broker.coordinator.let_arrive()
        while self.broker.late:
            self.broker.late.popleft()()


def run(seed: int, events: Schedule | None = None, changes: bool = False) -> Outcome:
    """The world of a seed, with its schedule or another one. `changes`: the query's text may change."""
    root = Path(tempfile.mkdtemp(prefix="lowmark-world-", dir="/dev/shm"))
    try:
        world = World(seed, root, changes=changes)
        usual = with_changes if changes else schedule
        with world.in_force():
            world.happen(usual(seed) if events is None else events)
            if not world.wrong:
                world.settle()
            if not world.wrong:
                world.judge()
        return Outcome(seed, tuple(world.wrong), tuple(world.story))
    finally:
        shutil.rmtree(root, ignore_errors=True)
