"""The endpoints of a capture and a job on traffic whose every number is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from highlevel.metrics import BatchPhase
from lowmark import __version__
from lowmark.wire.records.record import BadReason
from tests.integration import metered
from tests.integration.pipelinerun import HELD_PACKETS, Pipeline
from tests.integration.processes import Samples, samples, value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_DOCUMENTED = re.compile(r"^\| `(lowmark_\w+)` *\| (capture|job) *\| \w+ *\| ([^|]*)\|", re.MULTILINE)
_DAMAGED = "lowmark_capture_damaged_total"
_PARTS_OF_HISTOGRAMS = re.compile(r"_(bucket|count|sum)$")
_DOCUMENTS = Path(__file__).parents[2] / "docs" / "metrics.md"

SOURCE = {"source": metered.SOURCE, "stream": metered.STREAM}


@pytest.fixture(scope="module")
def capture(pipeline: Pipeline) -> Samples:
    return samples(pipeline.pages["capture/metrics"].text)


@pytest.fixture(scope="module")
def job(pipeline: Pipeline) -> Samples:
    return samples(pipeline.pages["job/metrics"].text)


@pytest.fixture(scope="module")
def stage(pipeline: Pipeline) -> str:
    return pipeline.plans[metered.QUERY].stage.fingerprint


@pytest.fixture(scope="module")
def node(pipeline: Pipeline, stage: str) -> dict[str, str]:
    """Labels of the capture's node."""
    (only,) = pipeline.plans[metered.QUERY].stage.nodes
    return {**SOURCE, "node": f"{stage}/{only.name}"}


def test_source(capture: Samples, pipeline: Pipeline) -> None:
    assert value(capture, "lowmark_frames_received_total", **SOURCE) == metered.RECEIVED
    assert value(capture, "lowmark_packets_decoded_total", **SOURCE) == metered.DECODED
    for reason, count in metered.SKIPPED.items():
        assert value(capture, "lowmark_frames_skipped_total", **SOURCE, reason=reason) == count
    file = pipeline.config.sources[metered.SOURCE].file
    assert file is not None
    assert value(capture, "lowmark_capture_read_bytes_total", **SOURCE) == file.stat().st_size
    assert value(capture, "lowmark_capture_damaged_total", **SOURCE) == 0
    assert value(capture, "lowmark_low_watermark_lag_seconds", **SOURCE) == 0
    assert value(capture, "lowmark_frames_dropped_total", **SOURCE) == 0


def test_node(capture: Samples, node: dict[str, str]) -> None:
    """decoded = filtered + late + given up + in partials + resident, and the table is empty at the end."""
    expected = {
        "tuples_filtered_total": metered.FILTERED,
        "tuples_late_total": metered.LATE,
        "tuples_in_partials_total": metered.COUNTED,
        "tuples_queued_total": metered.COUNTED,
        "tuples_given_up_total": 0,
        "tuples_resident": 0,
        "groups_resident": 0,
    }
    assert {name: value(capture, f"lowmark_{name}", **node) for name in expected} == expected


def test_damaged_capture(capture: Samples, pipeline: Pipeline) -> None:
    damaged = {name for case in pipeline.cases.values() if case.damaged for name in case.sources}
    found = {dict(labels)["source"]: count for (name, labels), count in capture.items() if name == _DAMAGED}
    assert {source for source, count in found.items() if count} == damaged


def test_what_a_source_reads(capture: Samples) -> None:
    assert value(capture, "lowmark_source_info", **SOURCE, configured=metered.SOURCE, reads="file") == 1


def test_source_that_has_not_ended(capture: Samples, job: Samples, pipeline: Pipeline) -> None:
    """Its low-watermark is the time of the last packet that came in order."""
    held = {"source": "held", "stream": "Held"}
    last_s = HELD_PACKETS[-1].ts / 1e9
    assert value(capture, "lowmark_source_low_watermark_timestamp_seconds", **held) == pytest.approx(last_s)
    assert value(capture, "lowmark_frames_received_total", **held) == len(HELD_PACKETS)
    lag = value(capture, "lowmark_low_watermark_lag_seconds", **held)
    assert lag is not None
    assert lag > 365 * 86400
    assert value(job, "lowmark_frontier_lag_seconds", query="held") == pytest.approx(lag, abs=300)
    stage = pipeline.plans["held"].stage
    (node,) = stage.nodes
    assert value(job, "lowmark_source_awaited", node=f"{stage.fingerprint}/{node.name}", source="held") in (0, 1)
    silent = value(job, "lowmark_source_silent_seconds", source="held")
    assert silent is not None
    assert silent > 0 == value(job, "lowmark_source_silent_seconds", source=metered.SOURCE)


