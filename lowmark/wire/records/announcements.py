"""How completions, amendments, corrections and late rows are written and read (`verdicts` defines their meaning).

The headers repeat the generation, as for rows, so that a reader can filter without reading values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.record import (
    BadReason,
    Header,
    Headers,
    RecordKind,
    Refused,
    WireRecord,
    header,
    headers_of,
    sized,
)
from lowmark.wire.records.verdicts import (
    Amendment,
    Complete,
    Correction,
    LateRow,
    Merge,
    OpenCount,
    Reason,
    Scalar,
    Verdict,
    WindowSpan,
)
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import show, time

__all__ = [
    "decode_amendment", "decode_complete", "decode_correction", "decode_late_row", "encode_amendment",
    "encode_complete", "encode_correction", "encode_late_row", "result_headers",
]  # fmt: skip

_REASONS = {reason.value: reason for reason in Reason}
_MERGES = {merge.value: merge for merge in Merge}
_ATTRIBUTE_KINDS = {kind.value: kind for kind in (Kind.TIME, Kind.INT, Kind.DURATION)}


def result_headers(kind: RecordKind, generation: int, early: int | None = None) -> tuple[Header, ...]:
    """The headers of every record on a result topic. `early`: the window of rows that were sent before it closed. Query
    and bucket have no header, because topic and partition imply them and a header takes a tenth of the sink's time."""
    windows = () if early is None else (header("window", early),)
    return headers_of(kind, header("generation", generation), *windows)


def _check_headers(headers: Headers, generation: int) -> None:
    if headers.natural("generation") != generation:
        raise Refused(BadReason.HEADER, "the generation in the headers is not that in the value")


def _reasons(reasons: Iterable[Reason]) -> list[str]:
    present = frozenset(reasons)
    return [reason.value for reason in Reason if reason in present]


def _read_reasons(fields: Fields) -> frozenset[Reason]:
    texts = fields.texts("reasons")
    unknown = [reason for reason in texts if reason not in _REASONS]
    if unknown:
        raise Refused(BadReason.VALUE, f"unknown reasons {ascii(unknown)[:80]}")
    return frozenset(_REASONS[reason] for reason in texts)


def _read_span(fields: Fields) -> WindowSpan:
    ends = fields.array("windows")
    if len(ends) != 2:
        raise Refused(BadReason.VALUE, "windows is not an array of the first and the last window's id")
    span = WindowSpan(integer(ends[0], "windows"), integer(ends[1], "windows"))
    if span.to < span.first:
        raise Refused(BadReason.VALUE, f"windows run from {span.first} back to {span.to}")
    return span


def _read_rosters(fields: Fields) -> tuple[tuple[str, int], ...]:
    versions = Fields(fields.take("rosters"))
    return tuple(sorted((text(stream, "a stream"), versions.natural(stream)) for stream in versions.names()))


def encode_complete(complete: Complete) -> WireRecord:
    value: dict[str, Json] = {
        "attribute": complete.attribute,
        "attribute_kind": complete.kind.value,
        "bucket": complete.bucket,
        "buckets": complete.buckets,
        "covered_from": None if complete.covered_from_ns is None else time(complete.covered_from_ns),
        "dropped": complete.dropped,
        "generation": complete.generation,
        "late": complete.late,
        "merged": complete.merged,
        "partial": complete.verdict.partial,
        "promised": complete.promised,
        "query": complete.query,
        "reasons": _reasons(complete.verdict.reasons),
        "rosters": dict(complete.rosters),
        "rows": complete.rows,
        "verdict": "exact" if complete.verdict.exact else "lossy",
    }
    if complete.windows is None:
        value["complete_to"] = show(complete.kind, complete.end)
    else:
        value["windows"] = [complete.windows.first, complete.windows.to]
        value["window_start"] = None if complete.start is None else show(complete.kind, complete.start)
        value["window_end"] = show(complete.kind, complete.end)
    if complete.open is not None:
        value["open_windows"], value["open_partitions"] = complete.open.windows, complete.open.partitions
    if complete.checksum is not None:
        value["checksum"] = complete.checksum
    if complete.missing:
        value["missing"] = complete.missing
    headers = result_headers(RecordKind.COMPLETE, complete.generation)
    return sized(WireRecord(None, canonical(value), headers))


def decode_complete(headers: Headers, value: bytes) -> Complete:
    fields = Fields(parse(value))
    kind = fields.choice("attribute_kind", _ATTRIBUTE_KINDS)
    windows, start = None, None
    if fields.has("windows"):
        windows, start = _read_span(fields), fields.attribute("window_start", kind)
        end = fields.attribute("window_end", kind)
    else:
        end = fields.attribute("complete_to", kind)
    if end is None:
        raise Refused(BadReason.VALUE, "where the windows end is null")
    verdict = Verdict(_read_reasons(fields), fields.flag("partial"))
    if fields.text("verdict") != ("exact" if verdict.exact else "lossy"):
        raise Refused(BadReason.VALUE, "the verdict contradicts the reasons")
    counted = fields.has("open_windows")
    complete = Complete(
        query=fields.text("query"),
        generation=fields.natural("generation"),
        bucket=fields.natural("bucket"),
        buckets=fields.natural("buckets"),
        windows=windows,
        start=start,
        end=end,
        attribute=fields.text("attribute"),
        rows=fields.natural("rows"),
        merged=fields.natural("merged"),
        promised=fields.natural("promised"),
        dropped=fields.natural("dropped"),
        late=fields.natural("late"),
        covered_from_ns=fields.attribute("covered_from", Kind.TIME),
        rosters=_read_rosters(fields),
        verdict=verdict,
        kind=kind,
        open=OpenCount(fields.natural("open_windows"), fields.natural("open_partitions")) if counted else None,
        missing=fields.texts("missing") if fields.has("missing") else (),
        checksum=fields.natural("checksum") if fields.has("checksum") else None,
    )
    fields.end()
    _check_headers(headers, complete.generation)
    return complete


