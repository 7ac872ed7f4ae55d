"""Sets of values of a column, or of several columns together, as words: what a promise of values names (Ding 2004).

A value of any kind takes three words, high word first; integers are sign-extended. So a set needs no schema. The last
`kind.words` words are the value as it stands in a row. A value of several columns is those of each, one after the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.words import Words

__all__ = ["ValueSet"]

_WORDS = 3
_BYTES = 8 * _WORDS


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """`wide`: for each value, in the order given, three words for each column. Two sets are equal if they have equal
    values in the same order."""

    wide: Words

    @classmethod
    def of(cls, values: Iterable[int]) -> ValueSet:
        """A set of canonical integers of the column's kind; an address is its version · 2^128 + its number."""
        return cls.of_tuples(((value,) for value in values), 1)

    @classmethod
    def of_tuples(cls, values: Iterable[Sequence[int]], columns: int) -> ValueSet:
        """A set of values of several columns; each value is a tuple of that length."""
        data = b"".join(part.to_bytes(_BYTES, "big", signed=True) for value in values for part in value)
        return cls(np.frombuffer(data, ">u8").reshape(-1, columns * _WORDS).astype(np.uint64))

    @classmethod
    def of_words(cls, *columns: Words) -> ValueSet:
        """A set of values in the form of rows: each column has `kind.words` words for each value."""
        wide = np.zeros((len(columns[0]), _WORDS * len(columns)), np.uint64)
        for at, words in enumerate(columns):
            column = wide[:, _WORDS * at : _WORDS * (at + 1)]
            column[:, _WORDS - words.shape[1] :] = words
            if words.shape[1] == 1:
                column[:, :-1] = (words.view(np.int64) >> np.int64(63)).view(np.uint64)
        return cls(wide)

    @property
    def columns(self) -> int:
        return int(self.wide.shape[1]) // _WORDS

    def words(self, *kinds: Kind) -> Words:
        """The values in the form of rows: columns of these kinds, one after the other."""
        ends = range(_WORDS, self.wide.shape[1] + 1, _WORDS)
        parts = [self.wide[:, end - kind.words : end] for end, kind in zip(ends, kinds, strict=True)]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def integers(self) -> list[int]:
        """The values of a set of one column, as `of` takes them."""
        return [value for (value,) in self.tuples()]

    def tuples(self) -> list[tuple[int, ...]]:
        data, width = self.wide.astype(">u8").tobytes(), self.columns
        parts = [int.from_bytes(data[at : at + _BYTES], "big", signed=True) for at in range(0, len(data), _BYTES)]
        return [tuple(parts[at : at + width]) for at in range(0, len(parts), width)]

    def __len__(self) -> int:
        return len(self.wide)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueSet) and np.array_equal(self.wide, other.wide)

    def __hash__(self) -> int:
        return hash(self.wide.tobytes())
