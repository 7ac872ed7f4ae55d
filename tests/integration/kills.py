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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import TopicPartition

from lowmark.app.config.file import load_config
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.broker import Broker
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import consumer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.verdicts import Complete
from tests.integration.jobfeed import BUSY, LEVELS, SLIDING, Feed, contiguous, write_config
from tests.integration.jobprocess import PATIENCE_S, JobProcess, descendants
from tests.integration.livesources import Hosts

SHARES = {"driver": 3, "JVM": 3, "broker": 3, "workers' parent": 2, "worker": 12}
"""Of what is killed, if it is there; first what costs most."""

_VARIANTS = (None, BUSY.replace("> 3", "> 5"), BUSY.replace("> 3", "> 7"))
"""Of the query `beside`, which changes. None: it is not there."""

_NODES = """\
[streams.Nodes]
roster = ["first", "capture-*"]
stall = "exclude after 6 s"
[queries.nodes]
sql = "SELECT srcIP, count(*) [RANGE TUMBLING 5 seconds, WA ts] FROM Nodes GROUP BY srcIP"
"""
_BUCKETS = 2
_SENT_EVERY_S = 0.5
_IN_A_ROW = 15  # kills, at most, before everything has to work again
_DRIVERS = 2  # of these: otherwise no start would come far
_APART_S = 3.0  # at most; mostly less: some hit what the one before has made start
_AWAY_S = 2.0  # a broker, at most
_FORMER = "Start the job once with the queries of before"


class Kills:
    """Ends everything with the `with` block. `tell` hears of each row of kills."""

    def __init__(self, folder: Path, seed: int, tell: Callable[[str], None] = print) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._tell = tell
        self._broker = _LastingBroker(folder / "broker", self._chance.randrange(1 << 30))
        self._stack = contextlib.ExitStack()
        self._told = dict.fromkeys(range(_BUCKETS), 0)  # by bucket: the last window of `busy`
        self.kills: Counter[str] = Counter()
        self.waits: dict[str, list[float]] = {kind: [] for kind in SHARES}
        """By what costs most of what was killed in a row: until results had caught up."""
        self.starts = 0
        self.changes = 0

    @property
    def count(self) -> int:
        return self.kills.total()

    def __enter__(self) -> Kills:
        with contextlib.ExitStack() as stack:
            bootstrap = stack.enter_context(self._broker).bootstrap
            everything = {"talkers": SLIDING, "busy": BUSY, "levels": LEVELS, "beside": _VARIANTS[1] or ""}
            path = write_config(self._folder, bootstrap, **everything)
            text = path.read_text().replace("[job]\n", f'[job]\nmaster = "local[2,20]"\nbuckets = {_BUCKETS}\n')
            path.write_text(text.replace("max_offsets_per_trigger = 60", "max_offsets_per_trigger = 400"))
            self.path, self._text = path, path.read_text().partition("[queries.beside]")[0] + _NODES
            self._feed = Feed(load_config(path), self._chance.randrange(1 << 30))
            self._configure(None)
            self._hosts = Hosts(load_config(path), "nodes", "Nodes")
            self._hosts.register("first")
            self._alive: tuple[str, ...] = ("first",)
            self._known = 1
            config = load_config(path)
            self._reader = consumer(config.kafka, "lowmark-kills", tell_ends=True)
            stack.callback(self._reader.close)
            topic = Topic(TopicKind.RESULTS, "busy", config.prefix).name
            self._reader.assign([TopicPartition(topic, bucket, 0) for bucket in self._told])
            self._start()
            stack.callback(lambda: self._job.__exit__())
            stack.enter_context(self._load())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def run(self, kills: int, within_s: float = math.inf) -> None:
        """Kills some in a row, waits for results of what is sent behind them, and begins again."""
        until = time.monotonic() + within_s
        self._catch_up()
        while self.count < kills and time.monotonic() < until:
            if self._chance.random() < 0.6:
                self._change_queries()
            row: list[str] = []
            for _ in range(min(self._chance.randint(1, _IN_A_ROW), kills - self.count)):
                if self._chance.random() < 0.25:
                    self._change_sources()
                row.append(self._kill(row))
                self._pause(_APART_S * self._chance.random() ** 2)
            wait_s = self._catch_up()
            self.waits[min(row, key=list(SHARES).index)].append(wait_s)
            self._tell(f"{self.count} of {kills}: {', '.join(row)}; results have caught up after {wait_s:.1f} s")

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

        self._await(ended, 1.0)
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
        code = self._job.wait()
        assert "Traceback" not in self._job.said, self._job.said
        if _FORMER in self._job.said:  # one of them
            self._configure(_VARIANTS[(_VARIANTS.index(self._variant) + 1) % len(_VARIANTS)])
        else:
            assert code in (1, -signal.SIGKILL), self._job.said  # another start goes on
        self._start()

    def _catch_up(self) -> float:
        """Waits until each bucket tells what is sent from now on; the seconds that this takes."""
        began, pane = time.monotonic(), self._feed.next

        def told() -> bool:
            self._restart()
            assert self._failed is None, self._failed
            while (message := self._reader.poll(0.05)) is not None and message.error() is None:
                record = decode(message.headers(), message.value())
                if isinstance(record, Complete) and record.windows is not None:
                    self._told[message.partition()] = record.windows.to
            return min(self._told.values()) >= pane

        self._await(told, 0.05)
        return time.monotonic() - began

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._restart()
            time.sleep(0.02)

    def _kill(self, row: Sequence[str]) -> str:
        """Kills a process of those that are there, which may just be starting; returns its kind."""
        there: dict[str, list[int]] = {}

        def any_there() -> bool:
            self._restart()
            there.update((kind, pids) for kind, pids in self._processes().items() if pids)
            if row.count("driver") == _DRIVERS:
                del there["driver"]
            return bool(there)

        self._await(any_there, 0.05)
        kind = self._chance.choices(list(there), [SHARES[kind] for kind in there])[0]
        by = self._chance.choice((signal.SIGKILL, signal.SIGTERM)) if kind == "broker" else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):  # it ended just then
            os.kill(self._chance.choice(there[kind]), by)
        self.kills[kind] += 1
        return kind

    def _processes(self) -> dict[str, list[int]]:
        commands = {pid: _command(pid) for pid in descendants(self._job.pid)}
        forked = [pid for pid, command in commands.items() if b"pyspark.daemon" in command]
        workers = [child for pid in forked for child in descendants(pid)]
        return {
            "worker": workers,
            "workers' parent": [pid for pid in forked if pid not in workers],
            "JVM": [pid for pid, command in commands.items() if b"SparkSubmit" in command],
            "driver": [self._job.pid],
            "broker": self._broker.pids,
        }

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

    def _await(self, condition: Callable[[], bool], every_s: float) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{self._job.said}\nbroker: {self._broker.said}"
            time.sleep(every_s)


