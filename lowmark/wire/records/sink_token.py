"""The record that the sink adds to each transaction, so that a batch is never written twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.record import BadReason, RecordKind, Refused, WireRecord, headers_of, sized

__all__ = ["Token", "Told", "decode_token", "decode_told", "encode_token", "encode_told"]

_METADATA_BYTES = 3_000
"""Kafka stores at most 4,096 with an offset (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True, slots=True)
class Token:
    """This batch was written. The newest token of a job replaces older ones."""

    job: str
    checkpoint: str  # identifies the checkpoint whose batches are counted
    run: int  # number of the job's run on that checkpoint
    batch: int


def encode_token(token: Token) -> WireRecord:
    """Keyed by the job. The value is short enough for the metadata that Kafka stores with a committed offset."""
    value: dict[str, Json] = {"batch": token.batch, "checkpoint": token.checkpoint, "job": token.job, "run": token.run}
    return sized(WireRecord(token.job.encode(), canonical(value), headers_of(RecordKind.TOKEN)))


def decode_token(value: bytes) -> Token:
    fields = Fields(parse(value))
    token = Token(fields.text("job"), fields.text("checkpoint"), fields.natural("run"), fields.natural("batch"))
    fields.end()
    return token


@dataclass(frozen=True, slots=True)
class Told:
    """For one query and partition of its partials: all results from records before `upto` have been sent."""

    law: str  # digest of what determines the results besides the partials: the plan and the sources
    upto: int


def encode_told(told: Mapping[str, Told]) -> str:
    """The metadata for the offset that the job's group commits for a partition of partials, by query. If there is no
    room for all queries, the last ones by name are left out."""
    rows: list[Json] = []
    size = 0
    for query, of in sorted(told.items()):
        row: Json = [query, of.law, of.upto]
        size += len(canonical(row)) + 1
        if size > _METADATA_BYTES:
            break
        rows.append(row)
    return canonical({"told": rows}).decode()


def decode_told(metadata: str) -> dict[str, Told]:
    """The entries by query; empty if there is no metadata, or another program wrote it."""
    try:
        return dict(map(_told, Fields(parse(metadata.encode())).array("told")))
    except Refused:
        return {}


def _told(row: Json) -> tuple[str, Told]:
    if not isinstance(row, list) or len(row) != 3:
        raise Refused(BadReason.VALUE, "not [query, law, up to]")
    query, law, upto = row
    return text(query, "query"), Told(text(law, "law"), integer(upto, "up to", 0))
