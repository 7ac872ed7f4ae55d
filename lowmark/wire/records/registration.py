"""Registrations of sources, and who sends them now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lowmark.wire.records.json_fields import Fields, Json, canonical, parse
from lowmark.wire.records.record import RecordKind, WireRecord, headers_of, sized
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import time

__all__ = [
    "Presence", "PresenceState", "Registration", "SourceKind", "decode_presence", "decode_registration",
    "encode_presence", "encode_registration",
]  # fmt: skip


class SourceKind(Enum):
    LIVE = "live"
    FINITE = "finite"


@dataclass(frozen=True, slots=True)
class Registration:
    """One life of a source begins. The offset of this record in the topic `sources` is its epoch."""

    source: str
    stream: str
    kind: SourceKind
    run: str | None  # identifies one pass over a finite source
    start_ns: int | None  # ns since 1970: earlier time is not covered; None: covered from the first tuple on (finite)
    disorder: str  # as declared: `ordered`, `within 2 s`, …
    process: str  # host and process id, for a person who looks for it


class PresenceState(Enum):
    ASKED = "asked"  # is the process of this life running?
    HERE = "here"  # it is running, and sends
    GONE = "gone"  # it no longer sends


@dataclass(frozen=True, slots=True)
class Presence:
    """A question or an answer about a life of a source: does its process still send?"""

    source: str
    epoch: int
    process: str  # the one that asks or answers
    state: PresenceState


_SOURCE_KINDS = {kind.value: kind for kind in SourceKind}
_PRESENCE_STATES = {state.value: state for state in PresenceState}


def encode_registration(registration: Registration) -> WireRecord:
    """Keyed by the source: compaction of the topic `sources` keeps each source's last life."""
    start_ns = registration.start_ns
    value: dict[str, Json] = {
        "disorder": registration.disorder,
        "kind": registration.kind.value,
        "process": registration.process,
        "run": registration.run,
        "source": registration.source,
        "start": None if start_ns is None else time(start_ns),
        "stream": registration.stream,
    }
    return sized(WireRecord(registration.source.encode(), canonical(value), headers_of(RecordKind.REGISTRATION)))


def decode_registration(value: bytes) -> Registration:
    fields = Fields(parse(value))
    registration = Registration(
        source=fields.text("source"),
        stream=fields.text("stream"),
        kind=fields.choice("kind", _SOURCE_KINDS),
        run=fields.optional_text("run"),
        start_ns=fields.attribute("start", Kind.TIME),
        disorder=fields.text("disorder"),
        process=fields.text("process"),
    )
    fields.end()
    return registration


def encode_presence(presence: Presence) -> WireRecord:
    """The key differs from a registration's, so that compaction does not drop a registration for a newer presence."""
    value: dict[str, Json] = {
        "epoch": presence.epoch,
        "process": presence.process,
        "source": presence.source,
        "state": presence.state.value,
    }
    return sized(WireRecord(b"\0" + presence.source.encode(), canonical(value), headers_of(RecordKind.PRESENCE)))


def decode_presence(value: bytes) -> Presence:
    fields = Fields(parse(value))
    presence = Presence(
        source=fields.text("source"),
        epoch=fields.natural("epoch"),
        process=fields.text("process"),
        state=fields.choice("state", _PRESENCE_STATES),
    )
    fields.end()
    return presence
