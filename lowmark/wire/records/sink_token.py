"""What the sink leaves in each transaction, so that a batch is never written twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.record import BadReason, RecordKind, Refused, WireRecord, headers_of, sized

__all__ = ["Token", "Told", "decode_token", "decode_told", "encode_token", "encode_told"]

_METADATA_BYTES = 3_000
"""Kafka keeps 4,096 with an offset (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True, slots=True)
class Token:
    """This batch has been written. A job's tokens replace one another."""

    job: str
    checkpoint: str  # identifies the checkpoint whose batches are counted
    run: int  # of the job on that checkpoint
    batch: int


def encode_token(token: Token) -> WireRecord:
    """Keyed by the job. The value also fits where Kafka keeps a string of metadata with a committed offset."""
    value: dict[str, Json] = {"batch": token.batch, "checkpoint": token.checkpoint, "job": token.job, "run": token.run}
    return sized(WireRecord(token.job.encode(), canonical(value), headers_of(RecordKind.TOKEN)))


def decode_token(value: bytes) -> Token:
    fields = Fields(parse(value))
    token = Token(fields.text("job"), fields.text("checkpoint"), fields.natural("run"), fields.natural("batch"))
    fields.end()
    return token


@dataclass(frozen=True, slots=True)
class Told:
    """Of a query, in a partition of its partials: all results of what stands before `upto` have been told."""

    law: str  # what the results follow from besides the partials: the plan and the sources, as a digest
    upto: int


def encode_told(told: Mapping[str, Told]) -> str:
    """By query: the metadata of the offset that the job's group commits for a partition of partials. Queries for which
    there is no room are left out, those that stand last."""
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
    """Empty when there is none, or it is of another program."""
    try:
        return dict(map(_told, Fields(parse(metadata.encode())).array("told")))
    except Refused:
        return {}


def _told(row: Json) -> tuple[str, Told]:
    if not isinstance(row, list) or len(row) != 3:
        raise Refused(BadReason.VALUE, "not [query, law, up to]")
    query, law, upto = row
    return text(query, "query"), Told(text(law, "law"), integer(upto, "up to", 0))
