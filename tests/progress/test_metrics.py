from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from highlevel.config import JobConfig
from highlevel.metrics import BatchPhase, HighLevelMetrics
from highlevel.progress.driver import BucketDriver
from highlevel.progress.records import Arrival, Record
from highlevel.rosters.roster import Roster
from highlevel.spark.batch_phases import phases_of
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER
from tests.progress.harness import Sender

SECOND = 10**9
SQL = "SELECT srcIP, count(*) [RANGE 2 s] FROM Main GROUP BY srcIP"
PLAN = compile_query(SQL, name="q", buckets=2)
STAGE = PLAN.stage.fingerprint
(NODE,) = PLAN.stage.nodes
GRANULE = NODE.reduction.pane.length
PATIENCE = 10 * SECOND + 3 * GRANULE
MAIN = {"Main": ("a", "b")}


@dataclass
class Report:
    bucket: int
    stage: str = STAGE
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
    fronts: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    buffers: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    freed: list[tuple[str, str, int, int, int]] = field(default_factory=list)


@dataclass
class Job:
    """Its metrics, by a clock that stands until it is set."""

    now_ns: int = 100 * SECOND
    plans: tuple = (PLAN,)
    ended: tuple = ()
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self):
        self.metrics = HighLevelMetrics(self.registry, self.plans, MAIN, self.ended, now_ns=lambda: self.now_ns)

    def shown(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"lowmark_{name}", labels)

    def awaited(self, source: str) -> float | None:
        return self.shown("source_awaited", node=f"{STAGE}/{NODE.name}", source=source)


def test_the_slowest_bucket_is_the_lag_and_a_silent_one_stands_where_it_stood():
    job = Job()
    first = Report(0, complete_to={"q": 95 * SECOND}, open_windows={"q": 2}, state_bytes=7)
    other = Report(1, complete_to={"q": 98 * SECOND}, windows=[("q", None, 3), ("q", "gap", 1)], dead={"future": 2})
    other.late_rows, other.corrections, other.amended = {"q": 6}, {"q": 7}, [("q", "late", 5)]
    job.metrics.micro_batch([first, other], 0.3)
    assert job.shown("frontier_lag_seconds", query="q") == 5
    assert job.shown("late_rows_total", query="q") == 6
    assert job.shown("corrections_total", query="q") == 7
    job.now_ns += 2 * SECOND
    job.metrics.micro_batch([Report(1, complete_to={"q": FOREVER}, counters={"gaps": 4})], 0.2)
    assert job.shown("frontier_lag_seconds", query="q") == 7
    assert job.shown("windows_open", query="q") == 2
    job.metrics.micro_batch([Report(0, complete_to={"q": FOREVER})], 0.2)
    assert job.shown("frontier_lag_seconds", query="q") == 0
    assert job.shown("windows_completed_total", query="q", verdict="exact", reason="") == 3
    assert job.shown("windows_amended_total", query="q", reason="late") == 5
    assert job.shown("dead_letters_total", stage=STAGE, reason="future") == 2
    assert job.shown("records_missing_total", stage=STAGE) == 4


def test_the_lag_grows_while_nothing_comes():
    job = Job()
    job.metrics.micro_batch([Report(0, complete_to={"q": 99 * SECOND})], 0.1)
    assert job.shown("frontier_lag_seconds", query="q") == 1
    job.now_ns += 90 * SECOND
    assert job.shown("frontier_lag_seconds", query="q") == 91


def test_the_delay_of_results_is_counted_where_windows_closed():
    job = Job()
    closed = Report(0, complete_to={"q": 97 * SECOND}, windows=[("q", None, 3), ("q", "gap", 1)])
    open_ = Report(1, complete_to={"q": 90 * SECOND})
    ended = Report(1, complete_to={"q": FOREVER}, windows=[("q", None, 1)])
    job.metrics.micro_batch([closed, open_], 0.3)
    job.metrics.micro_batch([ended], 0.3)
    assert job.shown("result_delay_seconds_count", query="q") == 1
    assert job.shown("result_delay_seconds_sum", query="q") == 3


