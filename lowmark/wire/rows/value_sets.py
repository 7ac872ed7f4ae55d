"""Sets of values of one column, as words: what a promise of values names (Ding 2004).

A value of any kind takes three words, high word first; integers are sign-extended. So a set needs no schema. The last
`kind.words` words are the value as it stands in a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.words import Words

__all__ = ["ValueSet"]

_WORDS = 3
_BYTES = 8 * _WORDS


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """`wide`: three words for each value, in the order given. Two sets are equal if they have equal values in the same
    order."""

    wide: Words

    @classmethod
    def of(cls, values: Iterable[int]) -> ValueSet:
        """From canonical integers of the column's kind: an address is its version · 2^128 + its number."""
        data = b"".join(value.to_bytes(_BYTES, "big", signed=True) for value in values)
        return cls(np.frombuffer(data, ">u8").reshape(-1, _WORDS).astype(np.uint64))

    @classmethod
    def of_words(cls, words: Words) -> ValueSet:
        """From values as they stand in rows: one row of `kind.words` words each."""
        wide = np.zeros((len(words), _WORDS), np.uint64)
        wide[:, _WORDS - words.shape[1] :] = words
        if words.shape[1] == 1:
            wide[:, :-1] = (words.view(np.int64) >> np.int64(63)).view(np.uint64)
        return cls(wide)

    def words(self, kind: Kind) -> Words:
        """The values as they stand in rows of this kind."""
        return np.ascontiguousarray(self.wide[:, _WORDS - kind.words :])

    def integers(self) -> list[int]:
        data = self.wide.astype(">u8").tobytes()
        return [int.from_bytes(data[at : at + _BYTES], "big", signed=True) for at in range(0, len(data), _BYTES)]

    def __len__(self) -> int:
        return len(self.wide)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueSet) and np.array_equal(self.wide, other.wide)

    def __hash__(self) -> int:
        return hash(self.wide.tobytes())
