from __future__ import annotations

import dataclasses
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowmark.wire.records.codec import Record, decode, encode
from lowmark.wire.records.dead_letters import HEAD_BYTES, bury
from lowmark.wire.records.partials import (
    MAX_BATCH_BYTES,
    Origin,
    PartialBatch,
    encode_batch,
    split_batch,
    tuples_per_pane,
)
from lowmark.wire.records.punctuations import Account, Bound, LaneLedger, Promise, Punctuation, Taint
from lowmark.wire.records.record import MAX_RECORD_BYTES, BadReason, BadRecord, OversizeRecord, WireRecord
from lowmark.wire.records.result_rows import ResultRow, ResultRowsRecord, arrow_records, shown
from lowmark.wire.rows.arrow_stream import _claims, write_rows
from lowmark.wire.rows.compression import Compression
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.words import to_batch, to_words
from tests.wire.examples import EXAMPLES, NODE
from tests.wire.strategies import INT64, NAMES, PARTIALS, V4, matrix, tables

NATURAL = st.integers(0, 2**63 - 1)
HEADER_NAMES = ["lm-kind", "lm-version", "lm-stage", "lm-source", "lm-epoch", "lm-sequence", "lm-tuples", "x"]
HEADER_VALUES = [b"1", b"batch", b"punctuation", b"row", b"rows", b"token"]
RAW_HEADERS = st.lists(
    st.tuples(st.sampled_from(HEADER_NAMES), st.none() | st.binary(max_size=8) | st.sampled_from(HEADER_VALUES)),
    max_size=8,
)
OBJECTS = sorted(name for name, record in EXAMPLES.items() if encode(record).value.startswith(b"{"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def read(record: WireRecord) -> Record | BadRecord:
    return decode(record.headers, record.value, lambda origin: PARTIALS)


def assert_total(result: Record | BadRecord) -> None:
    """Whatever was read, a record of it can be written and read again."""
    if not isinstance(result, BadRecord):
        again = read(encode(result))
        assert type(again) is type(result)


@given(RAW_HEADERS | st.none(), st.binary(max_size=100) | st.none())
def test_any_bytes(headers: list[tuple[str, bytes | None]] | None, value: bytes | None) -> None:
    assert_total(decode(headers, value, lambda origin: PARTIALS))


@given(st.sampled_from(sorted(EXAMPLES)), JSON.map(json.dumps))
def test_any_json_as_the_value(name: str, value: str) -> None:
    assert_total(decode(encode(EXAMPLES[name]).headers, value.encode(), lambda origin: PARTIALS))


@settings(max_examples=500)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_damaged_values(name: str, data: st.DataObject) -> None:
    record = encode(EXAMPLES[name])
    value = bytearray(record.value)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(value) - 1)))
        match data.draw(st.sampled_from(["set", "cut", "insert", "remove"])):
            case "set":
                value[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del value[at:]
            case "insert":
                value[at:at] = data.draw(st.binary(max_size=9))
            case "remove":
                del value[at : at + data.draw(st.integers(1, 9))]
    assert_total(decode(record.headers, bytes(value), lambda origin: PARTIALS))


@given(st.sampled_from(OBJECTS), st.data())
def test_a_field_of_another_type_missing_or_unknown(name: str, data: st.DataObject) -> None:
    record = encode(EXAMPLES[name])
    value = json.loads(record.value)
    field = data.draw(st.sampled_from(sorted(value)))
    match data.draw(st.sampled_from(["other", "missing", "unknown"])):
        case "other":
            value[field] = data.draw(JSON)
        case "missing":
            del value[field]
        case "unknown":
            value[data.draw(st.text())] = data.draw(JSON)
    assert_total(decode(record.headers, json.dumps(value).encode(), lambda origin: PARTIALS))


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_damaged_headers(name: str, data: st.DataObject) -> None:
    record = encode(EXAMPLES[name])
    headers: list[tuple[str, bytes | None]] = list(record.headers)
    at = data.draw(st.integers(0, len(headers) - 1))
    match data.draw(st.sampled_from(["drop", "double", "other"])):
        case "drop":
            del headers[at]
        case "double":
            headers.append(headers[at])
        case "other":
            headers[at] = (headers[at][0], data.draw(st.none() | st.binary(max_size=6)))
    assert_total(decode(headers, record.value, lambda origin: PARTIALS))


@given(
    st.builds(Origin, NAMES, NAMES, NATURAL, NAMES),
    NATURAL,
    st.lists(
        st.builds(Bound, NAMES, below=INT64)
        | st.builds(Bound, NAMES, values=st.lists(INT64, max_size=3).map(ValueSet.of))
        | st.builds(
            Bound,
            st.lists(NAMES, min_size=2, max_size=2, unique=True).map(tuple),
            values=st.lists(st.tuples(INT64, INT64), max_size=3).map(lambda values: ValueSet.of_tuples(values, 2)),
        )
    ),
    st.booleans(),
    st.none() | INT64,
    st.dictionaries(NAMES, NATURAL, max_size=4),
    st.lists(st.builds(Account, INT64, NATURAL, NATURAL, NATURAL, NATURAL), max_size=4),
    st.lists(
        st.builds(
            Taint, INT64, INT64, st.lists(st.sampled_from(["gap", "late"]), max_size=2).map(tuple), st.booleans(),
            NATURAL,
        ),
        max_size=4,
    ),
)  # fmt: skip
def test_every_punctuation_survives(
    origin: Origin, sequence: int, bounds: list[Bound], last: bool, start_ns: int | None, counters: dict[str, int],
    accounts: list[Account], taints: list[Taint],
) -> None:  # fmt: skip
    ledger = LaneLedger(counters, tuple(accounts), tuple(taints))
    sent = Punctuation(origin, sequence, Promise(tuple(bounds), last), ledger, start_ns=start_ns)
    assert read(encode(sent)) == sent


def bad(name: str, **changes: bytes | None) -> BadReason:
    """Why the example is refused with these headers changed (None: removed), or with another `value`."""
    record = encode(EXAMPLES[name])
    value = changes.pop("value", record.value)
    headers = {**dict(record.headers), **{f"lm-{header}": content for header, content in changes.items()}}
    result = decode([(h, c) for h, c in headers.items() if c is not None], value, lambda origin: PARTIALS)
    assert isinstance(result, BadRecord)
    return result.reason


def test_reasons() -> None:
    assert bad("batch", kind=None) is BadReason.FOREIGN
    assert bad("batch", version=b"2") is BadReason.VERSION
    assert bad("batch", kind=b"weather") is BadReason.KIND
    assert bad("batch", epoch=b"-1") is BadReason.HEADER
    assert bad("batch", epoch=b"9223372036854775808") is BadReason.HEADER
    assert bad("batch", sequence=b"007") is BadReason.HEADER
    assert bad("batch", source=b"\xff") is BadReason.HEADER
    assert bad("batch", tuples=b"[[5,3]]") is BadReason.COUNT
    assert bad("batch", tuples=b"[[5,3],[5,4]]") is BadReason.COUNT
    assert bad("batch", tuples=b"{}") is BadReason.HEADER
    assert bad("batch-late", late=b"yes") is BadReason.HEADER
    assert bad("batch", value=None) is BadReason.VALUE
    assert bad("complete", generation=b"3") is BadReason.HEADER
    assert bad("complete", value=b'{"verdict":"exact"}') is BadReason.VALUE
    assert bad("correction", value=encode(EXAMPLES["correction"]).value.replace(b"60.5", b"1e999")) is BadReason.VALUE
    amendment = encode(EXAMPLES["amendment"]).value
    assert bad("amendment", value=amendment.replace(b'"dropped","late"', b"")) is BadReason.VALUE
    lossy = encode(EXAMPLES["complete-lossy"]).value
    assert bad("complete", value=lossy.replace(b'"lossy"', b'"exact"')) is BadReason.VALUE


def test_rows_of_another_schema_or_of_a_stage_that_nobody_reads() -> None:
    record = encode(EXAMPLES["batch"])
    other = Schema((*PARTIALS.columns[:2], Column("x", Kind.INT)))
    result = decode(record.headers, record.value, lambda origin: other)
    assert isinstance(result, BadRecord)
    assert result.reason is BadReason.SCHEMA
    assert "the stage (pane int, tuples int, x int)" in result.detail
    assert decode(record.headers, record.value) == BadRecord(
        BadReason.STAGE, "nobody here reads node main of stage 9f3a5c"
    )
    rows = EXAMPLES["batch"].rows
    two = pa.BufferOutputStream()
    with pa.ipc.new_stream(two, rows.schema) as stream:
        stream.write_batch(rows)
        stream.write_batch(rows)
    assert bad("batch", value=two.getvalue().to_pybytes()) is BadReason.VALUE
    assert bad("batch", value=write_rows(pa.record_batch({"a": [1]}))) is BadReason.SCHEMA


def test_headers_of_others_are_ignored() -> None:
    record = encode(EXAMPLES["token"])
    extra = [("traceparent", b"00-\xff"), ("traceparent", None), *record.headers]
    assert decode(extra, record.value) == EXAMPLES["token"]


def many_rows(panes: list[int]) -> pa.RecordBatch:
    row = [0, 1, V4 | 0x0A000001, 1, None, 0.5, 0, 0, 0]
    words = matrix(PARTIALS, [row]).repeat(len(panes), axis=0)
    words[:, 1] = panes
    return to_batch(PARTIALS, words)


@pytest.mark.parametrize("panes", [[7] * 20_000, list(range(20_000)), []], ids=["one pane", "a pane a row", "no rows"])
def test_split_batches_fit_and_hold_every_row_once(panes: list[int]) -> None:
    rows = many_rows(panes)
    parts = split_batch(rows)
    for part in parts:
        batch = PartialBatch(NODE, 0, part, tuples_per_pane(part))
        record = encode(batch)
        assert len(record.value) <= MAX_BATCH_BYTES
        assert isinstance(read(record), PartialBatch)
    assert [pane for part in parts for pane in to_words(PARTIALS, part)[:, 1].tolist()] == panes


@given(st.integers(4_000, 20_000), st.integers(0, 400))
@settings(max_examples=30)
def test_split_keeps_to_any_limit(limit: int, count: int) -> None:
    parts = split_batch(many_rows([1] * count), limit)
    assert sum(part.num_rows for part in parts) == count
    assert all(len(write_rows(part)) <= limit for part in parts)


@given(tables())
def test_result_rows_in_arrow_are_the_same_rows_as_json(table: tuple[Schema, list[list[object]]]) -> None:
    schema, rows = table
    words = matrix(schema, rows)
    back = read(encode(ResultRowsRecord(3, shown(schema, words))))
    assert isinstance(back, ResultRowsRecord)
    assert back.one_by_one() == [ResultRow(3, line) for line in json_writer(schema, b"").write(words)]


def test_result_rows_are_divided_into_records() -> None:
    words = matrix(PARTIALS, [[i, 1, V4 | 0x0A000001, 1, None, 0.5, 0, 0, 0] for i in range(30_000)])
    parts = list(arrow_records(3, PARTIALS, words))
    assert len(parts) > 2
    read_back = [part for record in parts if isinstance(part := read(record), ResultRowsRecord)]
    assert [pane for part in read_back for pane in part.rows.column("pane").to_pylist()] == list(range(30_000))
    assert not list(arrow_records(3, PARTIALS, words[:0]))


def test_result_rows_of_types_that_no_result_has() -> None:
    foreign = pa.record_batch({"a": pa.array([b"x"])})
    assert bad("rows", value=write_rows(foreign)) is BadReason.SCHEMA


@pytest.mark.parametrize("compression", Compression)
def test_batches_are_read_however_they_are_compressed(compression: Compression) -> None:
    rows = many_rows([3, 3, 4] * 100)
    back = read(encode_batch(PartialBatch(NODE, 0, rows, tuples_per_pane(rows)), compression))
    assert isinstance(back, PartialBatch)
    assert back.rows.equals(rows)


@given(tables(), st.integers(1, 200))
def test_what_a_batch_unpacks_to_is_known_before(table: tuple[Schema, list[list[object]]], times: int) -> None:
    schema, rows = table
    batch = to_batch(schema, matrix(schema, rows).repeat(times, axis=0))
    claimed = set()
    for compression in Compression:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(write_rows(batch, compression)))
        messages.read_next_message()
        message = messages.read_next_message()
        claimed.add(_claims(message.metadata.to_pybytes(), message.body))
    ((count, size),) = claimed
    assert count == len(rows) * times
    bits = sum(field.type.bit_width for field in batch.schema)  # and one of each for nulls, if there are any
    assert bits * count <= 8 * size <= (bits + batch.num_columns) * count + 8 * 2 * batch.num_columns


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_unpacks_to_more_than_any_sender_sends_is_a_dead_letter(compression: Compression) -> None:
    rows = many_rows([3] * 50_000)
    record = encode_batch(PartialBatch(NODE, 0, rows, tuples_per_pane(rows)), compression)
    assert len(record.value) < 100_000
    refused = decode(record.headers, record.value, lambda origin: PARTIALS)
    assert isinstance(refused, BadRecord)
    assert refused.reason is BadReason.VALUE
    assert re.search(r"a batch of 50000 rows unpacks to \d{7} bytes, more than 524288", refused.detail)


