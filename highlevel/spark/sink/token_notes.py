"""Tokens and owners as notes of consumer groups, and the names of these groups."""

from __future__ import annotations

from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.sink.transaction import Note
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.record import BadRecord, RecordKind, Refused, headers_of
from lowmark.wire.records.sink_token import Owner, Token, decode_owner, encode_owner

__all__ = ["note_of", "note_of_owner", "owner_of", "token_of"]


def note_of(token: Token) -> Note:
    return Note(token.read, encode(token).value.decode())


def token_of(note: Note, group: str) -> Token:
    token = decode(headers_of(RecordKind.TOKEN), note.text.encode())
    if isinstance(token, BadRecord):
        raise _foreign(note, group)
    assert isinstance(token, Token)
    return token


def note_of_owner(owner: Owner) -> Note:
    return Note(0, encode_owner(owner))


def owner_of(note: Note, group: str) -> Owner:
    try:
        return decode_owner(note.text)
    except Refused:
        raise _foreign(note, group) from None


def _foreign(note: Note, group: str) -> CheckpointRefused:
    return CheckpointRefused(
        f"the consumer group {group} holds {note.text[:80]!r}, which is not how a job says how far it has come: "
        "another program uses this group's name, or another version of lowmark has run"
    )
