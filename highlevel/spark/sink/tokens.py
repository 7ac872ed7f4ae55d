"""Which results a bucket still has to write: decided by the token in Kafka and what the bucket's state says of it.

The bucket's state is committed by Spark after the task, and the token by Kafka before it, with the results. So a batch
can be run again whose results are there. Equal input gives equal output: a digest of all input, chained from batch to
batch, proves that what stands in Kafka is what this run would write.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, replace

from highlevel.interface import Space
from highlevel.spark.errors import WAYS_OUT, CheckpointRefused, TakenOver
from lowmark.wire.records.sink_token import Token

__all__ = ["HISTORY", "Chain", "Past", "before_the_first", "is_written", "restated"]

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Past:
    """What a bucket's state says of its past. The token of which it speaks stands in Kafka when a batch begins."""

    digest: str  # of all input so far
    batch: int = -1  # the last one of which results were written
    part: int = 0  # its last part
    written: str = ""  # its token's digest; empty: it is that of a bucket without a past
    holder: str = ""  # the producer that has written it

    def encode(self) -> bytes:
        return json.dumps([self.digest, self.batch, self.part, self.written, self.holder]).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Past:
        return cls(*json.loads(piece))

    def after(self, digest: str, written: Token, holder: str) -> Past:
        return Past(digest, written.batch, written.part, written.digest, holder)


HISTORY: Space[Past] = Space("history", Past.encode, Past.decode)


def before_the_first(checkpoint: str) -> Past:
    """The past of a bucket without state."""
    digest = hashlib.blake2b(checkpoint.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return Past(digest, written=digest)


class Chain:
    """The digest of a batch's input, record after record, behind that of all input before."""

    def __init__(self, before: str) -> None:
        self._hash = hashlib.blake2b(before.encode(), digest_size=_DIGEST_BYTES)
        self._topic = ""

    def add(self, topic: str, offset: int, appended_us: int) -> None:
        """In the order in which the bucket takes them. A topic that was made anew has other times of append."""
        if topic != self._topic:
            self._topic = topic
            self._hash.update(topic.encode())
        self._hash.update(struct.pack("<qq", offset, appended_us))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def is_written(stored: Token | None, past: Past, part: Token) -> bool:
    """Whether Kafka has this part already; else it is the next one to write. `stored` is the token in Kafka, read when
    no other producer can write; `past` is that of the state with which the batch began. Raises TakenOver or
    CheckpointRefused when the three do not belong together: then nothing may be written."""
    if stored is None:
        raise CheckpointRefused(
            f"Kafka does not say how far the results are written that follow batch {past.batch}: it is another "
            f"cluster, or the job has been down for longer than a week. {WAYS_OUT}"
        )
    if stored.checkpoint != part.checkpoint or stored.run > part.run:
        raise TakenOver(
            f"another process runs job {stored.job} (checkpoint {stored.checkpoint}, run {stored.run}): this one has "
            "been taken over and ends. It has written nothing since; end one of the two"
        )
    if stored.batch > part.batch:
        raise _older(stored, part, f"the results of batch {stored.batch} are written already")
    if stored.batch == part.batch:
        if stored.digest != part.digest:
            raise _older(stored, part, "its results are written already, from other input")
        if not stored.last and stored.queries != part.queries:
            raise CheckpointRefused(
                f"a part of the results of batch {part.batch} is written, with other queries than those that run now: "
                "the rest cannot be told from it. Start the job once with the queries of before, until it has run that "
                "batch; or start with --new-generation"
            )
        return stored.last or part.part <= stored.part
    if (stored.batch, stored.part, stored.digest) != (past.batch, past.part, past.written) or not stored.last:
        raise _older(
            stored, part, f"the state has seen the results of batch {past.batch} written, Kafka those of {stored.batch}"
        )
    return False


def _older(stored: Token, part: Token, why: str) -> CheckpointRefused:
    return CheckpointRefused(
        f"checkpoint {stored.checkpoint} and the results in Kafka do not belong together at batch {part.batch}: {why}. "
        f"One of the two is an older copy. {WAYS_OUT}"
    )


def restated(stored: Token | None, job: str, checkpoint: str, run: int, begins: bool = False) -> Token:
    """The token by which a run claims a bucket. It repeats the one before, unless that is of another checkpoint, or the
    bucket `begins`, without state."""
    if stored is not None and stored.checkpoint == checkpoint and not begins:
        return replace(stored, job=job, run=max(run, stored.run))
    past = before_the_first(checkpoint)
    fresh = Token(
        job=job, checkpoint=checkpoint, run=run, batch=past.batch, part=past.part, last=True, digest=past.digest
    )
    return fresh if stored is None else replace(fresh, read=stored.read, told=stored.told)