@pytest.mark.parametrize("claim", [1 << 40, (1 << 63) - 1, -2, -(1 << 63)])
def test_the_length_that_a_buffer_claims_is_checked_before_it_is_believed(claim: int) -> None:
    rows = many_rows([3] * 1000)
    record = encode_batch(PartialBatch(NODE, 0, rows, tuples_per_pane(rows)))
    length = (8 * 1000).to_bytes(8, "little")
    assert record.value.count(length) > 2
    refused = decode(
        record.headers, record.value.replace(length, claim.to_bytes(8, "little", signed=True), 1), lambda _: PARTIALS
    )
    assert isinstance(refused, BadRecord)
    assert refused.reason is BadReason.VALUE
    assert "more than 524288" in refused.detail if claim > 0 else "less than no bytes" in refused.detail


def test_compression_makes_batches_smaller() -> None:
    rows = many_rows([3] * 10_000)
    batch = PartialBatch(NODE, 0, rows, tuples_per_pane(rows))
    size = {kind: len(encode_batch(batch, kind).value) for kind in Compression}
    assert max(size[Compression.LZ4], size[Compression.ZSTD]) < size[Compression.NONE] / 2


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a row of 9 columns"):
        split_batch(many_rows([1]), 1000)


def test_a_record_that_topics_would_refuse_is_refused_here() -> None:
    accounts = tuple(Account(29391186 + i, 12345, 123456) for i in range(50_000))
    with pytest.raises(OversizeRecord, match=f"a punctuation of .* accept {MAX_RECORD_BYTES}"):
        encode(Punctuation(NODE, 0, Promise(()), LaneLedger({}, accounts)))


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.none() | st.binary())),
    st.none() | st.binary(max_size=600),
)
def test_dead_letters_keep_what_fits(headers: list[tuple[str, bytes | None]], value: bytes | None) -> None:
    letter = bury(BadRecord(BadReason.FOREIGN, "x" * 5000), "t", 1, 2, headers, value)
    assert letter.size == len(value or b"")
    assert letter.head == (value or b"")[:HEAD_BYTES]
    assert read(encode(letter)) == letter
    assert dataclasses.replace(letter, headers=()).detail == "x" * 1000
