"""Prometheus metrics of the high level, fed from each bucket's report of a micro-batch.

Every counter exists from the start, at 0: a counter that appears with its first value shows no increase. Values that
change with time alone are computed when they are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from highlevel.rosters.source_waits import SourceReport, SourceWaits
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER

__all__ = ["BatchPhase", "BucketReport", "HighLevelMetrics"]

_QUERY: Final = ("query",)
_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_DELAYS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)

_COUNTERS: Final = {
    "rows_in": ("lowmark_partials_merged", "Partials that the job merged."),
    "merged": ("lowmark_tuples_merged", "Tuples that the merged partials hold."),
    "late": (
        "lowmark_tuples_after_close",
        "Late tuples that the job did not merge: their granule had ended, or a promise about values excludes them.",
    ),
    "duplicates": (
        "lowmark_records_duplicate",
        "Records ignored because their sequence number is not above the last one of their lane.",
    ),
    "gaps": ("lowmark_records_missing", "Records that never arrived: sequence numbers missing in a lane."),
    "fenced": (
        "lowmark_records_fenced",
        "Records ignored because a later epoch of their source, or a later generation of the job, had begun.",
    ),
    "replayed": ("lowmark_tuples_replayed", "Tuples ignored because a restarted file source had sent them before."),
    "unlisted": (
        "lowmark_tuples_unlisted",
        "Tuples not merged because their stream did not list their source for that granule.",
    ),
}
"""Metric name and help text, by the key in `BucketReport.counters`."""


class BatchPhase(Enum):
    """The phases of a micro-batch in Spark: a closed list."""

    LATEST_OFFSET = "latest_offset"
    PLAN = "plan"
    WAL_COMMIT = "wal_commit"
    ADD_BATCH = "add_batch"
    COMMIT_OFFSETS = "commit_offsets"
    OTHER = "other"


class BucketReport(SourceReport, Protocol):
    """A bucket's counts for a micro-batch, and its status after it. Reasons are `None` for exact windows."""

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
    def state_bytes(self) -> int: ...
    @property
    def buffers(self) -> Sequence[tuple[str, str, int, int, int, int]]: ...
    @property
    def freed(self) -> Sequence[tuple[str, str, int, int, int]]: ...


