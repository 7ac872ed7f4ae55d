"""Sets of constants, as IN uses them: disjoint ranges in order, searched by binary search.

Lists and prefixes share one form: a constant is a range of one value, a prefix a range of many. The question is only
whether any prefix matches, so the longest match does not matter.

A value's position is its *key*, which is ordered like its int64 words compared one after the other: a number of several
words is its own key, unsigned; a double's key is its bits, with one zero; any other value is its own key.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.wire.rows.schema import Kind

__all__ = ["KeyRange", "Ranges", "blocks", "key_of", "value_of"]

KeyRange = tuple[int, int]
"""The keys of the first and the last value of a range."""

_SIGN = 1 << 63


@dataclass(frozen=True, slots=True, repr=False)
class Ranges:
    """A set of ranges; equal sets compare equal. `words`: for each range the words of its first key, then of its last,
    as little-endian int64. If keys have several words, each has its highest bit flipped, so signed comparison orders
    it."""

    kind: Kind
    words: bytes

    nullable = False

    @classmethod
    def of(cls, kind: Kind, spans: Iterable[KeyRange]) -> Ranges:
        """The union of ranges in any order, which may overlap."""
        merged: list[int] = []
        for first, last in sorted(spans):
            if merged and first <= merged[-1] + 1:
                merged[-1] = max(merged[-1], last)
            else:
                merged += (first, last)
        if kind.words == 1:
            return cls(kind, np.array(merged, "<i8").tobytes())
        size = 8 * kind.words
        unsigned = np.frombuffer(b"".join(key.to_bytes(size) for key in merged), ">u8")
        return cls(kind, (unsigned ^ np.uint64(_SIGN)).astype("<u8").tobytes())

    @property
    def matrix(self) -> npt.NDArray[np.int64]:
        """The words as a matrix, one row for each range."""
        return np.frombuffer(self.words, "<i8").reshape(-1, 2 * self.kind.words)

    @property
    def spans(self) -> Iterator[KeyRange]:
        if self.kind.words == 1:
            keys = iter(self.matrix.ravel().tolist())
        else:
            size = 8 * self.kind.words
            unsigned = (np.frombuffer(self.words, "<u8") ^ np.uint64(_SIGN)).astype(">u8").tobytes()
            keys = (int.from_bytes(unsigned[at : at + size]) for at in range(0, len(unsigned), size))
        return zip(keys, keys, strict=True)

    @property
    def only(self) -> int | float | None:
        """The only value of a set of one value; None for other sets."""
        first, last = next(self.spans) if len(self) == 1 else (0, 1)
        return value_of(self.kind, first) if first == last else None

    @property
    def digest(self) -> str:
        """A digest that differs for different sets."""
        return hashlib.sha256(self.words).hexdigest()

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self.words) // (16 * self.kind.words)

    def __contains__(self, value: int | float) -> bool:
        key = key_of(self.kind, value)
        return key is not None and any(first <= key <= last for first, last in self.spans)

    def __repr__(self) -> str:
        return f"Ranges({self.kind}, {len(self)}, {self.digest})"


def key_of(kind: Kind, value: int | float) -> int | None:
    """The key of a value; None for NaN, which equals nothing."""
    if kind is not Kind.FLOAT:
        return int(value)
    if math.isnan(value):
        return None
    return int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])


def blocks(span: KeyRange) -> Iterator[KeyRange]:
    """The smallest number of prefixes that make up a range: each size is a power of two that divides the start."""
    first, last = span
    while first <= last:
        room = (last - first + 1).bit_length() - 1
        size = 1 << (min(room, (first & -first).bit_length() - 1) if first else room)
        yield first, first + size - 1
        first += size


def value_of(kind: Kind, key: int) -> int | float:
    return float(struct.unpack("<d", struct.pack("<q", key))[0]) if kind is Kind.FLOAT else key
