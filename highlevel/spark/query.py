"""The job's one StreamingQuery: from the partials topics through the buckets into the sink, batch by batch."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from highlevel.metrics import BatchPhase
from highlevel.spark.batch_phases import phases_of
from highlevel.spark.checkpoint.checkpoint import Checkpoint, CheckpointFolder
from highlevel.spark.errors import JobFailed
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.preflight import Asked
from highlevel.spark.processor import BATCH, BucketProcessor
from highlevel.spark.sink.messages import REPORT_SCHEMA, Report, read_report
from highlevel.spark.source import KEY, SourceSettings, partials
from lowmark.wire.kafka.clients import KafkaUnavailable

__all__ = ["JobQuery", "OnBatch", "OnPhases"]

_LOG = logging.getLogger("lowmark.job")

OnBatch = Callable[[Sequence[Report], float], None]
"""Called when a batch has been written, with a report of each bucket that had records in it and the seconds that it
took. Called by a thread of its own."""

OnPhases = Callable[[Mapping[BatchPhase, float]], None]
"""Called with the seconds that Spark spent in each phase of a batch, after the next batch has been written. Called by a
thread of its own."""

_END_WITHIN_S = 8.0
_LOOK_AGAIN_S = 0.02

_RENEW_AFTER_S = 6 * 3600.0
"""Kafka forgets the offsets of a group after a week without a commit (`offsets.retention.minutes`)."""

_RENEW_AGAIN_S = 60.0

_NOTHING_TO_READ = "Waiting for data to arrive"
"""What Spark says of a query that has looked for new records and found none."""

_PROBE = "probe"
"""A file in the place of the checkpoint, which nobody reads."""

_JVM_GONE = (Py4JError, OSError)
"""What calls into a JVM raise when the JVM has gone."""


class JobQuery:
    """Inactive until `start`. `wake` is set when the query has failed or ended. `renew` writes all tokens again."""

    def __init__(
        self, spec: JobSpec, source: SourceSettings, folder: CheckpointFolder, checkpoint: Checkpoint,
        job: str, on_batch: OnBatch, renew: Callable[[], None], on_phases: OnPhases, wake: threading.Event,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._source = source
        self._folder = folder
        self._checkpoint = checkpoint
        self._job = job
        self._on_batch = on_batch
        self._renew = renew
        self._on_phases = on_phases
        self._wake = wake
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._reported = -1  # the last batch whose phases were handed on
        self._failure: Exception | None = None
        self._turned_at = -1  # `_handed_back` when `turned` last saw a new batch
        self._handed_back = -1  # the last batch of this run that was handed back to Spark to commit
        self._begun = -1  # the last batch of this run whose buckets may have written
        self._halting = threading.Event()
        self._stopping = threading.Event()
        self._turn = threading.Lock()  # a batch runs, or tokens are renewed
        self._renew_at = time.monotonic() + _RENEW_AFTER_S

    @property
    def ended(self) -> bool:
        """All sources have ended, and every bucket of every stage has written everything."""
        stages = self._spec.stages()
        buckets = sum(stage.buckets for stage in stages.values())
        return sum(stage in stages for stage, _ in self._checkpoint.ended) == buckets

    @property
    def active(self) -> bool:
        try:
            return self._query is not None and bool(self._query.isActive)
        except _JVM_GONE:
            return False

    def turned(self) -> bool:
        """Whether it has worked since this was last true: it has handed back a batch, or finds no new records."""
        if self._handed_back != self._turned_at:
            self._turned_at = self._handed_back
            return True
        return self.waits

    @property
    def turns(self) -> int:
        """The last batch of this run that was handed back to Spark to commit; -1 before the first."""
        return self._handed_back

    @property
    def waits(self) -> bool:
        """Whether Spark has looked for new records and found none."""
        try:
            return self._query is not None and self._query.status["message"] == _NOTHING_TO_READ
        except _JVM_GONE:
            return False

    def refusal(self) -> str | None:
        """Why the place of the checkpoint takes no file; None: it takes one, or Spark has gone, which `check` tells.
        Returns when the place has answered, or its client has given up: that may take minutes."""
        try:
            self._folder.put(_PROBE, b"")
        except OSError as error:
            return (error.strerror or str(error)) if self.active else None
        except Py4JError:
            pass
        return None

    def start(self, spark: SparkSession, asked: Asked | None = None) -> None:
        """Begin after the last batch that Spark has committed. `asked`: what the hosts of a cluster must have."""
        self._spark = spark
        buckets = partials(spark, self._spec, self._source).groupBy(KEY)
        reports = buckets.transformWithState(BucketProcessor(self._spec, asked), REPORT_SCHEMA, "Append", "None")
        location = self._folder.spark(self._checkpoint)
        writer = reports.writeStream.foreachBatch(self._take).option("checkpointLocation", location)
        self._query = writer.queryName(self._job).start()

    def check(self) -> None:
        """Raise why the query has failed or ended: JobStopped, or an error that `explained` puts into a sentence."""
        assert self._query is not None, "not started"
        if self._failure is not None:
            raise self._failure
        if self.active:
            return
        error = self._query.exception()
        raise JobFailed("Spark ended the job by itself") if error is None else error

    def halt(self) -> None:
        """Let no further batch begin."""
        self._halting.set()

    @property
    def halted(self) -> bool:
        """After `halt`: whether Spark has committed all that has begun."""
        return self._folder.batches(self._checkpoint) > self._begun

    def quarantine(self, why: Mapping[str, str]) -> None:
        """Keep that these queries get no records from the next start on. Call it when the query has failed."""
        self._checkpoint = replace(self._checkpoint, quarantined={**self._checkpoint.quarantined, **why})
        self._folder.write(self._checkpoint)

    def stop(self) -> None:
        """Stop. A batch that has begun may still end; after `_END_WITHIN_S` it is undone, and will be run again."""
        self.halt()
        deadline = time.monotonic() + _END_WITHIN_S
        while self.active and not self.halted and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        self._stopping.set()
        if self._query is not None and self.active:
            # A query that waits for an absent broker does not stop in time. It ends with its JVM, as if killed.
            with contextlib.suppress(PySparkException, *_JVM_GONE):
                self._query.stop()

    def renew(self) -> None:
        """Call this now and then, so that Kafka does not forget how far the job has come. Never waits."""
        if time.monotonic() > self._renew_at and self._turn.acquire(blocking=False):
            self._renew_at = time.monotonic() + _RENEW_AFTER_S
            threading.Thread(target=self._renew_now, name="renewal", daemon=True).start()

    def _renew_now(self) -> None:
        try:
            self._renew()
        except KafkaUnavailable as away:  # the batches say whether it stays away
            _LOG.warning("how far the job has come could not be written again: %s", away)
            self._renew_at = time.monotonic() + _RENEW_AGAIN_S
        except Exception as error:  # the main thread raises it
            self._failure = error
            self._wake.set()
        finally:
            self._turn.release()

    def _take(self, batch: DataFrame, number: int) -> None:
        try:
            self._begin(number)
            self._finish(batch, number)
        except Exception as error:  # py4j would pass it to Spark as text: kept here as the reason why the query ended
            self._failure = error
            self._wake.set()
            raise
        self._handed_back = number

    def _begin(self, number: int) -> None:
        before, self._begun = self._begun, number  # set before it asks whether it may begin: `halted` asks in reverse
        if self._halting.is_set():
            self._begun = before
            self._stopping.wait()
            raise JobFailed(f"batch {number} has not begun: the query was halted")

    def _finish(self, batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        # What is written to Kafka follows from these files: a crash of the machine must not take them.
        self._folder.make_durable(self._checkpoint, number)
        with self._turn:
            assert self._spark is not None, "started"
            self._spark.sparkContext.setLocalProperty(BATCH, str(number))
            reports = [read_report(row) for row in batch.collect()]  # the buckets have written their results then
        self._note_ended(reports, number)
        self._on_batch([each for each in reports if each.stage not in self._spec.leaving], time.monotonic() - began)
        self._report_phases()
        if self.ended:
            self._wake.set()

    def _report_phases(self) -> None:
        """Hand on the phases of the batch before this one: Spark reports a batch when it has ended. A listener of Spark
        would take as much CPU time as the planning of a batch, because pyspark fetches each number of a report by
        itself."""
        progress = None if self._query is None else self._query.lastProgress
        if progress is not None and progress.batchId != self._reported and "addBatch" in progress.durationMs:
            self._reported = progress.batchId
            self._on_phases(phases_of(progress.durationMs))

    def _note_ended(self, reports: Sequence[Report], batch: int) -> None:
        """Keep which buckets have ended, because a bucket without new records reports nothing. Spark commits the batch
        after this, or runs it again."""
        ended = set(self._checkpoint.ended)
        for report in reports:
            (ended.add if report.ended else ended.discard)((report.stage, report.bucket))
        if ended != self._checkpoint.ended:
            self._checkpoint = replace(self._checkpoint, ended=frozenset(ended), noted=batch)
            self._folder.write(self._checkpoint)