class HighLevelMetrics(Collector):
    """The job's metrics in one registry. A bucket without records keeps its status.

    `roster` has the sources of each stream, `ended` the buckets (stage, number) that had ended before the job began.
    The queries `quarantined` get no records. `now_ns` is the clock against which attributes in ns since 1970 are
    measured.
    """

    def __init__(
        self, registry: CollectorRegistry, plans: Sequence[QueryPlan], roster: Mapping[str, Sequence[str]],
        ended: Collection[tuple[str, int]] = (), quarantined: Collection[str] = (),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self._plans = tuple(plans)
        self._quarantined = frozenset(quarantined)
        self._now_ns = now_ns
        self._count_from_the_start(registry)
        self._lock = threading.Lock()  # guards what follows: one thread reports, others read
        self._standing: dict[tuple[str, int], BucketReport] = {}
        self._waits = SourceWaits(plans, roster, ended, now_ns())
        registry.register(self)

    def _count_from_the_start(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(metric, text, ("stage",), registry=registry) for name, (metric, text) in _COUNTERS.items()
        }
        self._dead = Counter(
            "lowmark_dead_letters", "Records that the job could not use.", ("stage", "reason"), registry=registry
        )
        self._rows = Counter("lowmark_result_rows", "Result rows written.", _QUERY, registry=registry)
        self._exchanged = Counter(
            "lowmark_exchange_rows", "Rows that buckets sent to each other.", _QUERY, registry=registry
        )
        self._late_rows = Counter("lowmark_late_rows", "Rows written for late tuples.", _QUERY, registry=registry)
        self._corrections = Counter(
            "lowmark_corrections", "Corrections written for windows that had closed.", _QUERY, registry=registry
        )
        self._windows = Counter(
            "lowmark_windows_completed",
            "Windows completed, counted in each bucket; a window with two reasons counts twice.",
            ("query", "verdict", "reason"), registry=registry,
        )  # fmt: skip
        self._amended = Counter(
            "lowmark_windows_amended",
            "Completed windows of a bucket that became lossy afterwards; a window with two reasons counts twice.",
            ("query", "reason"), registry=registry,
        )  # fmt: skip
        self._state = Counter("lowmark_state_written_bytes", "Bytes of state written.", ("stage",), registry=registry)
        self._seconds = Histogram(
            "lowmark_micro_batch_duration_seconds",
            "Seconds from the start of a micro-batch's work until its results are visible.",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._phases = Counter(
            "lowmark_micro_batch_phase_seconds",
            "Seconds that Spark has spent in a phase of its micro-batches: ask Kafka (latest_offset), plan, log the "
            "offsets (wal_commit), read and process (add_batch), commit (commit_offsets); other is the rest.",
            ("phase",), registry=registry,
        )  # fmt: skip
        self._delays = Histogram(
            "lowmark_result_delay_seconds",
            "Seconds from the time up to which the query is complete until its results are visible; measured when "
            "windows close.",
            _QUERY, buckets=_DELAYS, registry=registry,
        )  # fmt: skip
        for phase in BatchPhase:
            self._phases.labels(phase.value)
        for stage in {plan.stage.fingerprint for plan in self._plans}:
            for counter in (*self._counters.values(), self._state):
                counter.labels(stage)
            for bad in BadReason:
                self._dead.labels(stage, bad.value)
        for query in (plan.name for plan in self._plans):
            for counter in (self._rows, self._exchanged, self._late_rows, self._corrections):
                counter.labels(query)
            self._delays.labels(query)
            self._windows.labels(query, "exact", "")
            for reason in Reason:
                self._windows.labels(query, "lossy", reason.value)
                self._amended.labels(query, reason.value)

    def phases(self, seconds: Mapping[BatchPhase, float]) -> None:
        """Count the time that Spark spent on a micro-batch."""
        for phase, spent_s in seconds.items():
            self._phases.labels(phase.value).inc(spent_s)

    def micro_batch(self, reports: Sequence[BucketReport], seconds: float) -> None:
        """Count a micro-batch that has been written."""
        self._seconds.observe(seconds)
        now_ns = self._now_ns()
        for report in reports:
            self._count(report)
            self._observe_delays(report, now_ns)
        with self._lock:
            for report in reports:
                self._standing[report.stage, report.bucket] = report
                self._waits.take(report, now_ns)

    def _count(self, report: BucketReport) -> None:
        for name, counter in self._counters.items():
            counter.labels(report.stage).inc(report.counters.get(name, 0))
        for reason, count in report.dead.items():
            self._dead.labels(report.stage, reason).inc(count)
        for counts, counter in (
            (report.rows, self._rows),
            (report.exchanged, self._exchanged),
            (report.late_rows, self._late_rows),
            (report.corrections, self._corrections),
        ):
            for query, count in counts.items():
                counter.labels(query).inc(count)
        for query, why, count in report.windows:
            self._windows.labels(query, "exact" if why is None else "lossy", why or "").inc(count)
        for query, reason, count in report.amended:
            self._amended.labels(query, reason).inc(count)
        self._state.labels(report.stage).inc(report.state_bytes)

    def _observe_delays(self, report: BucketReport, now_ns: int) -> None:
        for query in {query for query, _, _ in report.windows}:
            bound = report.complete_to.get(query)
            if bound is not None and bound != FOREVER:
                self._delays.labels(query).observe(max(0, now_ns - bound) / 1e9)

    def collect(self) -> Iterator[Metric]:
        now_ns = self._now_ns()
        with self._lock:
            families = [*self._queries(now_ns), *self._buffers(), *self._freed(), *self._sources(now_ns)]
        yield from families
        yield from self._names()

    def _queries(self, now_ns: int) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "lowmark_frontier_lag_seconds",
            "Seconds by which the frontier of the slowest bucket trails the clock; 0 after all sources have ended.",
            labels=_QUERY,
        )  # fmt: skip
        open_windows = GaugeMetricFamily(
            "lowmark_windows_open",
            "Upper bound of the open windows that hold tuples, over all buckets; windows that slide by tuple are not "
            "counted.",
            labels=_QUERY,
        )
        bounds: dict[str, int] = {}
        counts: dict[str, int] = {}
        for report in self._standing.values():
            for query, bound in report.complete_to.items():
                if bound is not None:
                    bounds[query] = min(bound, bounds.get(query, FOREVER))
            for query, count in report.open_windows.items():
                counts[query] = counts.get(query, 0) + count
        for query, bound in bounds.items():
            lag.add_metric((query,), 0 if bound == FOREVER else max(0, now_ns - bound) / 1e9)
        for query, count in counts.items():
            open_windows.add_metric((query,), count)
        quarantined = GaugeMetricFamily(
            "lowmark_query_quarantined",
            "1 while the query is quarantined: it failed or reached a limit, and only the other queries go on; else 0.",
            labels=_QUERY,
        )
        for plan in self._plans:
            quarantined.add_metric((plan.name,), plan.name in self._quarantined)
        yield from (lag, open_windows, quarantined)

    def _buffers(self) -> Iterator[Metric]:
        """The buffers of joins without windows, over all buckets."""
        predicted = GaugeMetricFamily(
            "lowmark_join_rows_predicted", "Rows that a join without windows needs of an input, as its model predicts.",
            labels=("query", "input"),
        )  # fmt: skip
        used = GaugeMetricFamily(
            "lowmark_join_rows_used",
            "Rows of an input that a join without windows has needed recently: from the newest back to the oldest that "
            "matched a row of another input.",
            labels=("query", "input"),
        )
        accuracy = GaugeMetricFamily(
            "lowmark_join_accuracy_ratio",
            "Share of the results of joins without windows for which the predicted rows were enough.",
            labels=_QUERY,
        )
        rows: dict[tuple[str, str], tuple[int, int]] = {}
        found: dict[str, tuple[int, int]] = {}
        for report in self._standing.values():
            for query, name, expects, needs, results, within in report.buffers:
                before = rows.get((query, name), (0, 0))
                rows[query, name] = before[0] + expects, before[1] + needs
                known = found.get(query, (0, 0))
                found[query] = known[0] + results, known[1] + within
        for labels, (expects, needs) in rows.items():
            predicted.add_metric(labels, expects)
            used.add_metric(labels, needs)
        for query, (results, within) in found.items():
            accuracy.add_metric((query,), within / results if results else 1.0)
        yield from (predicted, used, accuracy)

    def _freed(self) -> Iterator[Metric]:
        """The rows that punctuated joins keep and that promises have freed, over all buckets."""
        labels = ("query", "input")
        kept = GaugeMetricFamily(
            "lowmark_join_rows_kept", "Rows of an input that a punctuated join keeps now.", labels=labels
        )
        promised = GaugeMetricFamily(
            "lowmark_join_values_promised",
            "Values of an input that a punctuated join remembers because they are promised not to come again.",
            labels=labels,
        )
        freed = CounterMetricFamily(
            "lowmark_join_rows_freed",
            "Rows of an input that a punctuated join dropped or did not keep, because the other input promised so.",
            labels=labels,
        )
        found: dict[tuple[str, str], tuple[int, int, int]] = {}
        for query, name, *counts in (each for report in self._standing.values() for each in report.freed):
            before = found.get((query, name), (0, 0, 0))
            found[query, name] = before[0] + counts[0], before[1] + counts[1], before[2] + counts[2]
        for of, (rows, values, gone) in found.items():
            kept.add_metric(of, rows)
            promised.add_metric(of, values)
            freed.add_metric(of, gone)
        yield from (kept, promised, freed)

    def _sources(self, now_ns: int) -> Iterator[Metric]:
        awaited = GaugeMetricFamily(
            "lowmark_source_awaited",
            "Number of buckets whose frontier this source has held back for more than 10 s plus three granules.",
            labels=("node", "source"),
        )
        silent = GaugeMetricFamily(
            "lowmark_source_silent_seconds",
            "Seconds since Kafka took the newest record or promise of the source that the job has read; before the job "
            "has read one, seconds since the job began; 0 after the source ended.",
            labels=("source",),
        )
        for place, buckets in self._waits.awaited(now_ns).items():
            awaited.add_metric(place, buckets)
        for source, silent_s in self._waits.silent_s(now_ns).items():
            silent.add_metric((source,), silent_s)
        yield from (awaited, silent)

    def _names(self) -> Iterator[Metric]:
        """One series a stage or node: one label holds the names of all its queries, so that a join matches once."""
        stage_info = InfoMetricFamily(
            "lowmark_stage", "Names of the queries that read the stage, separated by commas.",
            labels=("stage", "queries"),
        )  # fmt: skip
        node_info = InfoMetricFamily(
            "lowmark_node", "Names of the queries that read the node's stage, separated by commas.",
            labels=("node", "stage", "queries"),
        )  # fmt: skip
        for name, stage in {plan.stage.fingerprint: plan.stage for plan in self._plans}.items():
            queries = ",".join(sorted(plan.name for plan in self._plans if plan.stage.fingerprint == name))
            stage_info.add_metric((name, queries), {})
            for node in stage.nodes:
                node_info.add_metric((f"{name}/{node.name}", name, queries), {})
        yield from (stage_info, node_info)
