"""Rosters: the sources of a stream that a job's windows wait for, and the control records that change them.

Only the process that rules a job writes control records. In one transaction it writes a change to every partition of
the partials that the job reads, and the whole roster to the topic `sources`. Times are values of `ts`: a change takes
effect at a node's first granule that begins at or after its time. `NEVER` and `FOREVER` are null on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lowmark.wire.records.json_fields import Fields, Json, canonical, integer, parse, text
from lowmark.wire.records.record import BadReason, RecordKind, Refused, WireRecord, headers_of, sized
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER, parse_time, time

__all__ = [
    "Action", "Control", "Exclusion", "ListedSource", "Request", "Retirement", "Return", "RosterChange",
    "RosterInForce", "decode_control", "decode_request", "decode_roster", "encode_control", "encode_request",
    "encode_roster",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RosterChange:
    """From `from_ns` on, these are the sources of the stream. `version` counts all changes of a job's stream; buckets
    ignore a version that they have seen."""

    job: str
    stream: str
    version: int
    from_ns: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """From `from_ns` on no window waits for the source; windows that miss it are `lossy: excluded`."""

    job: str
    stream: str
    version: int
    from_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class Return:
    """From `from_ns` on windows wait for the source again."""

    job: str
    stream: str
    version: int
    from_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class Retirement:
    """No query of the job that it began in this generation, or before, reads the stage any more: its state is
    dropped."""

    job: str
    stage: str
    generation: int


Control = RosterChange | Exclusion | Return | Retirement


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source, and the times at which its stream lists it. No window waits for it in the intervals `excluded`."""

    source: str
    joined: int = NEVER
    left: int = FOREVER
    excluded: tuple[tuple[int, int], ...] = ()

    @property
    def is_excluded(self) -> bool:
        """Whether no window waits for it now."""
        return bool(self.excluded) and self.excluded[-1][1] == FOREVER


@dataclass(frozen=True, slots=True)
class RosterInForce:
    """The roster of a job's stream after all changes up to `version`. `configured` is the configured roster that
    it follows. It includes all registrations and requests before the offset `heard` of the topic `sources`. Sources in
    `by_hand` are excluded until a person returns them."""

    job: str
    stream: str
    version: int
    members: tuple[ListedSource, ...]
    configured: tuple[str, ...]
    heard: int
    by_hand: tuple[str, ...] = ()


class Action(Enum):
    EXCLUDE = "exclude"
    RETURN = "return"
    ADD = "add"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True)
class Request:
    """A person asks the process that rules a job to change a stream's roster."""

    job: str
    stream: str
    source: str
    action: Action
    process: str  # the one that asks: host and process id


_ACTIONS = {action.value: action for action in Action}


def encode_control(control: Control) -> WireRecord:
    value: dict[str, Json]
    match control:
        case Retirement(job, stage, generation):
            kind, value = RecordKind.RETIREMENT, {"generation": generation, "job": job, "stage": stage}
        case RosterChange(sources=sources):
            kind, value = RecordKind.ROSTER_CHANGE, {**_head(control), "sources": sources}
        case Exclusion(source=source):
            kind, value = RecordKind.EXCLUSION, {**_head(control), "source": source}
        case Return(source=source):
            kind, value = RecordKind.RETURN, {**_head(control), "source": source}
    return sized(WireRecord(None, canonical(value), headers_of(kind)))


def _head(control: RosterChange | Exclusion | Return) -> dict[str, Json]:
    return {
        "from": _shown(control.from_ns, NEVER),
        "job": control.job,
        "stream": control.stream,
        "version": control.version,
    }


def _shown(ns: int, open_end: int) -> Json:
    return None if ns == open_end else time(ns)


def decode_control(kind: RecordKind, value: bytes) -> Control:
    """Decode a roster change, an exclusion, a return or a retirement, as `kind` says."""
    fields = Fields(parse(value))
    job = fields.text("job")
    control: Control
    if kind is RecordKind.RETIREMENT:
        control = Retirement(job, fields.text("stage"), fields.natural("generation"))
    else:
        start = fields.attribute("from", Kind.TIME)
        head = job, fields.text("stream"), fields.natural("version"), NEVER if start is None else start
        if kind is RecordKind.ROSTER_CHANGE:
            control = RosterChange(*head, fields.texts("sources"))
        else:
            control = (Exclusion if kind is RecordKind.EXCLUSION else Return)(*head, fields.text("source"))
    fields.end()
    return control


def encode_roster(roster: RosterInForce) -> WireRecord:
    """Keyed by job and stream: compaction of the topic `sources` keeps the last one."""
    value: dict[str, Json] = {
        "by_hand": roster.by_hand,
        "configured": roster.configured,
        "heard": roster.heard,
        "job": roster.job,
        "members": [
            [
                listed.source,
                _shown(listed.joined, NEVER),
                _shown(listed.left, FOREVER),
                [[_shown(start, NEVER), _shown(stop, FOREVER)] for start, stop in listed.excluded],
            ]
            for listed in roster.members
        ],
        "stream": roster.stream,
        "version": roster.version,
    }
    key = _key("roster", roster.job, roster.stream)
    return sized(WireRecord(key, canonical(value), headers_of(RecordKind.ROSTER)))


def decode_roster(value: bytes) -> RosterInForce:
    fields = Fields(parse(value))
    roster = RosterInForce(
        job=fields.text("job"),
        stream=fields.text("stream"),
        version=fields.natural("version"),
        members=tuple(_member(item) for item in fields.array("members")),
        configured=fields.texts("configured"),
        heard=fields.natural("heard"),
        by_hand=fields.texts("by_hand"),
    )
    fields.end()
    return roster


def _member(value: Json) -> ListedSource:
    source, joined, left, excluded = _items(value, 4, "a member is [source, joined, left, excluded]")
    if not isinstance(excluded, list):
        raise Refused(BadReason.VALUE, "the runs in which a source is excluded are an array")
    runs = (_items(run, 2, "a run is [from, up to]") for run in excluded)
    return ListedSource(
        text(source, "a member's source"),
        _time(joined, NEVER),
        _time(left, FOREVER),
        tuple((_time(start, NEVER), _time(stop, FOREVER)) for start, stop in runs),
    )


def _items(value: Json, count: int, form: str) -> list[Json]:
    if not isinstance(value, list) or len(value) != count:
        raise Refused(BadReason.VALUE, form)
    return value


def _time(value: Json, open_end: int) -> int:
    if value is None:
        return open_end
    try:
        return integer(parse_time(text(value, "a time of a member")), "a time of a member")
    except ValueError as error:
        raise Refused(BadReason.VALUE, f"a time of a member: {error}") from None


def encode_request(request: Request) -> WireRecord:
    """Keyed by job, stream and source: the last request about a source counts."""
    value: Mapping[str, Json] = {
        "action": request.action.value,
        "job": request.job,
        "process": request.process,
        "source": request.source,
        "stream": request.stream,
    }
    key = _key("request", request.job, request.stream, request.source)
    return sized(WireRecord(key, canonical(value), headers_of(RecordKind.REQUEST)))


def decode_request(value: bytes) -> Request:
    fields = Fields(parse(value))
    request = Request(
        job=fields.text("job"),
        stream=fields.text("stream"),
        source=fields.text("source"),
        action=fields.choice("action", _ACTIONS),
        process=fields.text("process"),
    )
    fields.end()
    return request


def _key(*parts: str) -> bytes:
    """The key begins with a zero byte, unlike any key of a registration."""
    return b"\0" + b"\0".join(part.encode() for part in parts)
