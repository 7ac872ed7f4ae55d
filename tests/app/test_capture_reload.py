"""SIGHUP to a capture: its sources switch to other queries between two blocks, and serve former ones for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.disorder.declarations import Disorder
from ingest.files.errors import Damage
from lowlevel import node
from lowlevel.config import QueueConfig
from lowlevel.emitter import Emitter
from lowlevel.node_memory import NodeMemory
from lowmark.app.capture import reload as reload_module
from lowmark.app.capture.reload import CaptureReload
from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.capture.source_thread import SourceThread
from lowmark.app.capture.sources import work_of
from lowmark.app.config.changes import ConfigChanges
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.errors import EnvironmentNotReady
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.frames import FrameBlock
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Ending, Punctuation
from lowmark.wire.records.record import WireRecord
from tests.lowlevel.naive import block
from tests.naive.frames import Spec, frame

SECOND = 10**9
WITHIN_S = 60.0

FIRST = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP"
OTHER = "SELECT destIP, count(*) [RANGE 1 s] FROM Main GROUP BY destIP"


class Feed:
    """A packet a second, each in a block of its own; before each one `between` gets its second."""

    name = "tap"
    stream = "Main"
    rank = 0
    live = True
    received = 0
    ended = False
    start_ns: int | None = 0
    bound_ns: int | None = None
    filtering = False
    waits = False
    disorder: Disorder | None = None
    read_bytes = 0
    total_bytes: int | None = None

    def __init__(self, between: Callable[[int], None], seconds: int = 1 << 40) -> None:
        self.damages: list[Damage] = []
        self._between = between
        self._seconds = seconds
        self._stopping = threading.Event()

    def start(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def blocks(self) -> Iterator[FrameBlock]:
        for second in range(self._seconds):
            self._between(second)
            if self._stopping.is_set():
                return
            at = second * SECOND
            yield block([frame(Spec(ts=at, source="10.0.0.1")).data], ts=[at], low=[at], low_after=at)

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        pass


class Kept(Emitter):
    """Keeps the records; sends nothing."""

    def __init__(self) -> None:
        super().__init__(KafkaSettings("127.0.0.1:1"), QueueConfig())
        self.records: dict[str, list[WireRecord]] = {}

    def room(self, topic: str, size: int) -> bool:
        return True

    def put(self, topic: str, partition: int, record: WireRecord) -> None:
        self.records.setdefault(topic, []).append(record)

    def punctuations(self, topic: str) -> list[Punctuation]:
        found = [decode(of.headers, of.value) for of in self.records[topic]]
        return [record for record in found if isinstance(record, Punctuation)]


def configured(tmp_path: Path, sql: str, late: str = "count", overlap: str = "5 s") -> tuple[Config, list[QueryPlan]]:
    path = tmp_path / "lowmark.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "127.0.0.1:1"\n[job]\noverlap = "{overlap}"\nbuckets = 1\n[capture.table]\nslots = 64\n'
        '[streams.Main]\n[sources.tap]\nstream = "Main"\ninterface = "lo"\n'
        f'[queries.talkers]\nsql = "{sql}"\nlate = "{late}"\n'
    )
    config = load_config(path)
    return config, list(plan_queries(config))


def spoil(tmp_path: Path) -> None:
    path = tmp_path / "lowmark.toml"
    path.write_text(path.read_text().replace("count(*)", "sum(nothing)"))


def thread_of(feed: Feed, config: Config, plans: list[QueryPlan], emitter: Emitter) -> SourceThread:
    thread = SourceThread(feed, work_of(config, plans, "tap"), config, emitter, ThreadScheduling())
    thread.open()
    thread.begin(7)
    return thread


def test_work_that_comes_back_covers_its_source_from_then_on(tmp_path: Path) -> None:
    """The job asks punctuations whether a window of the text that comes back would be whole."""
    config, first = configured(tmp_path, FIRST)
    _, other = configured(tmp_path, OTHER)
    emitter = Kept()

    def between(second: int) -> None:
        plans = {5: other, 10: first}.get(second)
        if plans is not None:
            thread.switch_to(thread.prepare(work_of(config, plans, "tap")))

    thread = thread_of(Feed(between, 20), config, first, emitter)
    thread.run()
    assert thread.error is None
    (topic,) = {item.topic for item in work_of(config, first, "tap")}
    found = emitter.punctuations(topic)
    assert [record.sequence for record in found] == sorted({record.sequence for record in found})
    stop = next(rank for rank, record in enumerate(found) if record.ending is Ending.STOP)
    assert {record.start_ns for record in found[: stop + 1]} == {0}
    assert {record.start_ns for record in found[stop + 1 :]} == {10 * SECOND + 1}
    (taint,) = [taint for record in found for taint in record.ledger.taints]
    assert (taint.start, taint.stop, taint.reasons) == (5, 11, ("not-covered",))


@contextmanager
def reloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], follow: bool = False
) -> Iterator[tuple[CaptureReload, SourceThread]]:
    """A capture of the first text that runs; `clock` is that of overlaps. `follow`: it takes changes by itself."""
    config, plans = configured(tmp_path, FIRST)
    monkeypatch.setattr(reload_module, "ensure_topics_of", lambda config, plans: None)
    monkeypatch.setattr(reload_module, "_compile", lambda work, config: None)
    emitter, pace = Kept(), threading.Event()
    thread = thread_of(Feed(lambda second: pace.wait(0.001) and None, 1 << 40), config, plans, emitter)
    thread.start()
    changes = ConfigChanges(config.path, lambda: clock[0]) if follow else None
    try:
        yield CaptureReload(config, plans, [thread], emitter, lambda: clock[0], changes), thread
    finally:
        thread.source.stop()
        thread.join(WITHIN_S)
        assert thread.error is None


def step(reload: CaptureReload, ask: bool = False) -> None:
    if ask:
        reload.ask()
    reload.step()
    if reload._worker is not None:
        reload._worker.join(WITHIN_S)
        assert not reload._worker.is_alive()


def test_late_tuples_of_a_stage_that_is_still_served_cannot_begin_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with reloading(tmp_path, monkeypatch, [0.0]) as (reload, thread):
        configured(tmp_path, OTHER)
        step(reload, ask=True)
        assert len(thread.work) == 2
        configured(tmp_path, FIRST, late="emit")
        step(reload, ask=True)
        assert "whether late tuples are sent has changed" in caplog.text
        assert not any(item.send_late for item in thread.work.values())


def test_a_switch_allocates_only_tables_that_were_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(NodeMemory):
        def __init__(self, *given: object) -> None:
            made.append(given)
            super().__init__(*given)  # type: ignore[arg-type]  # as they came

    with reloading(tmp_path, monkeypatch, clock := [0.0]) as (reload, thread):
        monkeypatch.setattr(node, "NodeMemory", Counted)
        configured(tmp_path, OTHER)
        step(reload, ask=True)
        assert (len(thread.work), len(made)) == (2, 1)
        clock[0] = 5.0
        step(reload)
        assert (len(thread.work), len(made)) == (1, 1)


def test_an_end_of_an_overlap_that_fails_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(work: object, config: object) -> None:
        raise MemoryError

    with reloading(tmp_path, monkeypatch, clock := [0.0]) as (reload, thread):
        configured(tmp_path, OTHER)
        step(reload, ask=True)
        clock[0] = 5.0
        with monkeypatch.context() as broken:
            broken.setattr(reload_module, "_compile", fails)
            for _ in range(5):
                step(reload)
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
        assert len(thread.work) == 2
        clock[0] = 40.0
        step(reload)
        assert len(thread.work) == 1


def test_a_change_is_taken_by_itself_and_again_while_kafka_is_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(config: object, plans: object) -> None:
        raise EnvironmentNotReady("topics are missing", "make them")

    with reloading(tmp_path, monkeypatch, clock := [0.0], follow=True) as (reload, thread):

        def later(seconds: float) -> None:
            clock[0] += seconds
            step(reload)

        spoil(tmp_path)
        later(2)
        assert reload.refused is None, "it may be half of a change"
        later(2)
        assert "no field called nothing" in str(reload.refused)
        for _ in range(30):
            later(2)
        assert len(thread.work) == 1
        with monkeypatch.context() as away:
            away.setattr(reload_module, "ensure_topics_of", missing)
            configured(tmp_path, OTHER)
            later(2)
            later(2)
            assert "topics are missing" in str(reload.refused)
        later(2)
        assert "topics are missing" in str(reload.refused), "it asks again after 30 s"
        later(30)
        assert (reload.refused, len(thread.work)) == (None, 2)


def test_a_configuration_that_is_restored_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def never(work: object, config: object) -> None:
        raise AssertionError

    with reloading(tmp_path, monkeypatch, [0.0]) as (reload, _):
        monkeypatch.setattr(reload_module, "_compile", never)
        spoil(tmp_path)
        step(reload, ask=True)
        assert reload.refused is not None
        configured(tmp_path, FIRST)
        step(reload, ask=True)
        assert reload.refused is None
        assert "it is as it was" in caplog.text
