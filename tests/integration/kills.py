"""A job whose processes and broker are killed again and again, at moments and in an order that a seed draws, while its
queries and sources change; what must stand in its results in the end."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import TopicPartition

from lowmark.app.config.file import load_config
from lowmark.app.kafka.broker import Broker
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem, consumer, watermarks
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.verdicts import Complete
from tests.integration.jobfeed import BUSY, LEVELS, SLIDING, Feed, contiguous, write_config
from tests.integration.jobprocess import PATIENCE_S, JobProcess, descendants
from tests.integration.livesources import Hosts

SHARES = {"worker": 14, "broker": 2, "JVM": 2, "driver": 2}
"""Of what is killed. A worker that dies costs one task, the others a restart."""

_VARIANTS = (None, BUSY.replace("> 3", "> 5"), BUSY.replace("> 3", "> 7"))
"""Of the query `beside`, which changes. None: it is not there."""

_NODES = """\
[streams.Nodes]
roster = ["first", "capture-*"]
stall = "exclude after 6 s"
[queries.nodes]
sql = "SELECT srcIP, count(*) [RANGE TUMBLING 5 seconds, WA ts] FROM Nodes GROUP BY srcIP"
"""
_SENT_EVERY_S = 0.5
_CALM_S = 1.0  # between what a job has written and the next kill, at most
_AWAY_S = 2.0  # a broker, at most
_STARTS_S = 8.0  # a job is killed again so soon, at most, if it is killed while it starts
_FORMER = "Start the job once with the queries of before"


class Kills:
    """Ends everything with the `with` block. `tell` hears of each kill."""

    def __init__(self, folder: Path, seed: int, tell: Callable[[str], None] = print) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._tell = tell
        self._broker = Broker(folder / "broker")
        self._stack = contextlib.ExitStack()
        self.waits: dict[str, list[float]] = {kind: [] for kind in SHARES}  # for results, after a kill
        self.count = 0
        self.starts = 0
        self.changes = 0

    def __enter__(self) -> Kills:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: self._broker.stop())  # whichever it is then
            self._broker.start()
            self._port = int(self._broker.bootstrap.rpartition(":")[2])
            everything = {"talkers": SLIDING, "busy": BUSY, "levels": LEVELS, "beside": _VARIANTS[1] or ""}
            path = write_config(self._folder, self._broker.bootstrap, **everything)
            text = path.read_text().replace("[job]\n", '[job]\nmaster = "local[2,20]"\nbuckets = 2\n')
            path.write_text(text.replace("max_offsets_per_trigger = 60", "max_offsets_per_trigger = 400"))
            self.path, self._text = path, path.read_text().partition("[queries.beside]")[0] + _NODES
            self._feed = Feed(load_config(path), self._chance.randrange(1 << 30))
            self._configure(None)
            self._hosts = Hosts(load_config(path), "nodes", "Nodes")
            self._hosts.register("first")
            self._alive: tuple[str, ...] = ("first",)
            self._known = 1
            self._config = load_config(path)
            self._reader = consumer(self._config.kafka, "lowmark-kills")
            stack.callback(self._reader.close)
            self._start()
            stack.callback(lambda: self._job.__exit__())
            stack.enter_context(self._load())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def run(self, kills: int, within_s: float = math.inf) -> None:
        """Each kill is survived: results go on, with a start where the job has ended. Some come while it starts."""
        until = time.monotonic() + within_s
        self._go_on(self._written())
        for number in range(kills):
            if time.monotonic() > until:
                return
            if number % 5 == 2:
                self._change_queries()
            if number % 4 == 1:
                self._change_sources()
            kind = self._chance.choices(list(SHARES), list(SHARES.values()))[0]
            before = self._written()
            self._kill(kind)
            self.count += 1
            began = time.monotonic()
            again = kind in ("JVM", "driver") and self._chance.random() < 0.3
            if again:
                self._pause(_STARTS_S)
            else:
                self._go_on(before)
                self.waits[kind].append(time.monotonic() - began)
                self._pause(_CALM_S)
            went = "is killed again while it starts" if again else f"results after {self.waits[kind][-1]:.1f} s"
            self._tell(f"{number + 1} of {kills}, {kind}: {went}")

    def end(self) -> None:
        """Feeds to the end, and compares what stands in the results with what must."""
        self._sending.clear()
        self._thread.join(PATIENCE_S)
        assert self._failed is None, self._failed
        self._feed.panes(2, end=True)
        exact = self._hosts.next - 1
        last = {
            name: [_last(items) for items in self._feed.expected(self._plan(name)).values()]
            for name in ("talkers", "busy", "levels")
        }

        def ended() -> bool:
            self._restart()
            self._hosts.send(*self._alive)
            return self._hosts.complete(exact) and all(
                [_last(items) for items in self._feed.results(self._plan(name)).values()] == windows
                for name, windows in last.items()
            )

        _await(ended, 1.0)
        self._job.terminate()
        assert self._job.wait() == 0, self._job.said
        for plan in self._feed.plans:
            if plan.name != "beside":
                self._feed.assert_told(plan)
        for items in self._feed.results(self._plan("beside")).values():
            spans = [each.windows for each in _completions(items) if each.windows is not None]
            assert contiguous(spans), spans
        assert self._hosts.no_wrong_exact() > 10

    def _plan(self, name: str) -> QueryPlan:
        return next(plan for plan in self._feed.plans if plan.name == name)

    @contextlib.contextmanager
    def _load(self) -> Iterator[None]:
        self._sending = threading.Event()
        self._sending.set()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self._sending.clear()
            self._thread.join(PATIENCE_S)

    def _send(self) -> None:
        try:
            while self._sending.is_set():
                self._feed.panes(1)
                self._hosts.send(*self._alive)
                time.sleep(_SENT_EVERY_S)
        except BaseException as error:  # whatever it is, `end` raises it
            self._failed = error

    def _configure(self, variant: str | None) -> None:
        self.path.write_text(self._text + (f'[queries.beside]\nsql = "{variant}"\n' if variant else ""))
        self._variant = variant

    def _start(self) -> None:
        self._job = JobProcess(self.path)
        self.starts += 1

    def _restart(self) -> None:
        """Start a job that has ended, as a supervisor does; with the former queries where they may not change yet."""
        if not self._job.ended:
            return
        self._job.wait()
        assert "Traceback" not in self._job.said, self._job.said
        if _FORMER in self._job.said:  # one of them
            self._configure(_VARIANTS[(_VARIANTS.index(self._variant) + 1) % len(_VARIANTS)])
        self._start()

    def _written(self) -> int:
        topic = Topic(TopicKind.RESULTS, "talkers", self._config.prefix).name
        parts = [TopicPartition(topic, bucket) for bucket in range(2)]
        return sum(watermarks(self._reader, part, self._config.kafka)[1] for part in parts)

    def _go_on(self, before: int) -> None:
        def written() -> bool:
            self._restart()
            assert self._failed is None, self._failed
            try:
                return self._written() > before
            except KafkaProblem:
                return False

        _await(written, 0.1, lambda: self._job.said)

    def _pause(self, most_s: float) -> None:
        """At random, so that what comes next hits any moment."""
        until = time.monotonic() + self._chance.uniform(0, most_s)
        while time.monotonic() < until:
            self._restart()
            time.sleep(0.02)

    def _kill(self, kind: str) -> None:
        self._restart()
        if kind == "broker":
            os.kill(self._broker.pid, signal.SIGKILL)
            self._broker.stop()
            self._pause(_AWAY_S)
            self._broker = Broker(self._folder / "broker", self._port)
            self._broker.start()
        elif kind == "driver":
            self._job.kill()
        else:
            found: list[int] = []

            def there() -> bool:
                self._restart()
                found[:] = (_workers if kind == "worker" else _jvms)(self._job)
                return bool(found)

            _await(there, 0.1, lambda: self._job.said)
            with contextlib.suppress(ProcessLookupError):  # it ended just then
                os.kill(self._chance.choice(found), signal.SIGKILL)

    def _change_queries(self) -> None:
        self.changes += 1
        self._configure(self._chance.choice([one for one in _VARIANTS if one != self._variant]))
        if not self._job.ended and "/metrics" in self._job.said:  # until then it has no handler for the signal
            os.kill(self._job.pid, signal.SIGHUP)

    def _change_sources(self) -> None:
        """One joins by registering, one falls silent, or one comes back."""
        self.changes += 1
        away = [f"capture-{number}" for number in range(1, self._known) if f"capture-{number}" not in self._alive]
        nodes = [name for name in self._alive if name != "first"]
        can = {"joins": len(nodes) < 3, "silent": bool(nodes), "back": bool(away)}
        what = self._chance.choice([name for name, possible in can.items() if possible])
        if what == "joins":
            name = f"capture-{self._known}"
            self._known += 1
            self._hosts.register(name)
            self._alive = (*self._alive, name)
        elif what == "silent":
            gone = self._chance.choice(nodes)
            self._alive = tuple(name for name in self._alive if name != gone)
        else:
            self._alive = (*self._alive, self._chance.choice(away))


def _completions(items: list[object]) -> list[Complete]:
    return [item for item in items if isinstance(item, Complete)]


def _last(items: list[object]) -> int | None:
    """The last window that is told."""
    return max((each.windows.to for each in _completions(items) if each.windows is not None), default=None)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _workers(job: JobProcess) -> list[int]:
    """Python's workers, without the process that starts them."""
    daemons = [pid for pid in descendants(job.pid) if b"pyspark.daemon" in _command(pid)]
    return [pid for daemon in daemons for pid in descendants(daemon)]


def _jvms(job: JobProcess) -> list[int]:
    return [pid for pid in descendants(job.pid) if b"SparkSubmit" in _command(pid)]


def _await(condition: Callable[[], bool], every_s: float, said: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(every_s)
