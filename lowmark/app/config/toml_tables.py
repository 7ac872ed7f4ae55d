"""Reads tables of a configuration file into frozen dataclasses. An unknown key is an error naming the valid ones."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

__all__ = ["ConfigError", "Toml", "dotted", "expand", "read_table"]

Toml = Mapping[str, object]

T = TypeVar("T")

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


class ConfigError(Exception):
    """The configuration is wrong: the message says where, what, and what would be right."""

    exit_code = 2


def expand(text: str, where: str) -> str:
    """Replaces `${NAME}` by the environment variable; `${HOSTNAME}` is the host's name even if it is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        found = os.environ.get(name) or (os.uname().nodename if name == "HOSTNAME" else None)
        if found is None:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return found

    return _VARIABLE.sub(value, text)


def read_table(kind: type[T], table: object, where: str, skip: frozenset[str] = frozenset()) -> T:
    """Makes an instance of the dataclass from a table. `where`: the table's place in the file, as people write it.
    Fields in `skip` are set elsewhere; here they are unknown keys."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {table!r} is not a table")
    hints = typing.get_type_hints(kind)
    members = {field.name: field for field in dataclasses.fields(kind) if field.name not in skip}  # type: ignore[arg-type]  # T is a dataclass
    for key in table:
        if key not in members:
            raise ConfigError(_unknown(key, where, list(members)))
    given = {key: _value(hints[key], value, f"{where}.{key}") for key, value in table.items()}
    for name, field in members.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in given:
            raise ConfigError(f"{where}: {name} is missing")
    try:
        return kind(**given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def dotted(table: object, where: str) -> dict[str, str]:
    """The settings of a table whose names have dots, which TOML takes for tables in tables unless they are quoted."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {table!r} is not a table")
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{below}": text for below, text in dotted(value, f"{where}.{key}").items()}
        elif isinstance(value, bool):
            found[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[key] = str(value)
        else:
            raise ConfigError(f"{where}.{key}: {value!r} is not text, a number, true or false")
    return found


def _unknown(key: str, where: str, valid: list[str]) -> str:
    close = difflib.get_close_matches(key, valid, 1)
    guess = f" Did you mean {close[0]}?" if close else ""
    return f"{where}: unknown key {key!r}.{guess} Valid here: {', '.join(valid)}"


def _value(hint: object, value: object, where: str) -> object:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(next(arg for arg in args if arg is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: {value!r} is not a list")
        return tuple(_value(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {value!r} is not a table")
        return {expand(key, f"{where}.{key}"): _value(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if not isinstance(hint, type):
        raise TypeError(f"{where}: no rule for {hint}")
    return _single(hint, value, where)


def _single(hint: type, value: object, where: str) -> object:
    if dataclasses.is_dataclass(hint):
        return read_table(hint, value, where)
    if isinstance(value, str):
        value = expand(value, where)
    if issubclass(hint, Enum):
        return _member(hint, value, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: {value!r} is not {_NAMES.get(hint, hint.__name__)}")
    return value


def _member(kind: type[Enum], value: object, where: str) -> Enum:
    for member in kind:
        if member.value == value:
            return member
    valid = ", ".join(str(member.value) for member in kind)
    raise ConfigError(f"{where}: {value!r} is not one of {valid}")
