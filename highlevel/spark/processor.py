"""The stateful processor: passes a bucket's new records through its driver and encodes the output for Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from highlevel.progress.driver import BucketDriver, mark_retired
from highlevel.progress.outputs import Counts, Forward, Outcome, Output, Rejection, ResultRows
from highlevel.progress.records import Arrival, Batch, Record, batch_of_wire, wire_of_batch
from highlevel.progress.served import served, sweep
from highlevel.spark.backlog import StoredRecord, in_order
from highlevel.spark.checkpoint.placement import task_of
from highlevel.spark.errors import BucketFailure, JobStopped, QueryFailure, SinkStopped
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.preflight import Asked, admit
from highlevel.spark.sink.bucket_sink import BucketSink, sink_of
from highlevel.spark.sink.checksums import Checksums
from highlevel.spark.sink.commits import Commits
from highlevel.spark.sink.dead_letters import DeadLetters
from highlevel.spark.sink.messages import Bundle, Report, left_behind
from highlevel.spark.sink.outgoing import Outgoing, scratch_folder
from highlevel.spark.sink.suppression import Suppression
from highlevel.spark.sink.tokens import HISTORY, Chain, Past, before_the_first
from highlevel.spark.state_store import SparkByteStore
from highlevel.state import PiecewiseState, StateRefused
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettingsError
from lowmark.wire.records.announcements import result_headers
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.dead_letters import bury
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.record import BadReason, BadRecord, RecordKind
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.result_rows import RowFormat, arrow_records
from lowmark.wire.records.rosters import Exclusion, Retirement, Return, RosterChange
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.values import NEVER

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["BATCH", "BucketProcessor"]

BATCH = "lowmark.batch"
"""The property of Spark's tasks that holds the number of their micro-batch."""

_OF_THE_HOST = (OSError, MemoryError, StateRefused)
"""What an operator may raise that no query is to blame for."""

_OF_THE_SINK = (JobStopped, KafkaProblem, KafkaSettingsError)

_FLUSH_BYTES = 32 << 20
"""Bytes of values after which a bucket outputs what is final: a backlog's results need not fit into memory."""


class BucketProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark ships no types that mypy is shown
    """The processor of one task; Spark calls `handleInputRows` once for each bucket that has new records."""

    def __init__(self, spec: JobSpec, asked: Asked | None = None) -> None:
        """`asked`: what an executor's host must have; None: it is the driver's."""
        self._spec = spec
        self._asked = asked
        self._commits: Commits | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        if self._asked is not None:
            admit(self._asked)
        task = TaskContext.get()
        self._batch = -1 if task is None else int(task.getLocalProperty(BATCH) or -1)
        stages = self._spec.stages()
        if task is not None:
            for (stage, bucket), number in self._spec.placements.items():
                if stage in stages and task_of(number, self._spec.tasks) == task.partitionId():
                    sink_of(self._spec.kafka, self._spec.place(stage, bucket), self._spec.transaction_timeout_s).warm()
        self._buckets = {number: place for place, number in self._spec.placements.items()}
        self._commits = Commits()
        self._state: MapState = handle.getMapState("pieces", "space string, key long", "piece binary")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        fingerprint, bucket = self._buckets[key[0]]
        if fingerprint in self._spec.leaving:
            self._state.clear()
            yield left_behind(fingerprint, bucket).row()
            return
        work = None
        assert self._commits is not None, "initialised"
        try:
            spec = self._spec.of_batch(fingerprint, bucket, self._batch)
            work = _BucketWork(spec, fingerprint, bucket, self._batch, self._state, self._commits)
            yield work.run(rows)
        except Exception as error:
            with suppress(Exception):  # this task has failed, and the next one may use this process
                self._commits.end()
            if isinstance(error, _OF_THE_SINK):
                raise SinkStopped(error) from error
            failed = () if work is None or isinstance(error, _OF_THE_HOST) else work.failed
            queries = ", ".join(failed or (plan.name for plan in self._spec.readers(fingerprint)))
            kind = QueryFailure if failed else BucketFailure
            raise kind(
                f"{type(error).__name__} in bucket {bucket} of stage {fingerprint} (queries: {queries}): {error}"
            ) from error

    def close(self) -> None:
        """Spark commits the state of the task's buckets after this."""
        try:
            if self._commits is not None:
                self._commits.end()
        except _OF_THE_SINK as error:
            raise SinkStopped(error) from error