def test_queue(capture: Samples, pipeline: Pipeline) -> None:
    topics = {dict(labels)["topic"] for name, labels in capture if name == "lowmark_queue_records"}
    stages = {topic.rpartition(".")[2] for topic in topics}
    assert pipeline.plans[metered.QUERY].stage.fingerprint in stages
    assert stages <= {plan.stage.fingerprint for plan in pipeline.plans.values()}
    for topic in topics:
        for name in ("queue_records", "queue_bytes", "queue_age_seconds", "topic_failing_seconds"):
            assert value(capture, f"lowmark_{name}", topic=topic) == 0
        assert value(capture, "lowmark_producer_restarts_total", topic=topic) == 0
        records = value(capture, "lowmark_kafka_records_total", topic=topic)
        size = value(capture, "lowmark_kafka_bytes_total", topic=topic)
        assert records is not None
        assert size is not None
        assert 0 < records < size


def test_stage(capture: Samples, job: Samples, node: dict[str, str], stage: str) -> None:
    expected = {
        "tuples_merged_total": metered.COUNTED,
        "tuples_after_close_total": 0,
        "tuples_replayed_total": 0,
        "tuples_unlisted_total": 0,
        "records_duplicate_total": 0,
        "records_missing_total": 0,
        "records_fenced_total": 0,
    }
    assert {name: value(job, f"lowmark_{name}", stage=stage) for name in expected} == expected
    ways = ("evicted", "flushed", "straight")
    left = [value(capture, f"lowmark_partials_{way}_total", **node) or 0 for way in ways]
    merged = value(job, "lowmark_partials_merged_total", stage=stage)
    assert merged == sum(left)
    assert merged >= metered.ROWS
    for bad in BadReason:
        assert value(job, "lowmark_dead_letters_total", stage=stage, reason=bad.value) == 0
    assert value(job, "lowmark_source_awaited", node=node["node"], source=metered.SOURCE) == 0


def test_the_process(capture: Samples, job: Samples) -> None:
    for process in (capture, job):
        assert value(process, "lowmark_build_info", version=__version__) == 1
        for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"):
            assert (value(process, name) or 0) > 0


def test_helper_threads(capture: Samples, job: Samples, pipeline: Pipeline) -> None:
    of_job = {"checkpoint", "health", "kafka", "sources", "watchdog"}
    for process, expected in ((capture, {"health", "kafka", "epochs"}), (job, of_job)):
        up = {dict(labels)["thread"]: count for (name, labels), count in process.items() if name == "lowmark_thread_up"}
        assert set(up.values()) == {1}
        assert {thread for thread in up if not thread.startswith("emitter ")} == expected
        restarts = [count for (name, _), count in process.items() if name == "lowmark_thread_restarts_total"]
        assert restarts == [0] * len(up)


def test_phases_of_micro_batches(job: Samples) -> None:
    """They and the delivery make up the batches: Spark's part is most of their time."""
    name = "lowmark_micro_batch_phase_seconds_total"
    spent = {phase: value(job, name, phase=phase.value) or 0 for phase in BatchPhase}
    assert all(seconds >= 0 for seconds in spent.values())
    assert spent[BatchPhase.ADD_BATCH] == max(spent.values()) > 0
    batches = value(job, "lowmark_micro_batch_duration_seconds_count")
    assert batches is not None
    assert batches > 1


def test_results_of_old_packets_are_as_late_as_the_packets_are_old(job: Samples) -> None:
    """Once for each bucket and micro-batch that closed windows; at the end of all sources there is no time to compare
    with."""
    query = {"query": "held"}
    count, total = (value(job, f"lowmark_result_delay_seconds_{part}", **query) for part in ("count", "sum"))
    lag = value(job, "lowmark_frontier_lag_seconds", **query)
    assert count is not None
    assert total is not None
    assert lag is not None
    assert count > 0
    assert total / count == pytest.approx(lag, rel=0.01)


