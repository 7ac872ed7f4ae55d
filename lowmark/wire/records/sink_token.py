"""Metadata of offsets that a bucket's group commits: a token, in the transaction of the results that it counts; and for
each query, the job that writes its results.

Kafka bounds the size of an offset's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.record import BadReason, RecordKind, Refused, WireRecord, headers_of, sized

__all__ = ["Owner", "Token", "Told", "decode_owner", "decode_token", "encode_owner", "encode_token"]

_TOLD_BYTES = 3_000
"""Bytes for the entries `told`. Kafka stores at most 4,096 with an offset (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True, slots=True)
class Told:
    """For one query and bucket: all results from records of partials before `upto` have been sent."""

    law: str  # digest of the plan and the sources, which determine the results together with the partials
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bucket's results are written up to this part of this batch. The newest token replaces older ones."""

    job: str
    checkpoint: str  # identifies the checkpoint whose batches are counted
    run: int  # number of the job's run on that checkpoint
    batch: int  # -1: before the first
    part: int  # of the batch: one transaction each
    last: bool  # whether it is the batch's last part
    digest: str  # of all input of the bucket up to this batch, in order
    queries: str = ""  # digest of the names of those that got the batch; empty: before the first
    read: int = 0  # the offset after the last record of partials that these results use
    told: Mapping[str, Told] = field(default_factory=dict)  # by query


def encode_token(token: Token) -> WireRecord:
    """Keyed by the job. If there is no room for all queries of `told`, the last ones by name are left out."""
    value: dict[str, Json] = {
        "batch": token.batch,
        "checkpoint": token.checkpoint,
        "digest": token.digest,
        "job": token.job,
        "last": token.last,
        "part": token.part,
        "queries": token.queries,
        "read": token.read,
        "run": token.run,
        "told": _told_rows(token.told),
    }
    return sized(WireRecord(token.job.encode(), canonical(value), headers_of(RecordKind.TOKEN)))


def decode_token(value: bytes) -> Token:
    fields = Fields(parse(value))
    token = Token(
        job=fields.text("job"),
        checkpoint=fields.text("checkpoint"),
        run=fields.natural("run"),
        batch=integer(fields.take("batch"), "batch", -1),
        part=fields.natural("part"),
        last=fields.flag("last"),
        digest=fields.text("digest"),
        queries=fields.text("queries"),
        read=fields.natural("read"),
        told=dict(map(_told, fields.array("told"))),
    )
    fields.end()
    return token


def _told_rows(told: Mapping[str, Told]) -> list[Json]:
    rows: list[Json] = []
    size = 0
    for query, of in sorted(told.items()):
        row: Json = [query, of.law, of.upto]
        size += len(canonical(row)) + 1
        if size > _TOLD_BYTES:
            break
        rows.append(row)
    return rows


def _told(row: Json) -> tuple[str, Told]:
    if not isinstance(row, list) or len(row) != 3:
        raise Refused(BadReason.VALUE, "not [query, law, up to]")
    query, law, upto = row
    return text(query, "query"), Told(text(law, "law"), integer(upto, "up to", 0))


@dataclass(frozen=True, slots=True)
class Owner:
    """The job that writes a query's results, and where: the stage and its number of buckets."""

    job: str
    stage: str
    buckets: int


def encode_owner(owner: Owner) -> str:
    return canonical({"buckets": owner.buckets, "job": owner.job, "stage": owner.stage}).decode()


def decode_owner(metadata: str) -> Owner:
    """Raises Refused if another program has written it."""
    fields = Fields(parse(metadata.encode()))
    owner = Owner(fields.text("job"), fields.text("stage"), fields.natural("buckets"))
    fields.end()
    return owner
