"""The text forms of single values, in results and control records. `text` has the same forms for whole batches."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

from lowmark.wire.rows.schema import Kind

__all__ = [
    "FOREVER",
    "INT64_MAX",
    "INT64_MIN",
    "NEVER",
    "address",
    "address_number",
    "address_version",
    "community_id",
    "mac",
    "parse_time",
    "seconds",
    "show",
    "time",
]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

NEVER = INT64_MIN
"""The time before all times; as a bound: nothing is known yet, because nothing lies below it."""

FOREVER = INT64_MAX
"""The time after all times; as a promise: nothing more will come."""

_ADDRESS_BITS = 128
_MAPPED = 0xFFFF  # leading 96 bits of an IPv4-mapped IPv6 address

_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{3}|\d{6}|\d{9}))?Z", re.ASCII)


def time(ns: int) -> str:
    """The time in RFC 3339, in UTC, with 0, 3, 6 or 9 digits of fraction as needed."""
    whole, nanos = divmod(ns, _NS)
    text = (_EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}{_fraction(nanos)}Z"


def _fraction(nanos: int) -> str:
    if not nanos:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    return f".{nanos // 1000:06d}" if nanos % 1000 == 0 else f".{nanos:09d}"


def parse_time(text: str) -> int:
    """Parse a time that `time` has written to ns since 1970; ValueError for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 time in UTC with 0, 3, 6 or 9 digits of fraction")
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    ns = (moment - _EPOCH) // timedelta(seconds=1) * _NS + int((match[2] or "").ljust(9, "0"))
    if not INT64_MIN <= ns <= INT64_MAX:
        raise ValueError(f"{text!r} is outside of 1677-2262, the range of nanoseconds")
    return ns


def seconds(ns: int) -> str:
    """A duration as an exact number of seconds: an integer if it is whole, else without trailing zeros."""
    whole, nanos = divmod(abs(ns), _NS)
    sign = "-" if ns < 0 else ""
    return f"{sign}{whole}.{nanos:09d}".rstrip("0").rstrip(".")


def address_number(value: IPv4Address | IPv6Address) -> int:
    """An address as one number, its version above its bits: IPv4 before IPv6, each in numerical order."""
    return value.version << _ADDRESS_BITS | int(value)


def address_version(number: int) -> int:
    return number >> _ADDRESS_BITS


def address(number: int) -> str:
    """The usual text of an address: IPv4 dotted, IPv6 by RFC 5952, IPv4-mapped ones with a dotted end."""
    version, bits = divmod(number, 1 << _ADDRESS_BITS)
    if version == 4:
        return str(IPv4Address(bits))
    if bits >> 32 == _MAPPED:
        return f"::ffff:{IPv4Address(bits & 0xFFFF_FFFF)}"
    return str(IPv6Address(bits))


def mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def community_id(number: int) -> str:
    """A Community ID of version 1."""
    return f"1:{b64encode(number.to_bytes(20, 'big')).decode()}"


def show(kind: Kind, value: int) -> int | str:
    """An integer attribute for people: a time as RFC 3339, anything else as the number."""
    return time(value) if kind is Kind.TIME else value
