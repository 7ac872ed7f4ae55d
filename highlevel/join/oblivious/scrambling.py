"""Measures how far out of order the keys of one input come (Wu, definition 2.2): a piece of state."""

from __future__ import annotations

import json
import struct

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space

__all__ = ["Scrambling", "pack", "scrambling_space", "unpack"]

Ints = npt.NDArray[np.int64]

_PERIOD = 1 << 16
"""Tuples in a period. The scrambling factor is the greatest one seen in this period and the one before."""

_REMEMBERED = 1 << 12
"""Fewest tuples among which the first one with a greater key is searched. The scrambling of a tuple that comes even
later is unknown, but it raises the factor so far that the next such tuple is measured."""

_SPARE = 256
"""Tuples that may be remembered beyond need, so that not every batch copies the arrays."""

_SIZE = struct.Struct(">II")


class Scrambling:
    """`arrived`: tuples so far. `given`: the scrambling factor, if it is known beforehand."""

    def __init__(self, given: int | None = None) -> None:
        self.given = given
        self.arrived = 0
        self._most = [0, 0]  # in the previous period and in this one
        self._in_period = 0
        # Keys and places of the tuples whose key was greater than all before. The first tuple of all with a key not
        # smaller than a given one is always among them.
        self._highs: Ints = np.empty(0, np.int64)
        self._places: Ints = np.empty(0, np.int64)

    @property
    def factor(self) -> int:
        """The scrambling factor k: no tuple came more than k places after the first whose key is not smaller."""
        return max(self._most) if self.given is None else self.given

    @property
    def greatest(self) -> int | None:
        """The greatest key so far."""
        return int(self._highs[-1]) if len(self._highs) else None

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self._highs.nbytes + self._places.nbytes

    def observe(self, keys: Ints) -> None:
        """Take keys in order of arrival."""
        if not len(keys):
            return
        places = np.arange(self.arrived, self.arrived + len(keys))
        new = np.concatenate(([True], keys[1:] > np.maximum.accumulate(keys)[:-1]))
        if len(self._highs):
            new &= keys > self._highs[-1]
        self._highs = np.concatenate((self._highs, keys[new]))
        self._places = np.concatenate((self._places, places[new]))
        self._note(places - self._places[np.searchsorted(self._highs, keys)])
        self.arrived += len(keys)
        horizon = self.arrived - max(4 * self.factor, _REMEMBERED)
        if self._places[0] < horizon - _SPARE:
            old = min(int(np.searchsorted(self._places, horizon)), len(self._highs) - 1)
            self._highs, self._places = self._highs[old:].copy(), self._places[old:].copy()

    def _note(self, late: Ints) -> None:
        self._in_period += len(late)
        self._most[1] = max(self._most[1], int(late.max()))
        if self._in_period >= _PERIOD:
            self._in_period = 0
            self._most = [self._most[1], 0]

    def encode(self) -> bytes:
        return pack([self.given, self.arrived, self._most, self._in_period], np.array([self._highs, self._places]))

    @classmethod
    def decode(cls, data: bytes) -> Scrambling:
        (given, arrived, most, in_period), arrays = unpack(data)
        made = cls(given)
        made.arrived, made._most, made._in_period = arrived, most, in_period
        made._highs, made._places = arrays.reshape(2, -1)
        return made


def scrambling_space(name: str) -> Space[Scrambling]:
    return Space(name, Scrambling.encode, Scrambling.decode)


def pack(values: list[object], numbers: Ints) -> bytes:
    """Encode values that JSON can express and an array of numbers."""
    head, body = json.dumps(values).encode(), numbers.astype("<i8", copy=False).tobytes()
    return _SIZE.pack(len(head), len(body)) + head + body


def unpack(data: bytes) -> tuple[list, Ints]:  # type: ignore[type-arg]  # of what was packed
    head, body = _SIZE.unpack_from(data)
    at = _SIZE.size + head
    return json.loads(data[_SIZE.size : at]), np.frombuffer(data[at : at + body], "<i8").astype(np.int64)
