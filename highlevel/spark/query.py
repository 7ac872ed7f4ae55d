"""The job's one StreamingQuery: from the partials topics through the buckets into the sink, batch by batch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from highlevel.metrics import BatchPhase
from highlevel.spark.batch_phases import BatchPhases
from highlevel.spark.checkpoint import Checkpoint, CheckpointFolder
from highlevel.spark.errors import JobFailed
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.processor import BucketProcessor
from highlevel.spark.sink.background_delivery import Delivery
from highlevel.spark.sink.messages import REPORT_SCHEMA, Report, read_report
from highlevel.spark.sink.transaction import TransactionalSink
from highlevel.spark.source import KEY, SourceSettings, partials
from lowmark.wire.records.sink_token import Token

__all__ = ["JobQuery", "OnBatch", "OnPhases"]

OnBatch = Callable[[Sequence[Report], float], None]
"""Called when a batch has been written, with a report of each bucket that had records in it and the seconds that it
took. Called by a thread of its own."""

OnPhases = Callable[[Mapping[BatchPhase, float]], None]
"""Called with the seconds that Spark spent in each phase of a batch. Called by a thread of its own."""

_COMMIT_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.02

_NOTHING_TO_READ = "Waiting for data to arrive"
"""What Spark says of a query that has looked for new records and found none."""

_JVM_GONE = (Py4JError, OSError)
"""What calls into a JVM raise when the JVM has gone."""


class JobQuery:
    """Inactive until `start`. The caller opens and closes the sink. `wake` is set when the query has failed or
    ended."""

    def __init__(
        self, spec: JobSpec, source: SourceSettings, folder: CheckpointFolder, checkpoint: Checkpoint,
        sink: TransactionalSink, job: str, on_batch: OnBatch, on_phases: OnPhases, wake: threading.Event,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._source = source
        self._folder = folder
        self._checkpoint = checkpoint
        self._sink = sink
        self._job = job
        self._on_batch = on_batch
        self._on_phases = on_phases
        self._wake = wake
        self._delivery = Delivery(Path(spec.parcels), sink)
        self._query: StreamingQuery | None = None
        self._failure: Exception | None = None
        self._written = -1  # the last batch that a former run has made visible
        self._turned_at = -1  # `_handed_back` when `turned` last saw a new batch
        self._handed_back = -1  # the last batch of this run that was handed back to Spark to commit

    @property
    def ended(self) -> bool:
        """All sources have ended, and every bucket of every stage has output everything."""
        buckets = sum(stage.buckets for stage in self._spec.stages().values())
        return len(self._checkpoint.ended) == buckets and self._delivery.idle

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
        try:
            return self._query is not None and self._query.status["message"] == _NOTHING_TO_READ
        except _JVM_GONE:
            return False

    def start(self, spark: SparkSession) -> None:
        """Begin after the last batch that Spark has committed."""
        self._delivery.catch_up(self._checkpoint.id)
        token = self._sink.token
        self._written = token.batch if token is not None and token.checkpoint == self._checkpoint.id else -1
        buckets = partials(spark, self._spec, self._source).groupBy(KEY)
        reports = buckets.transformWithState(BucketProcessor(self._spec), REPORT_SCHEMA, "Append", "None")
        location = str(self._folder.spark(self._checkpoint))
        writer = reports.writeStream.foreachBatch(self._take).option("checkpointLocation", location)
        spark.streams.addListener(BatchPhases(self._on_phases))
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

    def quarantine(self, why: Mapping[str, str]) -> None:
        """Keep that these queries get no records from the next start on. Call it when the query has failed."""
        self._checkpoint = replace(self._checkpoint, quarantined={**self._checkpoint.quarantined, **why})
        self._folder.write(self._checkpoint)

    def stop(self) -> None:
        """Stop. A running batch is undone and will be run again; a written batch may still be committed."""
        deadline = time.monotonic() + _COMMIT_WITHIN_S
        while self.active and self._folder.batches(self._checkpoint) <= self._handed_back:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_AGAIN_S)
        if self._query is not None and self.active:
            # A query that waits for an absent broker does not stop in time. It ends with its JVM, as if killed.
            with contextlib.suppress(PySparkException, *_JVM_GONE):
                self._query.stop()
        with contextlib.suppress(Exception):  # a failure was reported already; an unfinished batch stays noted
            self._delivery.wait(_COMMIT_WITHIN_S)

    def renew(self) -> None:
        """Call this now and then, so that Kafka does not forget how far the job has come. Never waits."""
        self._delivery.renew(self._delivered)

    def _take(self, batch: DataFrame, number: int) -> None:
        try:
            self._finish(batch, number)
        except Exception as error:  # py4j would pass it to Spark as text: kept here as the reason why the query ended
            self._failure = error
            self._wake.set()
            raise
        self._handed_back = number

    def _finish(self, batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        # What is written to Kafka follows from these files: a crash of the machine must not take them.
        self._folder.make_durable(self._checkpoint, number)
        # This also runs for a batch that was written already: its state is not committed yet.
        reports = [read_report(row) for row in batch.collect()]
        parcels = [report.parcel for report in reports if report.parcel is not None]

        def delivered(error: BaseException | None) -> None:
            if error is None:
                self._on_batch(reports, time.monotonic() - began)
            self._delivered(error)

        if number > self._written:
            token = Token(self._job, self._checkpoint.id, self._checkpoint.run, number)
            self._delivery.hand_over(token, parcels, delivered)
        else:
            self._delivery.discard(parcels)
            delivered(None)
        self._note_ended(reports)  # not before: when `ended` is true, the last results must be under way
        if self.ended:
            self._wake.set()

    def _delivered(self, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._failure = error
        if error is not None or self.ended:
            self._wake.set()

    def _note_ended(self, reports: Sequence[Report]) -> None:
        """Keep which buckets have ended, because a bucket without new records reports nothing. Spark commits the batch
        after this, or runs it again."""
        ended = set(self._checkpoint.ended)
        for report in reports:
            (ended.add if report.ended else ended.discard)((report.stage, report.bucket))
        if ended != self._checkpoint.ended:
            self._checkpoint = replace(self._checkpoint, ended=frozenset(ended))
            self._folder.write(self._checkpoint)