class _LastingBroker:
    """Started again, a while later, whenever it has been killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._broker = Broker(folder)
        self._there, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)  # the broker ends with it
        self.said = ""

    def __enter__(self) -> _LastingBroker:
        self._thread.start()
        assert self._there.wait(PATIENCE_S), self.said
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._thread.join(PATIENCE_S)

    @property
    def pids(self) -> list[int]:
        """None while it is away."""
        with contextlib.suppress(RuntimeError):
            return [self._broker.pid] if _command(self._broker.pid) else []
        return []

    def _run(self) -> None:
        port = 0
        while not self._ending.is_set():
            self._broker = Broker(self._folder, port)
            try:
                self._broker.start()
                self.bootstrap = self._broker.bootstrap
                port = int(self.bootstrap.rpartition(":")[2])
                self._there.set()
                self._broker.wait(self._look)
            except EnvironmentNotReady as error:  # it was killed, perhaps while it started
                self.said = str(error)
            except _Ended:
                pass
            finally:
                self._broker.stop()
            self._ending.wait(self._chance.uniform(0, _AWAY_S))

    def _look(self) -> None:
        if self._ending.is_set():
            raise _Ended


class _Ended(Exception):
    """The broker is needed no more."""


def _completions(items: list[object]) -> list[Complete]:
    return [item for item in items if isinstance(item, Complete)]


def _last(items: list[object]) -> int | None:
    """The last window that is told."""
    return max((each.windows.to for each in _completions(items) if each.windows is not None), default=None)


def _command(pid: int) -> bytes:
    """Empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