def test_buffers_of_joins_are_those_of_all_buckets():
    job = Job()
    one = Report(0, buffers=[("q", "A", 10, 4, 100, 100), ("q", "B", 7, 7, 100, 100)])
    job.metrics.micro_batch([one, Report(1, buffers=[("q", "A", 5, 9, 100, 90), ("q", "B", 1, 1, 100, 90)])], 0.1)
    assert job.shown("join_rows_predicted", query="q", input="A") == 15
    assert job.shown("join_rows_used", query="q", input="A") == 13
    assert job.shown("join_rows_used", query="q", input="B") == 8
    assert job.shown("join_accuracy_ratio", query="q") == 0.95
    job.metrics.micro_batch([Report(2, buffers=[("empty", "A", 0, 0, 0, 0)])], 0.1)
    assert job.shown("join_accuracy_ratio", query="empty") == 1


def test_what_promises_free_in_joins_is_of_all_buckets():
    job = Job()
    job.metrics.micro_batch([Report(0, freed=[("q", "A", 10, 4, 100)]), Report(1, freed=[("q", "A", 5, 3, 7)])], 0.1)
    job.metrics.micro_batch([Report(1, freed=[("q", "A", 6, 0, 9)])], 0.1)
    names = "rows_kept", "values_promised", "rows_freed_total"
    assert [job.shown(f"join_{name}", query="q", input="A") for name in names] == [16, 4, 109]


def test_the_phases_of_a_batch_add_up():
    job = Job()
    durations = {"latestOffset": 5, "getBatch": 1, "queryPlanning": 30, "walCommit": 20, "addBatch": 400}
    job.metrics.phases(phases_of({**durations, "commitOffsets": 40, "triggerExecution": 500, "newThing": 3}))
    seconds = {phase: job.shown("micro_batch_phase_seconds_total", phase=phase.value) for phase in BatchPhase}
    assert sum(seconds.values()) == pytest.approx(0.5)
    assert (seconds[BatchPhase.PLAN], seconds[BatchPhase.OTHER]) == (pytest.approx(0.031), pytest.approx(0.004))


def test_what_may_be_counted_is_there_before_it_is():
    """`increase()` sees no first value that a series is born with."""
    job = Job()
    for reason in Reason:
        assert job.shown("windows_completed_total", query="q", verdict="lossy", reason=reason.value) == 0
        assert job.shown("windows_amended_total", query="q", reason=reason.value) == 0
    for bad in BadReason:
        assert job.shown("dead_letters_total", stage=STAGE, reason=bad.value) == 0
    for name in ("result_rows", "exchange_rows", "late_rows", "corrections"):
        assert job.shown(f"{name}_total", query="q") == 0
    for name in ("partials_merged", "records_missing", "tuples_unlisted", "state_written_bytes"):
        assert job.shown(f"{name}_total", stage=STAGE) == 0


def test_no_series_is_born_later():
    job = Job()
    before = {(sample.name, *sample.labels.items()) for family in job.registry.collect() for sample in family.samples}
    report = Report(1, heard={"a": 5}, waiting=[(NODE.name, "a")], fronts={NODE.name: 3}, rows={"q": 1})
    report.windows, report.amended = [("q", reason.value, 1) for reason in Reason], [("q", "tie", 1)]
    report.counters, report.dead = {"late": 1}, {bad.value: 1 for bad in BadReason}
    job.metrics.micro_batch([report], 0.1)
    after = {(sample.name, *sample.labels.items()) for family in job.registry.collect() for sample in family.samples}
    assert after == before


def test_names_of_queries_beside_hashes():
    """One series a stage, whoever reads it: a join with it finds one."""
    plans = (PLAN, compile_query(SQL, name="p", buckets=2), compile_query(SQL, name="r", buckets=3))
    assert plans[1].stage == PLAN.stage != plans[2].stage
    job = Job(plans=plans)
    assert job.shown("stage_info", stage=STAGE, queries="p,q") == 1
    assert job.shown("node_info", node=f"{STAGE}/{NODE.name}", stage=STAGE, queries="p,q") == 1
    assert job.shown("stage_info", stage=plans[2].stage.fingerprint, queries="r") == 1
    (info,) = (family for family in job.registry.collect() if family.name == "lowmark_stage")
    assert len(info.samples) == 2


