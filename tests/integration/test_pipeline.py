"""Every query that runs, through the real thing: captures, broker, one Spark job, result topics."""

from __future__ import annotations

import json
from itertools import groupby, pairwise

import pytest

from lowmark.query.plan.nodes import Counted, Finish
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.command import lowmark
from tests.integration import metered
from tests.integration.pipelinecases import case_names
from tests.integration.pipelinerun import HELD_PACKETS, Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", case_names())
def test_rows(name: str, pipeline: Pipeline) -> None:
    case = pipeline.cases[name]
    assert case.wrong(case.rows(pipeline.results[name].lines)) == []


@pytest.mark.parametrize("name", case_names())
def test_completions(name: str, pipeline: Pipeline) -> None:
    """Exact but where a capture was damaged, contiguous, and of as many rows as stand before each."""
    case, buckets = pipeline.cases[name], pipeline.plans[name].stage.buckets
    for bucket, completions in pipeline.results[name].completions.items():
        for complete, rows in completions:
            assert complete.verdict.exact or case.damaged
            assert (complete.bucket, complete.buckets, complete.generation) == (bucket, buckets, 1)
            assert complete.rows == rows
            assert (complete.late, complete.dropped) == (0, 0)
            assert complete.merged == complete.promised or complete.windows is None
        for (before, _), (after, _) in pairwise(completions):
            if after.windows is None:
                assert after.end > before.end
            else:
                assert before.windows is not None
                assert after.windows.first == before.windows.to + 1


def test_damage(pipeline: Pipeline) -> None:
    """The last window of a capture that ends too soon is lossy, in every bucket."""
    for name in (name for name, case in pipeline.cases.items() if case.damaged):
        for completions in pipeline.results[name].completions.values():
            *before, (last, _) = completions
            assert last.verdict.reasons == {Reason.DAMAGED}
            assert all(complete.verdict.exact for complete, _ in before)


def test_exchanges(pipeline: Pipeline) -> None:
    """What compares the rows of a window, or groups them by other keys, has run in several buckets."""
    for name in ("own-having", "own-top", "held"):
        plan = pipeline.plans[name]
        assert (plan.exchanges is not None, plan.stage.buckets > 1) == (name != "held", name != "held")
    for plan in pipeline.plans.values():
        totals = [step.plan.totals for step in plan.steps if isinstance(step.plan, Finish)]
        assert plan.stage.buckets == 1 or not any(totals) or any(isinstance(at.plan, Counted) for at in plan.steps)


def test_queries_of_other_aggregates_share_a_stage(pipeline: Pipeline) -> None:
    one, other = (pipeline.plans[f"own-{name}"] for name in ("tumbling", "sizes"))
    assert one.stage == other.stage
    assert one.views != other.views
    (node,) = one.stage.nodes
    assert sorted(fold.op.name for fold in node.reduction.folds) == ["ADD", "ADD", "FIRST", "MAX", "MIN"]


def test_exit_codes(pipeline: Pipeline) -> None:
    """A damaged capture is answered as far as it goes, and its process says so."""
    assert pipeline.exit_codes == {"first capture": 3, "job": 0}
    assert "torn.pcap" in pipeline.said["first capture"]
    assert not [text for text in pipeline.said.values() if "Traceback" in text]


def test_end(pipeline: Pipeline) -> None:
    """The job waited for the last source, and ended with the windows of what that one had sent."""
    assert [line for line in pipeline.said["job"].splitlines() if line][-1].endswith("ending")
    completions = [pair for found in pipeline.results["held"].completions.values() for pair in found]
    assert sum(complete.merged for complete, _ in completions) == len(HELD_PACKETS)


def test_check(pipeline: Pipeline) -> None:
    outcome = lowmark("check", "-c", str(pipeline.path))
    assert outcome.code == 0, outcome.out
    lines = [line.split(maxsplit=1) for line in outcome.out.splitlines()]
    assert {mark for mark, _ in lines} == {"ok"}
    said = {what for _, what in lines}
    assert {f"query {name}" for name in pipeline.plans} <= {what.split(":")[0] for what in said}
    assert {f"Kafka at {pipeline.config.kafka.bootstrap}", "topics"} <= said


def test_topics(pipeline: Pipeline) -> None:
    outcome = lowmark("topics", "-c", str(pipeline.path))
    assert outcome.code == 0, outcome.out
    found = {str(row["topic"]).partition("lowmark.v1.")[2]: (row["partitions"], row["state"]) for row in outcome.rows}
    for name, plan in pipeline.plans.items():
        assert found[f"results.{name}"] == (plan.stage.buckets, "ok")
        assert found[f"partials.{plan.stage.fingerprint}"] == (plan.stage.buckets, "ok")


def test_sources(pipeline: Pipeline) -> None:
    outcome = lowmark("sources", "-c", str(pipeline.path))
    assert outcome.code == 0, outcome.error
    found = {str(row["source"]): row for row in outcome.rows}
    assert found.keys() == pipeline.config.sources.keys()
    assert {(row["state"], row["kind"], row["lag_s"]) for row in found.values()} == {("ended", "finite", None)}
    assert all(row["stream"] == pipeline.config.sources[name].stream for name, row in found.items())
    assert len({row["epoch"] for row in found.values()}) == len(found)
    assert len({row["process"] for row in found.values()}) == 2
    assert (found["held"]["disorder"], found[metered.SOURCE]["disorder"]) == ("ordered", "ordered")


def test_watch_rows(pipeline: Pipeline) -> None:
    """The metered query has one bucket: its rows come window by window, and its completions are told."""
    options = ("--from-beginning", "--json", "--windows", str(metered.WINDOWS))
    outcome = lowmark("watch", metered.QUERY, "-c", str(pipeline.path), *options)
    assert outcome.code == 4, outcome.error
    assert [json.dumps(row) for row in outcome.rows] == [
        json.dumps(json.loads(line)) for line in pipeline.results[metered.QUERY].lines
    ]
    told = [json.loads(line) for line in outcome.error.splitlines()]
    lossy = metered.LATE_WINDOWS
    assert [one["verdict"] for one in told] == ["lossy"] * lossy + ["exact"] * (metered.WINDOWS - lossy)
    assert [one["reasons"] for one in told] == [["late"]] * lossy + [[]] * (metered.WINDOWS - lossy)
    assert [one["rows"] for one in told] == [metered.HOSTS] * metered.WINDOWS
    names = {"window_start": "flowStartNanoseconds", "window_end": "flowEndNanoseconds"}  # as IPFIX calls them
    bounds = [{bound: row[name] for bound, name in names.items()} for row in outcome.rows]
    assert [one["complete"] for one in told] == [bound for bound, _ in groupby(bounds)]
    assert not any(one["partial"] for one in told)


def test_watch_ends_after_so_many_windows(pipeline: Pipeline) -> None:
    outcome = lowmark("watch", "own-tumbling", "-c", str(pipeline.path), "--from-beginning", "--json", "--windows", "3")
    assert outcome.code == 0, outcome.error
    told = [json.loads(line) for line in outcome.error.splitlines()]
    assert len(told) == 3
    bounds = [(one["complete"]["window_start"], one["complete"]["window_end"]) for one in told]
    assert bounds == sorted(bounds)


def test_watch_of_no_query(pipeline: Pipeline) -> None:
    outcome = lowmark("watch", "talkers", "-c", str(pipeline.path), "--windows", "1")
    assert outcome.code == 1
    assert "own-tumbling" in outcome.error
