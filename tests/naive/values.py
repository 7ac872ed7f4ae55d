"""The values of the naive evaluator: null is None, numbers are Python's; times, MACs … have types of their own."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address

NS = 10**9


@dataclass(frozen=True, order=True)
class Time:
    ns: int  # since 1970


@dataclass(frozen=True, order=True)
class Duration:
    ns: int


@dataclass(frozen=True, order=True)
class Mac:
    number: int


@dataclass(frozen=True, order=True)
class CommunityId:
    digest: bytes


Address = IPv4Address | IPv6Address
Value = None | bool | int | float | str | Time | Duration | Mac | CommunityId | Address


def mac_of_text(text: str) -> Mac:
    return Mac(int(text.replace(":", "").replace("-", ""), 16))


def community_id_of_text(text: str) -> CommunityId:
    return CommunityId(base64.b64decode(text.removeprefix("1:")))


def time_of_text(text: str) -> Time:
    """RFC 3339."""
    match = re.fullmatch(r"([^.]*?)(?:\.(\d{1,9}))?(Z|z|[+-]\d\d:\d\d)", text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    seconds = datetime.fromisoformat(match[1].replace(" ", "T").upper() + match[3].upper().replace("Z", "+00:00"))
    return Time(round(seconds.timestamp()) * NS + int((match[2] or "").ljust(9, "0")))


def order(value: Value) -> tuple[int, int | float | str]:
    """A key that sorts values of one kind: IPv4 before IPv6, each numerically."""
    match value:
        case None:
            return 0, 0
        case IPv4Address():
            return 4, int(value)
        case IPv6Address():
            return 6, int(value)
        case Time() | Duration():
            return 1, value.ns
        case Mac():
            return 1, value.number
        case CommunityId():
            return 1, int.from_bytes(value.digest)
    return 1, value


def shown(value: Value) -> bool | int | float | str | None:
    """A value as a result row has it, before it is written as JSON."""
    match value:
        case Time():
            return time_text(value)
        case Duration():
            seconds = Fraction(value.ns, NS)
            return int(seconds) if seconds.denominator == 1 else float(seconds)
        case Mac():
            return ":".join(f"{byte:02x}" for byte in value.number.to_bytes(6, "big"))
        case CommunityId():
            return f"1:{base64.b64encode(value.digest).decode()}"
        case IPv6Address() if value.ipv4_mapped is not None:  # which older Pythons do not write with its dotted end
            return f"::ffff:{value.ipv4_mapped}"
        case IPv4Address() | IPv6Address():
            return str(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return None
    return value


def time_text(time: Time) -> str:
    seconds, fraction = divmod(time.ns, NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z" if digits else f"{text}Z"
