"""Encodes and decodes records: the one entry point for all kinds."""

from __future__ import annotations

from collections.abc import Iterable

from lowmark.wire.records.announcements import (
    decode_amendment,
    decode_complete,
    decode_correction,
    decode_late_row,
    encode_amendment,
    encode_complete,
    encode_correction,
    encode_late_row,
)
from lowmark.wire.records.dead_letters import DeadLetter, decode_dead_letter, encode_dead_letter
from lowmark.wire.records.partials import Origin, PartialBatch, SchemaOf, decode_batch, encode_batch
from lowmark.wire.records.punctuations import Punctuation, decode_punctuation, encode_punctuation
from lowmark.wire.records.quarantine import Quarantine, decode_quarantine, encode_quarantine
from lowmark.wire.records.record import BadReason, BadRecord, Headers, RecordKind, Refused, WireRecord
from lowmark.wire.records.registration import (
    Presence,
    Registration,
    decode_presence,
    decode_registration,
    encode_presence,
    encode_registration,
)
from lowmark.wire.records.result_rows import (
    ResultRow,
    ResultRowsRecord,
    decode_result_row,
    decode_result_rows,
    encode_result_row,
    encode_result_rows,
)
from lowmark.wire.records.rosters import (
    Control,
    Request,
    RosterInForce,
    decode_control,
    decode_request,
    decode_roster,
    encode_control,
    encode_request,
    encode_roster,
)
from lowmark.wire.records.sink_token import Token, decode_token, encode_token
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow

__all__ = ["Record", "decode", "encode"]

Record = (
    PartialBatch | Punctuation | Registration | Presence | RosterInForce | Request | Quarantine | Control
    | ResultRow | ResultRowsRecord | Complete | Amendment | Correction | LateRow
    | DeadLetter | Token
)  # fmt: skip


def encode(record: Record) -> WireRecord:
    """Equal records give equal bytes. Raises OversizeRecord if the record is larger than topics accept."""
    match record:
        case PartialBatch():
            return encode_batch(record)
        case Punctuation():
            return encode_punctuation(record)
        case Registration():
            return encode_registration(record)
        case Presence():
            return encode_presence(record)
        case RosterInForce():
            return encode_roster(record)
        case Request():
            return encode_request(record)
        case Quarantine():
            return encode_quarantine(record)
        case ResultRow():
            return encode_result_row(record)
        case ResultRowsRecord():
            return encode_result_rows(record)
        case Complete():
            return encode_complete(record)
        case Amendment():
            return encode_amendment(record)
        case Correction():
            return encode_correction(record)
        case LateRow():
            return encode_late_row(record)
        case DeadLetter():
            return encode_dead_letter(record)
        case Token():
            return encode_token(record)
        case _:
            return encode_control(record)


def _unknown(origin: Origin) -> None:
    return None


def decode(
    headers: Iterable[tuple[str, bytes | None]] | None, value: bytes | None, schema_of: SchemaOf = _unknown
) -> Record | BadRecord:
    """Decode any headers and bytes to a record, or to a BadRecord with the reason. Never raises. Without `schema_of`,
    batches of partials are BadRecords."""
    try:
        read = Headers(headers)
        kind = read.kind()
        if value is None:
            raise Refused(BadReason.VALUE, "no value")
        return _decode(kind, read, value, schema_of)
    except Refused as refused:
        return BadRecord(refused.reason, refused.detail)


def _decode(kind: RecordKind, headers: Headers, value: bytes, schema_of: SchemaOf) -> Record:
    match kind:
        case RecordKind.BATCH:
            return decode_batch(headers, value, schema_of)
        case RecordKind.PUNCTUATION:
            return decode_punctuation(headers, value)
        case RecordKind.REGISTRATION:
            return decode_registration(value)
        case RecordKind.PRESENCE:
            return decode_presence(value)
        case RecordKind.ROSTER:
            return decode_roster(value)
        case RecordKind.REQUEST:
            return decode_request(value)
        case RecordKind.QUARANTINE:
            return decode_quarantine(value)
        case RecordKind.ROSTER_CHANGE | RecordKind.EXCLUSION | RecordKind.RETURN | RecordKind.RETIREMENT:
            return decode_control(kind, value)
        case RecordKind.ROW:
            return decode_result_row(headers, value)
        case RecordKind.ROWS:
            return decode_result_rows(headers, value)
        case RecordKind.COMPLETE:
            return decode_complete(headers, value)
        case RecordKind.AMENDMENT:
            return decode_amendment(headers, value)
        case RecordKind.CORRECTION:
            return decode_correction(headers, value)
        case RecordKind.LATE:
            return decode_late_row(headers, value)
        case RecordKind.DEAD_LETTER:
            return decode_dead_letter(value)
        case RecordKind.TOKEN:
            return decode_token(value)
