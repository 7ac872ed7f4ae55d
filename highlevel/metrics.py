"""What the high level counts, for Prometheus: fed from what each bucket reports of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lowmark.wire.promises import FOREVER

__all__ = ["BucketReport", "HighLevelMetrics"]

_QUERY: Final = ("query",)
_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)

_COUNTERS: Final = {
    "rows_in": ("lowmark_partials_merged", "Rows of partials that were merged."),
    "merged": ("lowmark_tuples_merged", "Tuples that the merged partials stand for."),
    "late": ("lowmark_tuples_after_close", "Tuples that came after their granule had ended, and were not merged."),
    "duplicates": ("lowmark_records_duplicate", "Records at or below the last sequence number of their lane."),
    "gaps": ("lowmark_records_missing", "Sequence numbers that are missing in a lane."),
    "fenced": ("lowmark_records_fenced", "Records of an epoch that a later one had ended."),
    "replayed": ("lowmark_tuples_replayed", "Tuples that a restarted finite source sent again."),
    "unlisted": (
        "lowmark_tuples_unlisted",
        "Tuples of sources from granules in which their stream does not list them.",
    ),
}
"""By the name in `BucketReport.counters`."""


class BucketReport(Protocol):
    """What a bucket counted in a micro-batch, and where it stands after it. Reasons are `None` for exact windows."""

    @property
    def stage(self) -> str: ...
    @property
    def bucket(self) -> int: ...
    @property
    def counters(self) -> Mapping[str, int]: ...
    @property
    def dead(self) -> Mapping[str, int]: ...
    @property
    def rows(self) -> Mapping[str, int]: ...
    @property
    def exchanged(self) -> Mapping[str, int]: ...
    @property
    def late_rows(self) -> Mapping[str, int]: ...
    @property
    def corrections(self) -> Mapping[str, int]: ...
    @property
    def windows(self) -> Sequence[tuple[str, str | None, int]]: ...
    @property
    def amended(self) -> Sequence[tuple[str, str, int]]: ...
    @property
    def complete_to(self) -> Mapping[str, int | None]: ...
    @property
    def open_windows(self) -> Mapping[str, int]: ...
    @property
    def waiting(self) -> Sequence[tuple[str, str]]: ...
    @property
    def state_bytes(self) -> int: ...


class HighLevelMetrics:
    """The job's metrics in one registry. A bucket that had no records stands where it stood."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(metric, text, ("stage",), registry=registry) for name, (metric, text) in _COUNTERS.items()
        }
        self._dead = Counter(
            "lowmark_dead_letters", "Records that could not be used.", ("stage", "reason"), registry=registry
        )
        self._rows = Counter("lowmark_result_rows", "Rows of results.", _QUERY, registry=registry)
        self._exchanged = Counter(
            "lowmark_exchange_rows", "Rows that buckets sent each other.", _QUERY, registry=registry
        )
        self._late_rows = Counter("lowmark_late_rows", "Rows of late tuples.", _QUERY, registry=registry)
        self._corrections = Counter(
            "lowmark_corrections", "Corrections of windows that had closed.", _QUERY, registry=registry
        )
        self._windows = Counter(
            "lowmark_windows_completed", "Windows of buckets that were completed; one with two reasons counts twice.",
            ("query", "verdict", "reason"), registry=registry,
        )  # fmt: skip
        self._amended = Counter(
            "lowmark_windows_amended",
            "Windows of buckets said to be lossy after they had been completed, as often as it was said; with two "
            "reasons twice.",
            ("query", "reason"), registry=registry,
        )  # fmt: skip
        self._open = Gauge(
            "lowmark_windows_open",
            "At most so many windows hold tuples and are not closed, over all buckets; none of those that slide by "
            "tuple is counted.",
            _QUERY, registry=registry,
        )  # fmt: skip
        self._lag = Gauge(
            "lowmark_frontier_lag_seconds", "How far the last bucket's frontier is behind the clock; 0 when ended.",
            _QUERY, registry=registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "lowmark_source_awaited", "Buckets whose frontier this source holds.", ("node", "source"), registry=registry
        )
        self._state = Counter(
            "lowmark_state_written_bytes", "Bytes of state that were written.", ("stage",), registry=registry
        )
        self._seconds = Histogram(
            "lowmark_micro_batch_seconds", "How long a micro-batch took.", buckets=_SECONDS, registry=registry
        )
        self._standing: dict[tuple[str, int], BucketReport] = {}
        self._awaited: set[tuple[str, str]] = set()

    def micro_batch(self, reports: Sequence[BucketReport], seconds: float, now_ns: int) -> None:
        """A micro-batch has been written. `now_ns` is the clock, which attributes in ns since 1970 are behind."""
        self._seconds.observe(seconds)
        for report in reports:
            self._count(report)
            self._standing[report.stage, report.bucket] = report
        self._show(now_ns)

    def _count(self, report: BucketReport) -> None:
        for name, counter in self._counters.items():
            counter.labels(report.stage).inc(report.counters.get(name, 0))
        for reason, count in report.dead.items():
            self._dead.labels(report.stage, reason).inc(count)
        for query, count in report.rows.items():
            self._rows.labels(query).inc(count)
        for query in report.complete_to:  # every query's: a counter that has not counted yet is there, and 0
            self._exchanged.labels(query).inc(report.exchanged.get(query, 0))
            self._late_rows.labels(query).inc(report.late_rows.get(query, 0))
            self._corrections.labels(query).inc(report.corrections.get(query, 0))
        for query, why, count in report.windows:
            self._windows.labels(query, "exact" if why is None else "lossy", why or "").inc(count)
        for query, reason, count in report.amended:
            self._amended.labels(query, reason).inc(count)
        self._state.labels(report.stage).inc(report.state_bytes)

    def _show(self, now_ns: int) -> None:
        lags: dict[str, float] = {}
        open_windows: dict[str, int] = {}
        awaited: dict[tuple[str, str], int] = dict.fromkeys(self._awaited, 0)
        for report in self._standing.values():
            for query, bound in report.complete_to.items():
                if bound is not None:
                    lag = 0.0 if bound == FOREVER else max(0.0, (now_ns - bound) / 1e9)
                    lags[query] = max(lags.get(query, 0.0), lag)
            for query, count in report.open_windows.items():
                open_windows[query] = open_windows.get(query, 0) + count
            for node, source in report.waiting:
                place = f"{report.stage}/{node}", source  # as the capture processes call the node
                awaited[place] = awaited.get(place, 0) + 1
        for query, lag in lags.items():
            self._lag.labels(query).set(lag)
        for query, count in open_windows.items():
            self._open.labels(query).set(count)
        for (node, source), buckets in awaited.items():
            self._waiting.labels(node, source).set(buckets)
        self._awaited = set(awaited)