def encode_amendment(amendment: Amendment) -> WireRecord:
    value: dict[str, Json] = {
        "bucket": amendment.bucket,
        "dropped": amendment.dropped,
        "generation": amendment.generation,
        "late": amendment.late,
        "query": amendment.query,
        "reasons": _reasons(amendment.reasons),
    }
    if amendment.windows is None:
        value["incomplete_from"], value["incomplete_to"] = amendment.start, amendment.end
    else:
        value["windows"] = [amendment.windows.first, amendment.windows.to]
        value["window_start"], value["window_end"] = amendment.start, amendment.end
    headers = result_headers(RecordKind.AMENDMENT, amendment.generation)
    return sized(WireRecord(None, canonical(value), headers))


def decode_amendment(headers: Headers, value: bytes) -> Amendment:
    fields = Fields(parse(value))
    windowed = fields.has("windows")
    reasons = _read_reasons(fields)
    if not reasons:
        raise Refused(BadReason.VALUE, "an amendment without a reason amends nothing")
    amendment = Amendment(
        query=fields.text("query"),
        generation=fields.natural("generation"),
        bucket=fields.natural("bucket"),
        windows=_read_span(fields) if windowed else None,
        start=_shown_or_none(fields, "window_start" if windowed else "incomplete_from"),
        end=_shown(fields, "window_end" if windowed else "incomplete_to"),
        late=fields.natural("late"),
        dropped=fields.natural("dropped"),
        reasons=reasons,
    )
    fields.end()
    _check_headers(headers, amendment.generation)
    return amendment


def encode_correction(correction: Correction) -> WireRecord:
    value: dict[str, Json] = {
        "bucket": correction.bucket,
        "deltas": [dict(delta) for delta in correction.deltas],
        "generation": correction.generation,
        "merge": {name: merge.value for name, merge in correction.merge.items()},
        "query": correction.query,
        "tuples": correction.tuples,
        "window_end": correction.end,
        "window_start": correction.start,
        "windows": [correction.windows.first, correction.windows.to],
    }
    headers = result_headers(RecordKind.CORRECTION, correction.generation)
    return sized(WireRecord(None, canonical(value), headers))


def decode_correction(headers: Headers, value: bytes) -> Correction:
    fields = Fields(parse(value))
    correction = Correction(
        query=fields.text("query"),
        generation=fields.natural("generation"),
        bucket=fields.natural("bucket"),
        windows=_read_span(fields),
        start=_shown(fields, "window_start"),
        end=_shown(fields, "window_end"),
        tuples=fields.natural("tuples"),
        merge=_read_merge(Fields(fields.take("merge"))),
        deltas=tuple(_read_row(item) for item in fields.array("deltas")),
    )
    fields.end()
    _check_headers(headers, correction.generation)
    return correction


def encode_late_row(late: LateRow) -> WireRecord:
    value: dict[str, Json] = {
        "bucket": late.bucket,
        "generation": late.generation,
        "query": late.query,
        "row": dict(late.row),
        "source": late.source,
        "tuples": late.tuples,
    }
    if late.windows is not None:
        value["windows"] = [late.windows.first, late.windows.to]
        value["window_start"], value["window_end"] = late.start, late.end
    return sized(WireRecord(None, canonical(value), result_headers(RecordKind.LATE, late.generation)))


def decode_late_row(headers: Headers, value: bytes) -> LateRow:
    fields = Fields(parse(value))
    windowed = fields.has("windows")
    late = LateRow(
        query=fields.text("query"),
        generation=fields.natural("generation"),
        bucket=fields.natural("bucket"),
        source=fields.text("source"),
        windows=_read_span(fields) if windowed else None,
        start=_shown_or_none(fields, "window_start") if windowed else None,
        end=_shown_or_none(fields, "window_end") if windowed else None,
        tuples=fields.natural("tuples"),
        row=_read_row(fields.take("row")),
    )
    fields.end()
    _check_headers(headers, late.generation)
    return late


def _read_merge(fields: Fields) -> Mapping[str, Merge]:
    return {text(name, "a field's name"): fields.choice(name, _MERGES) for name in fields.names()}


def _shown_or_none(fields: Fields, name: str) -> int | str | None:
    """A bound of a window, or None: landmark windows have no start."""
    value = fields.take(name)
    if value is None:
        return None
    return text(value, name) if isinstance(value, str) else integer(value, name)


def _shown(fields: Fields, name: str) -> int | str:
    value = _shown_or_none(fields, name)
    if value is None:
        raise Refused(BadReason.VALUE, f"{name} is null")
    return value


def _read_row(value: Json) -> Mapping[str, Scalar]:
    fields = Fields(value)
    return {text(name, "a field's name"): _scalar(fields.take(name)) for name in fields.names()}


def _scalar(value: Json) -> Scalar:
    if isinstance(value, str):
        return text(value, "a value")
    if value is None or isinstance(value, bool) or (isinstance(value, float) and isfinite(value)):
        return value
    return integer(value, "a value")
