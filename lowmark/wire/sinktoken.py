"""What the sink leaves in each transaction, so that a batch is never written twice."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.wire.fields import Fields, Json, canonical, parse
from lowmark.wire.record import RecordKind, WireRecord, headers_of, sized

__all__ = ["Token", "decode_token", "encode_token"]


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