class _BucketWork:
    """One bucket's part of a micro-batch."""

    def __init__(
        self, spec: JobSpec, fingerprint: str, bucket: int, batch: int, pieces: MapState, commits: Commits
    ) -> None:  # fmt: skip
        stage = spec.stages()[fingerprint]
        self._spec = spec
        self._bucket = bucket
        self._batch = batch
        self._stage = stage
        self._pieces = pieces
        self._commits = commits
        plans = spec.readers(fingerprint)
        self._state = PiecewiseState(SparkByteStore(pieces), fingerprint)
        sweep(self._state, stage, plans, served(plans, spec.life))
        readers = {plan.name: plan.window for plan in plans}
        self._suppress = Suppression(
            {query: window for query, window in readers.items() if window is not None},
            {query: told for (query, of), told in spec.suppressed.items() if of == bucket},
            {query: upto for (query, of), upto in spec.told.items() if of == bucket and query in readers},
            self._state,
            {plan.name: spec.needed.get(fingerprint, NEVER) for plan in plans if plan.exchanges is not None},
        )
        self._driver = BucketDriver(
            stage, plans, bucket, self._state, spec.roster_of(stage), spec.generation, lives=spec.lives,
            needed_ns=spec.needed.get(fingerprint, NEVER),
        )  # fmt: skip
        self._past = self._state.get(HISTORY, 0) or before_the_first(spec.checkpoint)
        self._chain = Chain(self._past.digest)
        self._checksums = Checksums(self._state, readers)
        self._outgoing = Outgoing(by_position=any(plan.name in spec.laws for plan in plans))
        self._dead = DeadLetters(self._state)
        self._seen: dict[int, tuple[StoredRecord, bytes | None]] = {}  # by number: a rejection names its record by it
        self._taken = 0
        self._partials = spec.partials_topic(fingerprint)
        self._read = 0  # the offset after the last record of partials; 0: there was none in this micro-batch

    @property
    def failed(self) -> tuple[str, ...]:
        """After an exception: the queries that read the operator that raised it; none: it was no operator."""
        return self._driver.failed

    def run(self, rows: Iterable[Row]) -> Row:
        counts, records, pending = Counts(), 0, 0
        for record, value in in_order(rows, scratch_folder()):
            self._chain.add(record.topic, record.offset, record.appended_us)
            if record.topic == self._partials:
                if self._read and self._suppress.ends_between(self._read, record.offset):
                    counts += self._flush().counts
                    pending = 0
                self._read = record.offset + 1
            self._take(record, value)
            records += 1
            pending += len(value or b"")
            if pending >= _FLUSH_BYTES:
                counts += self._flush().counts
                pending = 0
        outcome = self._flush()
        past = self._write()
        self._checksums.save()
        if outcome.retired:
            self._pieces.clear()
            state = PiecewiseState(SparkByteStore(self._pieces), self._stage.fingerprint)
            mark_retired(state, self._stage.fingerprint)
        else:
            state = self._state
        state.put(HISTORY, 0, past)
        written = state.commit()
        return self._report(records, counts + outcome.counts, written).row()

    def _flush(self) -> Outcome:
        outcome = self._driver.flush()
        for output, wanted in self._suppress.of(outcome.outputs, self._read):
            if wanted:
                self._encode(output)
            else:
                self._count(output)
        self._seen.clear()
        if self._read:
            self._outgoing.mark(self._spec.position(self._stage, self._bucket, self._read))
        return outcome

    def _count(self, output: Output) -> None:
        """Without windows, a completion names rows since the one before it, also those of the generation before."""
        match output:
            case ResultRows(query=query, window=None, schema=schema):
                self._encode_rows(output, schema.renamed(self._spec.names_of(query)), put=False)
            case Complete(windows=None):
                self._checksums.on(output)

    def _write(self) -> Past:
        """Write the results, or begin to. Returns the past for the next batch."""
        spec = self._spec
        sink: BucketSink = sink_of(
            spec.kafka, spec.place(self._stage.fingerprint, self._bucket), spec.transaction_timeout_s
        )
        batch = spec.token(self._stage.fingerprint, self._batch, self._chain.digest)
        try:
            parts = self._outgoing.few()
            after = sink.begin(self._past, batch, parts)
            if after is None:
                return sink.write(self._past, batch, self._outgoing.parts())
            if parts:
                self._commits.begin(partial(sink.write, self._past, batch, parts), self._outgoing.bytes)
            return after
        finally:
            self._outgoing.close()

    def _take(self, stored: StoredRecord, value: bytes | None) -> None:
        decoded = decode(stored.headers, value, self._spec.schema_of)
        if isinstance(decoded, BadRecord):
            self._bury(decoded, stored, value)
            return
        record: Record
        kind = SourceKind.FINITE
        match decoded:
            case PartialBatch(origin=origin):
                schema = self._spec.schema_of(origin)
                assert schema is not None, "the decoder has refused it otherwise"
                record, kind = batch_of_wire(decoded, schema), self._spec.kind(origin)
            case Punctuation(origin=origin):
                record, kind = decoded, self._spec.kind(origin)
            case RosterChange(job=job) | Exclusion(job=job) | Return(job=job) | Retirement(job=job):
                if job != self._spec.job:  # another job that reads the stage rules itself
                    return
                record = decoded
            case _:
                bad = BadRecord(BadReason.KIND, "this kind of record does not belong on a partials topic")
                self._bury(bad, stored, value)
                return
        if isinstance(record, Batch | Punctuation) and self._spec.ignores(record.origin):
            return
        self._seen[self._taken] = (stored, value)
        self._driver.take(record, Arrival(self._taken, kind, stored.appended_us * 1000))
        self._taken += 1

    def _encode(self, output: Output) -> None:
        match output:
            case ResultRows(query=query, schema=schema):
                self._encode_rows(output, schema.renamed(self._spec.names_of(query)))
            case Complete(query=query):
                told = encode(self._checksums.on(output))
                self._outgoing.put(Bundle.of(self._spec.results_topic(query), self._bucket, told, closes=True))
            case Amendment(query=query):
                self._outgoing.put(Bundle.of(self._spec.results_topic(query), self._bucket, encode(output)))
            case Correction(query=query):
                shown = output.renamed(self._spec.names_of(query))
                self._outgoing.put(Bundle.of(self._spec.results_topic(query), self._bucket, encode(shown)))
            case Forward(exchange=exchange, partition=partition, record=record, schema=schema):
                wire = encode(record if isinstance(record, Punctuation) else wire_of_batch(record, schema))
                self._outgoing.put(Bundle.of(self._spec.exchange_topic(exchange), partition, wire))
            case Rejection(reason=reason, detail=detail, position=position):
                self._bury(BadRecord(reason, detail), *self._seen[position])
            case LateRow(query=query):
                late = output.renamed(self._spec.names_of(query))
                self._outgoing.put(Bundle.of(self._spec.late_topic(query), self._bucket, encode(late)))

    def _encode_rows(self, output: ResultRows, schema: Schema, put: bool = True) -> None:
        query, rows, generation = output.query, output.rows, self._spec.life(output.query)
        topic, window = self._spec.results_topic(query), output.window if output.early else None
        if self._spec.format_of(query) is RowFormat.ARROW:
            records = arrow_records(generation, schema, rows, window)
            bundles = [Bundle.of(topic, self._bucket, record) for record in records]
        else:
            lines = json_writer(schema, b"").write(rows)
            headers = result_headers(RecordKind.ROW, generation, window)
            bundles = [Bundle(topic, self._bucket, headers, lines.starts.tobytes(), lines.data.tobytes())]
        for bundle in bundles:
            self._checksums.add(query, output.window, bundle.starts, bundle.data)
            if put:
                self._outgoing.put(bundle)

    def _bury(self, bad: BadRecord, record: StoredRecord, value: bytes | None) -> None:
        if not self._dead.admit(bad.reason, record.appended_us):
            return
        letter = bury(bad, record.topic, record.partition, record.offset, record.headers, value)
        self._outgoing.put(Bundle.of(self._spec.dead_topic(), 0, encode(letter)))

    def _report(self, records: int, counts: Counts, written: int) -> Report:
        progress = self._driver.progress()
        return Report(
            stage=self._stage.fingerprint,
            bucket=self._bucket,
            records=records,
            counters={
                "rows_in": counts.rows_in, "merged": counts.merged, "late": counts.late,
                "duplicates": counts.duplicates, "gaps": counts.gaps, "fenced": counts.fenced,
                "replayed": counts.replayed, "unlisted": counts.unlisted,
            },
            dead={reason.value: count for reason, count in self._dead.counts.items()},
            rows=dict(counts.rows_out),
            exchanged=dict(counts.exchanged),
            late_rows=dict(counts.late_rows),
            corrections=dict(counts.corrections),
            windows=[
                (query, None if reason is None else reason.value, count)
                for (query, reason), count in counts.windows.items()
            ],
            amended=[(query, reason.value, count) for (query, reason), count in counts.amended.items()],
            complete_to=dict(progress.complete_to),
            open_windows=dict(progress.open_windows),
            fronts=dict(progress.fronts),
            waiting=list(progress.waiting),
            returned=list(progress.returned),
            open_panes=progress.open_panes,
            read=self._read,
            heard=dict(progress.heard),
            ended=progress.ended,
            state_bytes=written,
            buffers=[
                (query, at.input, at.predicted, at.used, at.found, at.within) for query, at in progress.buffers
            ],
            freed=[(query, at.input, at.kept, at.promised, at.freed) for query, at in progress.freed],
        )  # fmt: skip
