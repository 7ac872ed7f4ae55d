from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from highlevel.config import JobConfig
from highlevel.metrics import HighLevelMetrics
from lowmark.wire.promises import FOREVER


@dataclass
class Report:
    bucket: int
    stage: str = "s"
    counters: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    exchanged: dict[str, int] = field(default_factory=dict)
    late_rows: dict[str, int] = field(default_factory=dict)
    corrections: dict[str, int] = field(default_factory=dict)
    windows: list[tuple[str, str | None, int]] = field(default_factory=list)
    amended: list[tuple[str, str, int]] = field(default_factory=list)
    complete_to: dict[str, int | None] = field(default_factory=dict)
    open_windows: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    state_bytes: int = 0


def test_the_slowest_bucket_is_the_lag_and_a_silent_one_stands_where_it_stood():
    registry = CollectorRegistry()
    metrics = HighLevelMetrics(registry)
    second = 10**9
    first = Report(0, complete_to={"q": 5 * second}, open_windows={"q": 2}, waiting=[("main", "a")], state_bytes=7)
    other = Report(1, complete_to={"q": 8 * second}, windows=[("q", None, 3), ("q", "gap", 1)], dead={"future": 2})
    other.late_rows, other.corrections, other.amended = {"q": 6}, {"q": 7}, [("q", "late", 5)]
    metrics.micro_batch([first, other], 0.3, 10 * second)
    assert registry.get_sample_value("lowmark_frontier_lag_seconds", {"query": "q"}) == 5
    assert registry.get_sample_value("lowmark_late_rows_total", {"query": "q"}) == 6
    assert registry.get_sample_value("lowmark_corrections_total", {"query": "q"}) == 7
    metrics.micro_batch([Report(1, complete_to={"q": FOREVER}, counters={"gaps": 4})], 0.2, 12 * second)
    assert registry.get_sample_value("lowmark_frontier_lag_seconds", {"query": "q"}) == 7
    assert registry.get_sample_value("lowmark_windows_open", {"query": "q"}) == 2
    assert registry.get_sample_value("lowmark_source_awaited", {"node": "s/main", "source": "a"}) == 1
    metrics.micro_batch([Report(0, complete_to={"q": FOREVER})], 0.2, 12 * second)
    assert registry.get_sample_value("lowmark_frontier_lag_seconds", {"query": "q"}) == 0
    assert registry.get_sample_value("lowmark_source_awaited", {"node": "s/main", "source": "a"}) == 0
    exact = {"query": "q", "verdict": "exact", "reason": ""}
    assert registry.get_sample_value("lowmark_windows_completed_total", exact) == 3
    amended = {"query": "q", "reason": "late"}
    assert registry.get_sample_value("lowmark_windows_amended_total", amended) == 5
    assert registry.get_sample_value("lowmark_dead_letters_total", {"stage": "s", "reason": "future"}) == 2
    assert registry.get_sample_value("lowmark_records_missing_total", {"stage": "s"}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 0}, "buckets is 0"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger is 0"),
        ({"name": "a b"}, "name is 'a b'"),
        ({"heap": "lots"}, "for example 1g"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        JobConfig(**settings)
