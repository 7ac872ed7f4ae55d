"""What Spark, the bridge to it and the disk say, in a sentence."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException

from highlevel.spark.end_reasons import explained, failed_queries
from highlevel.spark.errors import CheckpointRefused, JobFailed, QueriesFailed, TakenOver, TopicsDeleted

STREAM = """[STREAM_FAILED] Query [id = 7, runId = 8] terminated with exception: Job aborted due to stage failure
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Py4JError(
                "An error occurred while calling o77.collectToPython.\n: org.apache.spark.SparkException: No luck"
            ),
            "Spark ended the job: No luck",
        ),
        (StreamingQueryException(STREAM), "Spark ended the job: Job aborted due to stage failure"),
        (StreamingQueryException(STREAM + "Caused by: java.lang.NullPointerException"), "NullPointerException"),
        (
            StreamingQueryException(STREAM + "Caused by: a.b.C: first\nCaused by: d.e.F: last"),
            "Spark ended the job: last",
        ),
        (
            StreamingQueryException(STREAM + "Caused by: java.io.IOException: No space left on device"),
            "no space is left in {folder}: make room there",
        ),
        (
            StreamingQueryException(STREAM + "Caused by: x.BucketFailure: KeyError in bucket 1 of stage s: 'a'"),
            "KeyError in bucket 1 of stage s: 'a'. The job has stopped",
        ),
        (
            StreamingQueryException(
                STREAM + "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node"
            ),
            "Kafka does not answer Spark, or refuses it: Timed out waiting for a node",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/x/lowmark.new"), "no space is left in {folder}"),
        (OSError(errno.EROFS, "Read-only file system", "/x/lowmark.new"), "/x/lowmark.new: Read-only file system"),
    ],
)
def test_a_failure_of_the_engine_is_a_sentence(error: Exception, said: str, tmp_path: Path) -> None:
    told = explained(error, None, tmp_path)
    assert isinstance(told, JobFailed)
    assert said.format(folder=tmp_path) in str(told)
    assert "\n" not in str(told)
    for word in ("collectToPython", "An error occurred", "java.", "org.apache", "STREAM_FAILED"):
        assert word not in str(told)


def test_state_that_this_program_cannot_read_is_refused(tmp_path: Path) -> None:
    """Another start would read the same state."""
    refused = "StateRefused in bucket 1 of stage s (queries: q): the stored state has version 6: this program reads 7"
    told = explained(StreamingQueryException(f"{STREAM}Caused by: x.BucketFailure: {refused}"), None, tmp_path)
    assert isinstance(told, CheckpointRefused)
    assert str(told).startswith(refused)


def test_the_queries_that_an_operators_failure_concerns() -> None:
    said = "LimitReached in bucket 3 of stage f00d (queries: a-1, b_2): query a-1: more than 5 different (srcIP)"
    text = f"{STREAM}highlevel.spark.errors.QueryFailure: {said}\n\tat org.apache.spark.X"
    assert failed_queries(StreamingQueryException(text)) == (("a-1", "b_2"), said)
    told = explained(StreamingQueryException(text), None, Path("/nowhere"))
    assert isinstance(told, QueriesFailed)  # no query is left
    assert (said in str(told), told.exit_code) == (True, 2)
    assert failed_queries(StreamingQueryException(text.replace("QueryFailure", "BucketFailure"))) == ((), "")


class Ended:
    """Spark whose process has."""

    def gone(self, wait: bool = False) -> str:
        return "was killed by SIGKILL"


def test_what_is_said_without_spark_is_that_it_is_gone(tmp_path: Path) -> None:
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(errno.ECONNREFUSED, "?")):
        told = explained(error, Ended(), tmp_path)  # type: ignore[arg-type]  # of Spark only this is asked
        assert str(told).startswith("Spark's process was killed by SIGKILL. Nothing is lost")


@pytest.mark.parametrize("error", [TakenOver("x"), TopicsDeleted(["t"]), KeyError("a defect"), ValueError("a defect")])
def test_other_errors_are_left_as_they_are(error: Exception, tmp_path: Path) -> None:
    assert explained(error, None, tmp_path) is error
