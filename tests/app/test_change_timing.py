"""When a running job takes a changed query: its windows before and after leave no gap, or the overlap is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.job.change_timing import ChangedQuery, ChangeTiming, ToldTimes, changed
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Bound, Ending, LaneLedger, Promise, Punctuation
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER
from tests.world.clients import Broker
from tests.world.clock import Clock
from tests.world.log import Entry
from tests.world.network import Network, Process

TUMBLING = "SELECT srcIP, count(*) [RANGE TUMBLING {}] FROM Main GROUP BY srcIP"


def query(name: str, text: str) -> QueryPlan:
    return compile_query(text, name=name, buckets=2)


@dataclass
class Told:
    stage: str
    bucket: int
    complete_to: dict[str, int | None] = field(default_factory=dict)


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 30),
    st.integers(-200, 200), st.lists(st.one_of(st.none(), st.integers(-200, 200)), min_size=1, max_size=3),
)  # fmt: skip
def test_it_is_due_when_the_first_window_that_it_tells_begins_where_all_sources_cover_it(
    slide: int, overlap: int, unit: int, told: int, since: list[int | None]
) -> None:
    window = Window(WindowKind.SLIDING, slide * overlap, slide, Axis("ts", Kind.TIME, unit))
    covered = {f"s{rank}": at for rank, at in enumerate(since)}
    one = ChangedQuery("q", "new", 1, window, frozenset())
    ends = ((k, (k + 1) * slide * unit) for k in range(-1000, 1000))
    end = next(end for _, end in ends if end > told)
    begins = end - slide * overlap * unit
    assert (one.lacks(told, covered) is None) == all(at is not None and at <= begins for at in since)
    assert (one.lacks(FOREVER, covered) is None) == (None not in since)
    assert one.lacks(None, covered) is not None
    assert one.lacks(told, None) is not None
    assert one.lacks(told, {}) is None


def test_only_queries_with_windows_over_time_and_another_stage_are_awaited() -> None:
    were = [
        query("other", TUMBLING.format("10 s")), query("same", TUMBLING.format("10 s")),
        query("having", TUMBLING.format("10 s")), query("rows", "SELECT ts, srcIP FROM Main"),
        query("gone", TUMBLING.format("5 s")),
    ]  # fmt: skip
    are = [
        query("other", TUMBLING.format("20 s")), query("same", TUMBLING.format("10 s")),
        query("having", TUMBLING.format("10 s") + " HAVING count(*) > 3"), query("rows", "SELECT ts, len FROM Main"),
        query("new", TUMBLING.format("5 s")),
    ]  # fmt: skip
    (one,) = changed(were, are)
    assert (one.name, one.stage, one.buckets) == ("other", are[0].stage.fingerprint, were[0].stage.buckets)
    assert one.streams == {"Main"}


def test_a_query_has_told_what_its_slowest_bucket_has_told() -> None:
    told = ToldTimes()
    assert told.of("q", 2) is None
    told.reported([Told("a", 0, {"q": 50, "r": 1})])
    assert told.of("q", 2) is None
    told.reported([Told("a", 1, {"q": None})])
    assert told.of("q", 2) is None
    told.reported([Told("a", 1, {"q": 20})])
    assert told.of("q", 2) == 20
    told.reported([Told("a", 1, {"q": 70})])
    assert told.of("q", 2) == 50


KAFKA = KafkaSettings("127.0.0.1:1")
WINDOW = Window(WindowKind.SLIDING, 1, 1, Axis("ts", Kind.TIME, 10))
ONE = ChangedQuery("q", "new", 1, WINDOW, frozenset({"Main"}))


def covering(source: str, since: int, ending: Ending = Ending.NONE) -> Punctuation:
    return Punctuation(Origin("new", source, 1, "n"), 0, Promise((Bound("ts", 5),)), LaneLedger(), ending, since)


def test_a_change_without_windows_waits_for_nothing_and_others_no_longer_than_the_overlap() -> None:
    clock = [0.0]
    assert ChangeTiming(KAFKA, "", [], lambda streams: {"left"}, ToldTimes(), 5).due
    timing = ChangeTiming(KAFKA, "", [ONE], lambda streams: {"left"}, ToldTimes(), 5, lambda: clock[0])
    assert not timing.due
    assert timing.waits.keys() == {"q"}
    clock[0] = 5.0
    assert timing.due


def test_it_waits_for_the_sources_of_the_moment_and_says_which(caplog: pytest.LogCaptureFixture) -> None:
    told, clock = ToldTimes(), [0.0]
    sources: set[str] | None = None
    timing = ChangeTiming(KAFKA, "", [ONE], lambda streams: sources, told, 5, lambda: clock[0])
    timing._read_up.add("new")
    told.reported([Told("a", 0, {"q": 100})])
    assert not timing.due, "the job has begun just now, and has not read which sources there are"
    sources = {"left", "right"}
    timing._note(covering("left", 90))
    assert timing.waits == {"q": "not yet: right"}
    sources = {"left"}
    assert timing.due, "right was excluded, or has left"
    sources = {"left", "third"}
    timing._note(covering("third", 101))
    assert "third covers it from" in timing.waits["q"]
    clock[0] = 5.0
    assert timing.due
    assert "third covers it from" in caplog.text
    timing._note(covering("left", 90, Ending.STOP))
    assert timing.waits == {"q": "not yet: left"}


def test_another_thread_may_ask_while_sources_come() -> None:
    sources = [f"s{number}" for number in range(5000)]
    timing = ChangeTiming(KAFKA, "", [ONE], lambda streams: sources[:3], ToldTimes(), 5)
    timing._read_up.add("new")

    def read() -> None:
        for source in sources:
            timing._note(covering(source, 1))

    reading = threading.Thread(target=read)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reading.start()
        while reading.is_alive():
            assert not timing.due
    finally:
        sys.setswitchinterval(before)
        reading.join()


class Looks:
    """Tells a thread to stop after so many looks; before each one `asked` is called."""

    def __init__(self, left: int, asked: Callable[[], None]) -> None:
        self._left = left
        self._asked = asked

    def is_set(self) -> bool:
        self._asked()
        self._left -= 1
        return self._left < 0


def test_what_a_stage_has_covered_once_counts_only_when_all_of_it_has_been_read() -> None:
    """A text that comes back has a topic with a past, in which its sources covered it, and then stopped."""
    clock, told = Clock(), ToldTimes()
    broker = Broker(clock, Network(lambda count: None, clock.pass_by, lambda text: None))
    topic = Topic(TopicKind.PARTIALS, "new").name
    broker.log.make(topic, 1)
    told.reported([Told("a", 0, {"q": 100})])
    timing = ChangeTiming(KAFKA, "", [ONE], lambda streams: {"left"}, told, 5)
    due: list[bool] = []

    def append(*records: Punctuation) -> None:
        partition = broker.log[topic, 0]
        for wire in map(encode, records):
            partition.append(Entry(partition.high, clock.now_ns, wire.key, wire.value, tuple(wire.headers)))

    def looks(left: int) -> list[bool]:
        with broker.in_force(), broker.network.running(Process("job")):
            timing._run(Looks(left, lambda: due.append(timing.due)))  # type: ignore[arg-type]  # asked alike
        found, due[:] = [*due], []
        return found

    append(*[covering("left", 0)] * 1200, covering("left", 0, Ending.STOP))
    assert not any(looks(5))
    append(covering("left", 90))
    assert looks(5)[-1]
    append(*[covering("left", 90)] * 600, covering("left", 90, Ending.STOP))
    assert not any(looks(5)), "it reads all of it again after a failure"
