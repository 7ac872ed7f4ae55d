"""Records that could not be used: their place, the reason, and their first bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lowmark.wire.records.json_fields import Fields, Json, canonical, parse, text
from lowmark.wire.records.record import BadReason, BadRecord, Header, RecordKind, Refused, WireRecord, headers_of, sized

__all__ = ["HEAD_BYTES", "DeadLetter", "bury", "decode_dead_letter", "encode_dead_letter"]

HEAD_BYTES = 256
"""Bytes of the value, and of each header, that a dead letter keeps."""

_MAX_HEADERS = 32
_DETAIL_CHARACTERS = 1000
_REASONS = {reason.value: reason for reason in BadReason}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    reason: BadReason
    detail: str
    topic: str  # from which it was read
    partition: int
    offset: int
    headers: tuple[Header, ...]
    head: bytes  # the first HEAD_BYTES of its value
    size: int  # bytes of its value


def bury(
    bad: BadRecord, topic: str, partition: int, offset: int,
    headers: Iterable[tuple[str, bytes | None]] | None, value: bytes | None,
) -> DeadLetter:  # fmt: skip
    """The dead letter of a record that was read at this place."""
    kept = tuple((name[:HEAD_BYTES], (content or b"")[:HEAD_BYTES]) for name, content in headers or ())[:_MAX_HEADERS]
    content = value or b""
    detail = bad.detail[:_DETAIL_CHARACTERS]
    return DeadLetter(bad.reason, detail, topic, partition, offset, kept, content[:HEAD_BYTES], len(content))


def encode_dead_letter(letter: DeadLetter) -> WireRecord:
    """Encode as JSON. Each byte becomes the character U+0000 to U+00FF with the same number, so text stays readable."""
    value: dict[str, Json] = {
        "detail": letter.detail,
        "head": letter.head.decode("latin-1"),
        "headers": [[name, content.decode("latin-1")] for name, content in letter.headers],
        "offset": letter.offset,
        "partition": letter.partition,
        "reason": letter.reason.value,
        "size": letter.size,
        "topic": letter.topic,
    }
    return sized(WireRecord(None, canonical(value), headers_of(RecordKind.DEAD_LETTER)))


def decode_dead_letter(value: bytes) -> DeadLetter:
    fields = Fields(parse(value))
    letter = DeadLetter(
        reason=fields.choice("reason", _REASONS),
        detail=fields.text("detail"),
        topic=fields.text("topic"),
        partition=fields.natural("partition"),
        offset=fields.natural("offset"),
        headers=tuple(_read_header(item) for item in fields.array("headers")),
        head=_bytes(fields.text("head")),
        size=fields.natural("size"),
    )
    fields.end()
    return letter


def _read_header(value: Json) -> Header:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused(BadReason.VALUE, "a header is an array of name and content")
    return text(value[0], "a header's name"), _bytes(text(value[1], "a header"))


def _bytes(characters: str) -> bytes:
    try:
        return characters.encode("latin-1")
    except UnicodeEncodeError:
        raise Refused(BadReason.VALUE, "a byte string has a character above U+00FF") from None
