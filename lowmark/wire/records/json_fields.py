"""Canonical JSON, and typed reading of it, for control records and similar ones.

Canonical means sorted keys, no spaces, unescaped UTF-8. Reading is strict: a missing, unknown or ill-typed field is
refused, so a new field needs a new wire version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

from lowmark.wire.records.record import BadReason, Refused
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN, parse_time

__all__ = ["Fields", "Json", "canonical", "integer", "parse", "text"]

T = TypeVar("T")

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def parse(data: bytes) -> Json:
    """The JSON value of these bytes; raises Refused if there is none."""
    try:
        value: Json = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(BadReason.VALUE, f"not JSON: {error}") from None
    return value


def integer(value: Json, what: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(BadReason.VALUE, f"{what} is {_short(value)}, not an integer from {low} to {high}")
    return value


def text(value: Json, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(BadReason.VALUE, f"{what} is {_short(value)}, not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused(BadReason.VALUE, f"{what} holds half a surrogate pair") from None
    return value


def _short(value: Json) -> str:
    shown = ascii(value) if not isinstance(value, int) else "a number out of range"
    return shown if len(shown) <= 60 else shown[:60] + "…"


class Fields:
    """The fields of one JSON object. Each is read once; `end` refuses fields that are left over."""

    __slots__ = ("_left",)

    def __init__(self, value: Json) -> None:
        if not isinstance(value, Mapping):
            raise Refused(BadReason.VALUE, f"the value is {_short(value)}, not a JSON object")
        self._left = dict(value)

    def take(self, name: str) -> Json:
        if name not in self._left:
            raise Refused(BadReason.VALUE, f"field {name} is missing")
        return self._left.pop(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def names(self) -> tuple[str, ...]:
        return tuple(self._left)

    def end(self) -> None:
        if self._left:
            raise Refused(BadReason.VALUE, f"unknown fields {_short(sorted(self._left))}")

    def integer(self, name: str) -> int:
        return integer(self.take(name), name)

    def natural(self, name: str) -> int:
        return integer(self.take(name), name, 0)

    def text(self, name: str) -> str:
        return text(self.take(name), name)

    def optional_text(self, name: str) -> str | None:
        value = self.take(name)
        return None if value is None else text(value, name)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise Refused(BadReason.VALUE, f"{name} is {_short(value)}, not true or false")
        return value

    def array(self, name: str) -> Sequence[Json]:
        value = self.take(name)
        if not isinstance(value, list):
            raise Refused(BadReason.VALUE, f"{name} is {_short(value)}, not an array")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(text(item, name) for item in self.array(name))

    def attribute(self, name: str, kind: Kind) -> int | None:
        """An integer attribute in the form of `values.show`: a time as RFC 3339."""
        value = self.take(name)
        if value is None:
            return None
        if kind is not Kind.TIME:
            return integer(value, name)
        try:
            return parse_time(text(value, name))
        except ValueError as error:
            raise Refused(BadReason.VALUE, f"{name}: {error}") from None

    def choice(self, name: str, choices: Mapping[str, T]) -> T:
        value = self.text(name)
        if value not in choices:
            raise Refused(BadReason.VALUE, f"{name} is {_short(value)}, none of {', '.join(choices)}")
        return choices[value]
