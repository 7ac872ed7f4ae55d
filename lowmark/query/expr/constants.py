"""Texts and numbers in a query that stand for values of another kind: addresses, MACs, times."""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from lowmark.query.expr.constant_sets import KeyRange
from lowmark.query.expr.expressions import Literal
from lowmark.query.parse import syntax as s
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN, address_number

__all__ = [
    "NS", "address", "nanoseconds", "number", "parse_address", "parse_community_id", "parse_mac", "parse_prefix",
    "parse_quoted", "parse_time", "prefix_mask", "prefix_span",
]  # fmt: skip

NS = 1_000_000_000
"""Nanoseconds in a second."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_COMMUNITY_ID = re.compile(r"1:[A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]=", re.ASCII)  # the last digit holds four bits
_MAC = re.compile(r"[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}", re.ASCII | re.IGNORECASE)


def address(value: IPv4Address | IPv6Address) -> Literal:
    return Literal(address_number(value), Kind.IP)


def parse_address(text: str) -> Literal:
    """The address that a text is; ValueError if it is none."""
    try:
        return address(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no address") from None


def parse_prefix(text: str) -> IPv4Network | IPv6Network:
    """The prefix that a text is, ignoring host bits; ValueError if it is none."""
    return ip_network(text, strict=False)


def parse_mac(text: str) -> Literal:
    """The MAC address that a text is; ValueError if it is none."""
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is no MAC address")
    return Literal(int(text.replace(":", "").replace("-", ""), 16), Kind.MAC)


def parse_community_id(text: str) -> Literal:
    """The Community ID of version 1 that a text is; ValueError if it is none."""
    if not _COMMUNITY_ID.fullmatch(text):
        raise ValueError(f"{text!r} is no Community ID of version 1")
    return Literal(int.from_bytes(b64decode(text[2:])), Kind.COMMUNITY_ID)


def parse_time(text: str) -> Literal:
    """A time in RFC 3339 format, in any zone, with up to 9 digits of fraction. ValueError for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 time")
    date, clock, fraction, sign, hours, minutes = match.groups()
    moment = datetime.fromisoformat(f"{date}T{clock}+00:00")
    offset = 0
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError(f"{text!r} has a zone that does not exist")
        offset = (int(hours) * 3600 + int(minutes) * 60) * (1 if sign == "+" else -1)
    ns = ((moment - _EPOCH) // timedelta(seconds=1) - offset) * NS + int((fraction or "").ljust(9, "0"))
    if not INT64_MIN <= ns <= INT64_MAX:
        raise ValueError(f"{text!r} is outside of 1677-2262, the range of nanoseconds")
    return Literal(ns, Kind.TIME)


def parse_quoted(name: s.Identifier) -> s.Literal | None:
    """The address, prefix, MAC address or time that `"…"` stands for if it names nothing; else None."""
    text, span = name.text, name.span
    with suppress(ValueError):
        return s.AddressLiteral(ip_address(text), span=span)
    with suppress(ValueError):
        return s.PrefixLiteral(parse_prefix(text), span=span)
    with suppress(ValueError):
        return s.MacLiteral(int(parse_mac(text).value or 0), span=span)
    with suppress(ValueError):
        return s.TimeLiteral(int(parse_time(text).value or 0), span=span)
    return None


def number(node: s.Expression) -> int | Decimal | None:
    """The exact value of a literal number, including its signs; None for any other expression."""
    match node:
        case s.IntegerLiteral(value=value) | s.DecimalLiteral(value=value):
            return value
        case s.Unary(operator=s.UnaryOperator.MINUS, operand=operand):
            magnitude = number(operand)
            return None if magnitude is None else -magnitude
        case s.Unary(operator=s.UnaryOperator.PLUS, operand=operand):
            return number(operand)
    return None


def nanoseconds(seconds: int | Decimal) -> int:
    """The nanoseconds; ValueError if they are not a whole number or out of range."""
    ns = Fraction(seconds) * NS
    if ns.denominator != 1:
        raise ValueError("this is finer than a nanosecond")
    if not INT64_MIN <= ns <= INT64_MAX:
        raise ValueError("this is outside of 1677-2262, the range of nanoseconds")
    return int(ns)


def prefix_span(prefix: IPv4Network | IPv6Network) -> KeyRange:
    """The range of a prefix's addresses, which have its version."""
    first = address_number(prefix.network_address)
    return first, first + (1 << prefix.max_prefixlen - prefix.prefixlen) - 1


def prefix_mask(version: int, length: int) -> int:
    """The bits that prefixes of this length compare, in an address as a number: its version and its first bits."""
    return -(1 << (32 if version == 4 else 128) - length) & (1 << 64 * Kind.IP.words) - 1
