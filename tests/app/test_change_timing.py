"""When a running job takes a changed query: its windows before and after leave no gap, or the overlap is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.job.change_timing import Changed, ChangeTiming, ToldTimes, changed
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER

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
    one = Changed("q", "new", 1, window, frozenset(covered))
    ends = ((k, (k + 1) * slide * unit) for k in range(-1000, 1000))
    end = next(end for _, end in ends if end > told)
    begins = end - slide * overlap * unit
    assert one.is_due(told, covered) == all(at is not None and at <= begins for at in since)
    assert one.is_due(FOREVER, covered) == (None not in since)
    assert not one.is_due(None, covered)
    assert not one.is_due(told, {})


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
    (one,) = changed(were, are, lambda streams: {f"{stream} left" for stream in streams})
    assert (one.name, one.stage, one.buckets) == ("other", are[0].stage.fingerprint, were[0].stage.buckets)
    assert one.sources == {"Main left"}


def test_a_query_has_told_what_its_slowest_bucket_has_told() -> None:
    told = ToldTimes()
    assert told.of("q", 2) is None
    told.reported([Told("a", 0, {"q": 50, "r": 1})])
    assert told.of("q", 2) is None
    told.reported([Told("a", 1, {"q": 20})])
    assert told.of("q", 2) == 20
    told.reported([Told("a", 1, {"q": 70})])
    assert told.of("q", 2) == 50


def test_a_change_without_windows_waits_for_nothing_and_others_no_longer_than_the_overlap() -> None:
    kafka, clock = KafkaSettings("127.0.0.1:1"), [0.0]
    assert ChangeTiming(kafka, "", [], ToldTimes(), 5).due
    window = Window(WindowKind.SLIDING, 1, 1, Axis("ts", Kind.TIME, 10))
    one = Changed("q", "new", 1, window, frozenset({"left"}))
    timing = ChangeTiming(kafka, "", [one], ToldTimes(), 5, lambda: clock[0])
    assert not timing.due
    assert timing.waits == ["q"]
    clock[0] = 5.0
    assert timing.due
