"""A Kafka record as lowmark writes it: a value, and headers that name its kind and its sender.

Decoding never fails: everything in a topic is one of our records, or a `BadRecord` with the reason why not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lowmark.wire.rows.values import INT64_MAX

__all__ = [
    "MAX_RECORD_BYTES", "WIRE_VERSION", "BadReason", "BadRecord", "Header", "Headers", "OversizeRecord", "RecordKind",
    "Refused", "WireRecord", "header", "headers_of", "sized",
]  # fmt: skip

WIRE_VERSION = 1

MAX_RECORD_BYTES = 1 << 20
"""Size limit of a record's value and headers together; topics accept a little more (Kafka's own framing)."""

Header = tuple[str, bytes]


class RecordKind(Enum):
    """The kind of a record, which is in its header `lm-kind`."""

    BATCH = "batch"
    PUNCTUATION = "punctuation"
    REGISTRATION = "registration"
    PRESENCE = "presence"
    ROSTER = "roster"
    REQUEST = "request"
    QUARANTINE = "quarantine"
    ROSTER_CHANGE = "roster-change"
    EXCLUSION = "exclusion"
    RETURN = "return"
    RETIREMENT = "retirement"
    ROW = "row"
    ROWS = "rows"
    COMPLETE = "complete"
    AMENDMENT = "amendment"
    CORRECTION = "correction"
    LATE = "late"
    DEAD_LETTER = "dead-letter"
    TOKEN = "token"


class BadReason(Enum):
    """Why a record is a dead letter: a closed list."""

    FOREIGN = "foreign"  # the record has no lowmark headers
    VERSION = "version"  # its wire version is one that this program does not read
    KIND = "kind"  # its kind is unknown, or does not belong on its topic
    HEADER = "header"  # a header is missing, repeated or malformed
    STAGE = "stage"  # nothing here reads its stage or node
    SCHEMA = "schema"  # its rows have other columns than its stage
    VALUE = "value"  # its value cannot be read
    COUNT = "count"  # the count of tuples in its header differs from its rows
    FUTURE = "future"  # its time is too far after the time at which it was appended
    ENDED = "ended"  # its source had said that it sends no more


@dataclass(frozen=True, slots=True)
class WireRecord:
    """A record to send. Headers have a fixed order, so that equal records have equal bytes."""

    key: bytes | None
    value: bytes
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class BadRecord:
    reason: BadReason
    detail: str


class Refused(Exception):
    """Raised by the decoders of one kind; `codec.decode` turns it into a BadRecord."""

    def __init__(self, reason: BadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class OversizeRecord(ValueError):
    """A record would be larger than topics accept: its sender must split it."""


def header(name: str, value: str | int) -> Header:
    return f"lm-{name}", str(value).encode()


def headers_of(kind: RecordKind, *rest: Header) -> tuple[Header, ...]:
    return header("kind", kind.value), header("version", WIRE_VERSION), *rest


def sized(record: WireRecord) -> WireRecord:
    """The record; OversizeRecord if it is too large."""
    size = len(record.value) + sum(len(name) + len(value) for name, value in record.headers)
    if size > MAX_RECORD_BYTES:
        kind = record.headers[0][1].decode()
        raise OversizeRecord(f"a {kind} of {size} bytes: topics accept {MAX_RECORD_BYTES}")
    return record


class Headers:
    """Typed reading of a record's headers. Headers of other programs (tracing, mirroring) are ignored."""

    __slots__ = ("_values",)

    def __init__(self, headers: Iterable[tuple[str, bytes | None]] | None) -> None:
        self._values: dict[str, bytes] = {}
        for name, value in headers or ():
            if not name.startswith("lm-"):
                continue
            if name in self._values or value is None:
                raise Refused(BadReason.HEADER, f"header {name} {'has no value' if value is None else 'stands twice'}")
            self._values[name] = value

    def kind(self) -> RecordKind:
        """The record's kind, after checking that its version is readable."""
        if "lm-kind" not in self._values:
            raise Refused(BadReason.FOREIGN, "no header lm-kind: not a record of lowmark")
        if self.text("version") != str(WIRE_VERSION):
            raise Refused(BadReason.VERSION, f"wire version {self.text('version')}: this program reads {WIRE_VERSION}")
        kind = self.text("kind")
        try:
            return RecordKind(kind)
        except ValueError:
            raise Refused(BadReason.KIND, f"unknown kind {kind!r}") from None

    def has(self, name: str) -> bool:
        return f"lm-{name}" in self._values

    def text(self, name: str) -> str:
        value = self._values.get(f"lm-{name}")
        if value is None:
            raise Refused(BadReason.HEADER, f"header lm-{name} is missing")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Refused(BadReason.HEADER, f"header lm-{name} is not UTF-8") from None

    def integer(self, name: str) -> int:
        """A number from -2^63 to 2^63 - 1 in plain decimal digits."""
        text = self.text(name)
        digits = text.removeprefix("-")
        if len(digits) <= 19 and digits.isascii() and digits.isdecimal() and str(int(text)) == text:
            number = int(text)
            if -INT64_MAX - 1 <= number <= INT64_MAX:
                return number
        raise Refused(BadReason.HEADER, f"header lm-{name} is {text!r}, not a number from -2^63 to 2^63 - 1")

    def natural(self, name: str) -> int:
        """A number from 0 to 2^63 - 1 in plain decimal digits."""
        text = self.text(name)
        if len(text) <= 19 and text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0"):
            number = int(text)
            if number <= INT64_MAX:
                return number
        raise Refused(BadReason.HEADER, f"header lm-{name} is {text!r}, not a number from 0 to 2^63 - 1")