def test_names_of_queries(capture: Samples, job: Samples, node: dict[str, str], stage: str) -> None:
    queries = {"queries": metered.QUERY}
    assert value(job, "lowmark_stage_info", stage=stage, **queries) == 1
    for process in (capture, job):
        assert value(process, "lowmark_node_info", node=node["node"], stage=stage, **queries) == 1
    topics = [dict(labels) for name, labels in capture if name == "lowmark_topic_info"]
    assert [labels["queries"] for labels in topics if labels["topic"].endswith(stage)] == [metered.QUERY]


def test_windows(job: Samples) -> None:
    query = {"query": metered.QUERY}
    assert value(job, "lowmark_result_rows_total", **query) == metered.ROWS
    exact = value(job, "lowmark_windows_completed_total", **query, verdict="exact", reason="")
    late = value(job, "lowmark_windows_completed_total", **query, verdict="lossy", reason="late")
    assert value(job, "lowmark_windows_completed_total", **query, verdict="lossy", reason="gap") == 0
    assert value(job, "lowmark_windows_amended_total", **query, reason="late") == 0
    assert (exact, late) == (metered.WINDOWS - metered.LATE_WINDOWS, metered.LATE_WINDOWS)
    assert value(job, "lowmark_windows_open", **query) == 0
    assert value(job, "lowmark_frontier_lag_seconds", **query) == 0


def test_the_completions_say_the_same(pipeline: Pipeline) -> None:
    (completions,) = pipeline.results[metered.QUERY].completions.values()
    found = [(complete.merged, complete.late, complete.verdict.exact) for complete, _ in completions]
    each = metered.COUNTED // metered.WINDOWS
    exact = metered.WINDOWS - metered.LATE_WINDOWS
    assert found == [(each, 4, False), (each, 2, False), *[(each, 0, True)] * exact]


def test_rows_in_batches_have_the_names_that_were_asked_for(pipeline: Pipeline) -> None:
    (rows,) = pipeline.results[metered.QUERY].rows.values()
    assert len(rows) == metered.ROWS
    for row in rows:
        assert list(json.loads(row)) == ["flowStartNanoseconds", "flowEndNanoseconds", "sourceIPAddress", "n", "latest"]


def test_health(pipeline: Pipeline) -> None:
    pages = pipeline.pages
    for process in ("capture", "job"):
        assert (pages[f"{process}/healthz"].status, pages[f"{process}/healthz"].json["status"]) == (200, "ok")
        assert (pages[f"{process}/readyz"].status, pages[f"{process}/readyz"].json["status"]) == (200, "ok")
        assert pages[f"{process}/nowhere"].status == 404
    ready = pages["capture/readyz"].json
    assert (ready["held"], ready[metered.SOURCE]) == ("capturing", "ended")
    assert pages["job/readyz"].json["query"] == "running"
    assert ready["kafka"] == pages["job/readyz"].json["kafka"] == "answers"


def test_what_is_served_is_what_is_documented(capture: Samples, job: Samples) -> None:
    if not _DOCUMENTS.exists():
        pytest.skip("there is no docs/metrics.md")
    documented = {
        (process, name): frozenset(re.findall(r"`(\w+)`", labels))
        for name, process, labels in _DOCUMENTED.findall(_DOCUMENTS.read_text(encoding="utf-8"))
    }
    for process, found in (("capture", capture), ("job", job)):
        served: dict[tuple[str, str], set[frozenset[str]]] = {}
        for name, labels in found:
            if name.startswith("lowmark_") and not name.endswith("_created"):
                metric = _PARTS_OF_HISTOGRAMS.sub("", name)
                served.setdefault((process, metric), set()).add(frozenset(dict(labels)) - {"le"})
        assert {metric: {documented.get(metric)} for metric in served} == served
        rare = {"lowmark_disorder_bound_seconds"}  # it is there where disorder is measured; rings have interfaces
        rare |= {"lowmark_ring_bytes", "lowmark_ring_filled_bytes", "lowmark_ring_freezes_total"}
        assert {name for of, name in documented if of == process} - {name for _, name in served} <= rare
