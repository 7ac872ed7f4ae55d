"""What the inputs of a window-oblivious join are like, from their keys alone: a piece of state (Wu, section 2).

A tuple's physical index is its place in order of arrival, its virtual index its place in order of keys. With scrambling
factor k they differ by k at most (theorem 2.1): once n tuples have come, the first n - k in order of keys are settled,
and each later tuple has a greater key than they.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space
from lowmark.query.optimize.buffer_model import Traits

__all__ = ["InputMonitor", "Monitor", "monitor_space"]

Ints = npt.NDArray[np.int64]

_PERIOD = 1 << 16
"""Tuples over which a scrambling factor is the greatest seen: in this period and the one before."""

_LEARNING = 2
"""Nothing is settled before an input has brought so many times its scrambling factor in tuples: until then that factor
grows with what is seen."""

_LEAST = 16
"""Nor before so many tuples."""

_ROUND = 256
"""Tuples of all inputs between two counts of their rates."""

_ROUNDS = 4
"""Rounds over which rates are counted."""


class InputMonitor:
    """One input. `arrived`: its tuples; `multiplicity`: the most that had one key. `given`: the scrambling factor, if
    it is known beforehand."""

    def __init__(self, given: int | None = None) -> None:
        self.given = given
        self.arrived = 0
        self.multiplicity = 1
        self._most = [0, 0]  # the scrambling seen in the period before, and in this one
        self._in_period = 0
        # The tuples that had a greater key than all before them: keys and physical indexes. The first of them with a
        # key not smaller than another's is the first tuple of which that is true.
        self._highs: Ints = np.empty(0, np.int64)
        self._high_at: Ints = np.empty(0, np.int64)
        self._keys: Ints = np.empty(0, np.int64)  # in order; of `_gone` tuples before them the keys are forgotten
        self._gone = 0
        self._floor: int | None = None  # the greatest key that was forgotten

    @property
    def scrambling(self) -> int:
        return max(self._most) if self.given is None else self.given

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self._keys.nbytes + self._highs.nbytes + self._high_at.nbytes

    @property
    def greatest(self) -> int | None:
        """The greatest key so far."""
        return int(self._highs[-1]) if len(self._highs) else None

    def observe(self, keys: Ints) -> None:
        """Take keys in order of arrival."""
        if not len(keys):
            return
        places = np.arange(self.arrived, self.arrived + len(keys))
        before = np.maximum.accumulate(keys)
        new = np.concatenate(([True], keys[1:] > before[:-1]))
        if len(self._highs):
            new &= keys > self._highs[-1]
        self._highs = np.concatenate((self._highs, keys[new]))
        self._high_at = np.concatenate((self._high_at, places[new]))
        late = places - self._high_at[np.searchsorted(self._highs, keys)]
        self._note(late)
        self.arrived += len(keys)
        self._insert(np.sort(keys))
        horizon = self.arrived - max(4 * self.scrambling, _PERIOD)
        if len(self._high_at) and self._high_at[0] < horizon - _ROUND:
            old = min(int(np.searchsorted(self._high_at, horizon)), len(self._highs) - 1)
            self._highs, self._high_at = self._highs[old:].copy(), self._high_at[old:].copy()

    def settled(self) -> int | None:
        """No later tuple has this key or a smaller one, if the scrambling factor holds. None: nothing is known."""
        k = self.scrambling
        if self.given is None and self.arrived < max(_LEARNING * k, _LEAST):
            return None
        place = self.arrived - k - self._gone
        if place > 0:
            return int(self._keys[place - 1])
        return self._floor

    def through(self, key: int) -> int:
        """The virtual index of the last tuple whose key is at most this one. Beyond the greatest key so far it is
        reckoned from the density of keys: the input is behind, and none of its tuples has such a key."""
        if not len(self._keys):
            return self._gone
        last = int(self._keys[-1])
        if key <= last:
            return self._gone + int(np.searchsorted(self._keys, key, "right"))
        spread = last - int(self._keys[0])
        return self.arrived + ((key - last) * (len(self._keys) - 1) // spread if spread else 0)

    def forget(self, through: int) -> None:
        """Keys up to this one are not asked for any more."""
        gone = int(np.searchsorted(self._keys, through, "right"))
        if gone > len(self._keys) // 2:
            self._floor = int(self._keys[gone - 1])
            self._gone += gone
            self._keys = self._keys[gone:].copy()

    def _note(self, late: Ints) -> None:
        self._in_period += len(late)
        self._most[1] = max(self._most[1], int(late.max()))
        if self._in_period >= _PERIOD:
            self._in_period = 0
            self._most = [self._most[1], 0]

    def _insert(self, keys: Ints) -> None:
        at = np.searchsorted(self._keys, keys, "right")
        self._keys = np.insert(self._keys, at, keys)
        most = np.searchsorted(self._keys, keys, "right") - np.searchsorted(self._keys, keys, "left")
        self.multiplicity = max(self.multiplicity, int(most.max()))

    def encode(self) -> bytes:
        head = json.dumps(
            [self.given, self.arrived, self.multiplicity, self._most, self._in_period, self._gone, self._floor,
             len(self._highs), len(self._keys)]
        ).encode()  # fmt: skip
        arrays = b"".join(part.astype("<i8", copy=False).tobytes() for part in self._arrays())
        return struct.pack(">I", len(head)) + head + arrays

    def _arrays(self) -> tuple[Ints, Ints, Ints]:
        return self._highs, self._high_at, self._keys

    @classmethod
    def decode(cls, data: bytes) -> tuple[InputMonitor, int]:
        """The monitor, and how many of the bytes it took."""
        (size,) = struct.unpack_from(">I", data)
        given, arrived, multiplicity, most, in_period, gone, floor, highs, keys = json.loads(data[4 : 4 + size])
        end = 4 + size + 8 * (2 * highs + keys)
        arrays = np.frombuffer(data[4 + size : end], "<i8").astype(np.int64)
        made = cls(given)
        made.arrived, made.multiplicity, made._most, made._in_period = arrived, multiplicity, most, in_period
        made._gone, made._floor = gone, floor
        made._highs, made._high_at, made._keys = np.split(arrays, [highs, 2 * highs])
        return made, end


class Monitor:
    """All inputs of one join."""

    def __init__(self, given: Sequence[int | None]) -> None:
        """`given`: for each input its scrambling factor, or None if it is to be found."""
        self.inputs = [InputMonitor(k) for k in given]
        self._counts = [(0,) * len(given)]  # tuples of each input, now and then

    def observe(self, port: int, keys: Ints) -> None:
        self.inputs[port].observe(keys)
        arrived = tuple(one.arrived for one in self.inputs)
        if sum(arrived) - sum(self._counts[-1]) >= _ROUND:
            self._counts = [*self._counts[-_ROUNDS:], arrived]

    def rates(self) -> tuple[int, ...]:
        """Tuples of each input in the same time, the last few rounds; at least one."""
        return tuple(max(1, one.arrived - before) for one, before in zip(self.inputs, self._counts[0], strict=True))

    def traits(self) -> tuple[Traits, ...]:
        inputs = zip(self.inputs, self.rates(), strict=True)
        return tuple(Traits(rate, one.scrambling, one.multiplicity) for one, rate in inputs)

    def buffers(self) -> tuple[int, ...]:
        """Equations 7 and 8, in tuples of each input. The rate in r_i k_j / r_j is counted over just the time that the
        equation speaks of, in which the last k_j tuples of j came: with N_i tuples of i now and N' at its begin, it is
        N_i - N', and the lag at its begin is N' - VI; their sum is N_i - VI."""
        settled = [one.settled() for one in self.inputs]
        return tuple(
            max(self._need(at, key) for of, key in enumerate(settled) if of != at) for at in range(len(settled))
        )

    def lags(self) -> tuple[tuple[int, ...], ...]:
        """Definition 2.6, from what has come: what an input has to keep for another one beyond what scrambling asks."""
        settled, traits = [one.settled() for one in self.inputs], self.traits()

        def lag(at: int, of: int) -> int:
            key, mine, other = settled[of], self.inputs[at], traits[of]
            if key is None or at == of:
                return 0
            return mine.arrived - mine.through(key) - round(traits[at].rate * other.scrambling / other.rate)

        ports = range(len(self.inputs))
        return tuple(tuple(lag(at, of) for of in ports) for at in ports)

    def forget(self) -> None:
        """Drop the keys that nothing will be asked about."""
        settled = [one.settled() for one in self.inputs]
        known = [key for key in settled if key is not None]
        if len(known) == len(settled):
            for one in self.inputs:
                one.forget(min(known))

    def _need(self, at: int, key: int | None) -> int:
        one = self.inputs[at]
        if key is None:
            return max(1, one.arrived)
        return max(1, one.scrambling + one.arrived - one.through(key))

    def encode(self) -> bytes:
        counts = json.dumps(self._counts).encode()
        return b"".join([struct.pack(">II", len(self.inputs), len(counts)), counts, *(i.encode() for i in self.inputs)])

    @classmethod
    def decode(cls, data: bytes) -> Monitor:
        inputs, size = struct.unpack_from(">II", data)
        made = cls(())
        made._counts = [tuple(each) for each in json.loads(data[8 : 8 + size])]
        rest = data[8 + size :]
        for _ in range(inputs):
            one, end = InputMonitor.decode(rest)
            made.inputs.append(one)
            rest = rest[end:]
        return made


def monitor_space() -> Space[Monitor]:
    return Space("monitor", Monitor.encode, Monitor.decode)