class Buckets:
    """Both buckets of the stage, each read in micro-batches by a driver that is made anew from its state."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.states = [MemoryState(), MemoryState()]

    def take(self, records: Iterable[Record]) -> None:
        reports = []
        for bucket, state in enumerate(self.states):
            driver = BucketDriver(PLAN.stage, (PLAN,), bucket, state, Roster.of(MAIN), 1)
            for record in records:
                driver.take(record, Arrival(0, appended_ns=self.job.now_ns))
            driver.flush()
            progress = driver.progress()
            report = Report(bucket, fronts=dict(progress.fronts), waiting=list(progress.waiting))
            report.heard, report.complete_to = dict(progress.heard), dict(progress.complete_to)
            reports.append(report)
        self.job.metrics.micro_batch(reports, 0.1)


def sender(source: str) -> Sender:
    return Sender(source, stage=STAGE, node=NODE.name, width=GRANULE)


def test_a_source_is_awaited_when_the_frontier_stands_still():
    job = Job()
    buckets, a, b = Buckets(job), sender("a"), sender("b")
    for granule in range(50, 60):  # all is well: each granule is promised when it has ended, by one a bit later
        for source, after in ((a, GRANULE // 2), (b, GRANULE // 2)):
            job.now_ns += after
            buckets.take([source.promise(granule)])
            assert (job.awaited("a"), job.awaited("b")) == (0, 0)
    for granule in range(60, 80):
        job.now_ns += GRANULE
        buckets.take([a.promise(granule)])
        since_b = (granule - 59) * GRANULE
        # The first of them has moved the frontier to where b has promised.
        assert job.awaited("b") == (2 if since_b > PATIENCE else 0)
        assert (job.awaited("a"), job.shown("source_silent_seconds", source="a")) == (0, 0)
        assert job.shown("source_silent_seconds", source="b") == since_b / SECOND
    assert job.awaited("b") == 2
    buckets.take([b.promise(78)])
    assert (job.awaited("b"), job.shown("source_silent_seconds", source="b")) == (0, 0)
    job.now_ns += PATIENCE + 1  # now both are silent, and b is behind
    assert (job.awaited("a"), job.awaited("b")) == (0, 2)
    assert job.shown("source_silent_seconds", source="a") == pytest.approx((PATIENCE + 1) / SECOND)


def test_the_only_one_that_dies_is_awaited():
    job = Job()
    buckets, a, b = Buckets(job), sender("a"), sender("b")
    buckets.take([b.end()])
    buckets.take([a.promise(50)])
    job.now_ns += PATIENCE
    assert job.awaited("a") == 0
    job.now_ns += 1
    assert (job.awaited("a"), job.awaited("b")) == (2, 0)
    assert job.shown("source_silent_seconds", source="b") == 0
    buckets.take([a.end()])
    job.now_ns += 10 * PATIENCE
    assert (job.awaited("a"), job.shown("source_silent_seconds", source="a")) == (0, 0)


def test_a_source_that_never_comes_is_awaited_from_the_job_s_start():
    job = Job()
    assert (job.awaited("a"), job.shown("source_silent_seconds", source="a")) == (0, 0)
    job.now_ns += PATIENCE + 1
    assert (job.awaited("a"), job.awaited("b")) == (2, 2)
    assert job.shown("source_silent_seconds", source="b") == pytest.approx((PATIENCE + 1) / SECOND)
    Buckets(job).take([sender("a").promise(50)])
    assert (job.awaited("a"), job.awaited("b")) == (0, 0)
    job.now_ns += PATIENCE + 1
    assert (job.awaited("a"), job.awaited("b")) == (0, 2)


def test_nobody_is_awaited_where_all_had_ended_before():
    job = Job(ended=((STAGE, 0), (STAGE, 1)))
    job.now_ns += 10 * PATIENCE
    assert (job.awaited("a"), job.shown("source_silent_seconds", source="a")) == (0, 0)


def test_a_source_that_no_stream_lists_has_no_series():
    """Whoever may write to the topic cannot make any number of them."""
    job = Job()
    Buckets(job).take([sender("stranger").promise(50)])
    assert job.shown("source_silent_seconds", source="stranger") is None
    assert job.awaited("stranger") is None


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
