"""Which queries of a job are quarantined: they get no records, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowmark.wire.records.json_fields import Fields, Json, canonical, parse, text
from lowmark.wire.records.record import BadReason, RecordKind, Refused, WireRecord, headers_of, sized

__all__ = ["Quarantine", "decode_quarantine", "encode_quarantine"]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The reason of each quarantined query of a job. None: all are released."""

    job: str
    queries: tuple[tuple[str, str], ...]


def encode_quarantine(quarantine: Quarantine) -> WireRecord:
    """Keyed by the job: compaction of the topic `sources` keeps the last one."""
    value: Mapping[str, Json] = {"job": quarantine.job, "queries": [list(each) for each in sorted(quarantine.queries)]}
    key = b"\0quarantine\0" + quarantine.job.encode()
    return sized(WireRecord(key, canonical(value), headers_of(RecordKind.QUARANTINE)))


def decode_quarantine(value: bytes) -> Quarantine:
    fields = Fields(parse(value))
    quarantine = Quarantine(fields.text("job"), tuple(map(_query, fields.array("queries"))))
    fields.end()
    return quarantine


def _query(row: Json) -> tuple[str, str]:
    if not isinstance(row, list) or len(row) != 2:
        raise Refused(BadReason.VALUE, "not [query, why]")
    return text(row[0], "query"), text(row[1], "why")
