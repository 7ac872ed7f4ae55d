"""The types of values and rows that pass between stages.

A row has two forms. Between processes it is a row of an Arrow batch. In kernels, tables and state it is a run of 64-bit
*words*: word 0 is the null mask (bit i set: column i is null, its words are 0), then the columns in order, one word
each, three for an address and for a Community ID. The same `Schema` defines both forms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate

__all__ = ["MOST_COLUMNS", "Column", "Kind", "Schema", "TooManyColumns"]

MOST_COLUMNS = 64
"""Most columns of a row: its null mask has this many bits."""


class Kind(Enum):
    """The kind of value in a column; the enum value is its name for people and on the wire."""

    INT = "int"  # int64
    FLOAT = "float"  # IEEE 754 double; its bits are the word
    BOOL = "bool"  # 0 or 1
    TIME = "time"  # int64 ns since 1970-01-01T00:00:00Z
    DURATION = "duration"  # int64 ns
    IP = "ip"  # the version (4 or 6), then the address as a 128-bit number, high word first: so words order addresses
    MAC = "mac"  # 48-bit number
    COMMUNITY_ID = "community_id"  # 160-bit number, a SHA-1; high word first
    STR = "str"  # index into the schema's sorted `strings`: all of a query's strings are known when it is planned

    def __init__(self, name: str) -> None:
        self.words = 3 if name in ("ip", "community_id") else 1


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    nullable: bool = False


class TooManyColumns(ValueError):
    """A row would have `count` columns, more than the limit."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} columns: a row's null mask has room for {MOST_COLUMNS}")
        self.count = count


@dataclass(frozen=True)
class Schema:
    """Columns in order, and the strings that its STR columns index: sorted, so that codes compare like strings."""

    columns: tuple[Column, ...]
    strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.columns) > MOST_COLUMNS:
            raise TooManyColumns(len(self.columns))
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError(f"two columns of one name in {names}")
        if list(self.strings) != sorted(set(self.strings)):
            raise ValueError("strings must be sorted and distinct")

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def words(self) -> int:
        """Words of one row, with the null mask."""
        return 1 + sum(column.kind.words for column in self.columns)

    def index(self, name: str) -> int:
        return self._places[name][0]

    def column(self, name: str) -> Column:
        return self.columns[self.index(name)]

    def offset(self, name: str) -> int:
        """The position of a column's first word in a row."""
        return self._places[name][1]

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The number and the first word of each column."""
        starts = accumulate((column.kind.words for column in self.columns[:-1]), initial=1)
        return dict(zip(self.names, enumerate(starts), strict=False))  # no columns: one start

    def select(self, names: tuple[str, ...]) -> Schema:
        return Schema(tuple(self.column(name) for name in names), self.strings)

    def renamed(self, names: Mapping[str, str]) -> Schema:
        """The same columns under these names; those not in `names` keep theirs."""
        if not names:
            return self
        return Schema(tuple(replace(column, name=names.get(column.name, column.name)) for column in self), self.strings)

    def to_json(self) -> str:
        """The canonical text of this schema: equal schemas have equal texts on every host."""
        columns = [[column.name, column.kind.value, int(column.nullable)] for column in self.columns]
        return json.dumps({"columns": columns, "strings": self.strings}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """The inverse of `to_json`; ValueError for any other text."""
        try:
            parsed = json.loads(text)
            columns = tuple(Column(name, Kind(kind), bool(nullable)) for name, kind, nullable in parsed["columns"])
            schema = cls(columns, tuple(parsed["strings"]))
            if not all(isinstance(text, str) for text in (*schema.names, *schema.strings)):
                raise ValueError("names and strings are texts")
            canonical = schema.to_json()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a schema: {error}") from None
        if canonical != text:
            raise ValueError("not a schema in its canonical form")
        return schema
