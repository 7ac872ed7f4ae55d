"""Registrations of sources, and the control records that change rosters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lowmark.wire.records.json_fields import Fields, Json, canonical, parse
from lowmark.wire.records.record import RecordKind, WireRecord, headers_of, sized
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import time

__all__ = [
    "Control", "Exclusion", "Presence", "PresenceState", "Registration", "Retirement", "Return", "RosterChange",
    "SourceKind", "decode_control", "decode_presence", "decode_registration", "encode_control", "encode_presence",
    "encode_registration",
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
    run: str | None  # identifies one reading of a finite source
    start_ns: int | None  # ns since 1970: earlier time is not covered; None: covered from the first tuple on (finite)
    disorder: str  # as declared: `ordered`, `within 2 s`, …
    roster_version: int
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
    process: str  # that asks or answers
    state: PresenceState


@dataclass(frozen=True, slots=True)
class RosterChange:
    """From `granule` on, these are the sources of the stream."""

    stream: str
    version: int
    granule: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """From `granule` on no window waits for the source; windows that miss it are `lossy: excluded`."""

    stream: str
    source: str
    granule: int


@dataclass(frozen=True, slots=True)
class Return:
    """From `granule` on windows wait for the source again."""

    stream: str
    source: str
    granule: int


@dataclass(frozen=True, slots=True)
class Retirement:
    """No query reads the stage any more; its state is dropped."""

    stage: str


Control = RosterChange | Exclusion | Return | Retirement


_SOURCE_KINDS = {kind.value: kind for kind in SourceKind}
_PRESENCE_STATES = {state.value: state for state in PresenceState}


def encode_registration(registration: Registration) -> WireRecord:
    """Keyed by the source: compaction of the topic `sources` keeps each source's last life."""
    start_ns = registration.start_ns
    value: dict[str, Json] = {
        "disorder": registration.disorder,
        "kind": registration.kind.value,
        "process": registration.process,
        "roster_version": registration.roster_version,
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
        roster_version=fields.natural("roster_version"),
        process=fields.text("process"),
    )
    fields.end()
    return registration


def encode_presence(presence: Presence) -> WireRecord:
    """Keyed differently from registrations: compaction must not drop a registration because a presence is newer."""
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


def encode_control(control: Control) -> WireRecord:
    value: dict[str, Json]
    match control:
        case RosterChange(stream, version, granule, sources):
            kind = RecordKind.ROSTER
            value = {"granule": granule, "sources": sources, "stream": stream, "version": version}
        case Exclusion(stream, source, granule):
            kind = RecordKind.EXCLUSION
            value = {"granule": granule, "source": source, "stream": stream}
        case Return(stream, source, granule):
            kind = RecordKind.RETURN
            value = {"granule": granule, "source": source, "stream": stream}
        case Retirement(stage):
            kind = RecordKind.RETIREMENT
            value = {"stage": stage}
    return sized(WireRecord(None, canonical(value), headers_of(kind)))


def decode_control(kind: RecordKind, value: bytes) -> Control:
    """Decode a roster change, an exclusion, a return or a retirement, as `kind` says."""
    fields = Fields(parse(value))
    control: Control
    if kind is RecordKind.RETIREMENT:
        control = Retirement(fields.text("stage"))
    elif kind is RecordKind.ROSTER:
        control = RosterChange(
            fields.text("stream"), fields.natural("version"), fields.integer("granule"), fields.texts("sources")
        )
    else:
        make = Exclusion if kind is RecordKind.EXCLUSION else Return
        control = make(fields.text("stream"), fields.text("source"), fields.integer("granule"))
    fields.end()
    return control
