"""The stateful processor: passes a bucket's new records through its driver and encodes the output for Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from highlevel.progress.driver import BucketDriver, mark_retired
from highlevel.progress.outputs import Counts, Forward, Outcome, Output, Rejection, ResultRows
from highlevel.progress.records import Arrival, Batch, Record, batch_of_wire, wire_of_batch
from highlevel.spark.backlog import StoredRecord, in_order
from highlevel.spark.errors import BucketFailure, QueryFailure
from highlevel.spark.job_spec import JobSpec
from highlevel.spark.sink.messages import Bundle, Position, Report
from highlevel.spark.sink.result_files import ParcelWriter
from highlevel.spark.sink.suppression import Suppression
from highlevel.spark.state_store import SparkByteStore
from highlevel.state import PiecewiseState, StateRefused
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
from lowmark.wire.rows.words import Words

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

__all__ = ["BucketProcessor"]

_DEAD_LETTERS = 20
"""Dead letters written per bucket, reason and micro-batch; the rest are only counted."""

_OF_THE_HOST = (OSError, MemoryError, StateRefused)
"""What an operator may raise that no query is to blame for."""

_FLUSH_BYTES = 32 << 20
"""Bytes of values after which a bucket outputs what is final: a backlog's results need not fit into memory."""


class BucketProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark ships no types that mypy is shown
    """The processor of one task; Spark calls `handleInputRows` once for each bucket that has new records."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._buckets = {number: place for place, number in self._spec.placements.items()}
        self._state: MapState = handle.getMapState("pieces", "space string, key long", "piece binary")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        fingerprint, bucket = self._buckets[key[0]]
        work = None
        try:
            work = _BucketWork(self._spec, fingerprint, bucket, self._state)
            yield from work.run(rows)
        except Exception as error:
            failed = () if work is None or isinstance(error, _OF_THE_HOST) else work.failed
            queries = ", ".join(failed or (plan.name for plan in self._spec.readers(fingerprint)))
            kind = QueryFailure if failed else BucketFailure
            raise kind(
                f"{type(error).__name__} in bucket {bucket} of stage {fingerprint} (queries: {queries}): {error}"
            ) from error

    def close(self) -> None:
        pass


class _BucketWork:
    """One bucket's part of a micro-batch."""

    def __init__(self, spec: JobSpec, fingerprint: str, bucket: int, pieces: MapState) -> None:
        stage = spec.stages()[fingerprint]
        self._spec = spec
        self._bucket = bucket
        self._stage = stage
        self._pieces = pieces
        self._state = PiecewiseState(SparkByteStore(pieces), fingerprint)
        readers = {plan.name: plan.window for plan in spec.readers(fingerprint)}
        self._suppress = Suppression(
            {query: window for query, window in readers.items() if window is not None},
            {query: told for (query, of), told in spec.suppressed.items() if of == bucket},
            {query: upto for (query, of), upto in spec.told.items() if of == bucket and query in readers},
            self._state,
        )
        self._driver = BucketDriver(
            stage, spec.readers(fingerprint), bucket, self._state, spec.roster_of(stage), spec.generation,
        )  # fmt: skip
        self._folder = Path(spec.parcels)
        self._parcel = ParcelWriter(self._folder)
        self._dead: dict[BadReason, int] = {}
        self._seen: dict[int, tuple[StoredRecord, bytes | None]] = {}  # by number: a rejection names its record by it
        self._taken = 0
        self._partials = spec.partials_topic(fingerprint)
        self._read = 0  # the offset after the last record of partials; 0: there was none in this micro-batch

    @property
    def failed(self) -> tuple[str, ...]:
        """After an exception: the queries that read the operator that raised it; none: it was no operator."""
        return self._driver.failed

    def run(self, rows: Iterable[Row]) -> Iterator[Row]:
        counts, records, pending = Counts(), 0, 0
        for record, value in in_order(rows, self._folder):
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
        if outcome.retired:
            self._pieces.clear()
            state = PiecewiseState(SparkByteStore(self._pieces), self._stage.fingerprint)
            mark_retired(state, self._stage.fingerprint)
            written = state.commit()
        else:
            written = self._state.commit()
        yield self._report(records, counts + outcome.counts, written).row()

    def _flush(self) -> Outcome:
        outcome = self._driver.flush()
        for output in outcome.outputs:
            if (wanted := self._suppress(output, self._read)) is not None:
                self._encode(wanted)
        self._seen.clear()
        return outcome

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
            case ResultRows(query=query, rows=rows, schema=schema):
                window = output.window if output.early else None
                self._encode_rows(query, schema.renamed(self._spec.names_of(query)), rows, window)
            case Complete(query=query) | Amendment(query=query):
                self._parcel.put(Bundle.of(self._spec.results_topic(query), self._bucket, encode(output)))
            case Correction(query=query):
                shown = output.renamed(self._spec.names_of(query))
                self._parcel.put(Bundle.of(self._spec.results_topic(query), self._bucket, encode(shown)))
            case Forward(exchange=exchange, partition=partition, record=record, schema=schema):
                wire = encode(record if isinstance(record, Punctuation) else wire_of_batch(record, schema))
                self._parcel.put(Bundle.of(self._spec.exchange_topic(exchange), partition, wire))
            case Rejection(reason=reason, detail=detail, position=position):
                self._bury(BadRecord(reason, detail), *self._seen[position])
            case LateRow(query=query):
                late = output.renamed(self._spec.names_of(query))
                self._parcel.put(Bundle.of(self._spec.late_topic(query), self._bucket, encode(late)))

    def _encode_rows(self, query: str, schema: Schema, rows: Words, window: int | None) -> None:
        """`window`: the one of rows that leave before it closes."""
        topic, generation = self._spec.results_topic(query), self._spec.generation
        if self._spec.format_of(query) is RowFormat.ARROW:
            for record in arrow_records(generation, schema, rows, window):
                self._parcel.put(Bundle.of(topic, self._bucket, record))
            return
        lines = json_writer(schema, b"").write(rows)
        headers = result_headers(RecordKind.ROW, generation, window)
        self._parcel.put(Bundle(topic, self._bucket, headers, lines.starts.tobytes(), lines.data.tobytes()))

    def _bury(self, bad: BadRecord, record: StoredRecord, value: bytes | None) -> None:
        self._dead[bad.reason] = count = self._dead.get(bad.reason, 0) + 1
        if count > _DEAD_LETTERS:
            return
        letter = bury(bad, record.topic, record.partition, record.offset, record.headers, value)
        self._parcel.put(Bundle.of(self._spec.dead_topic(), 0, encode(letter)))

    def _position(self) -> Position | None:
        return self._spec.position(self._stage, self._bucket, self._read) if self._read else None

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
            dead={reason.value: count for reason, count in self._dead.items()},
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
            parcel=self._parcel.close(self._position()),
        )  # fmt: skip
