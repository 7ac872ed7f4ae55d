"""Measures the inputs of a window-oblivious join from their keys alone: a piece of state (Wu, section 2).

A tuple's physical index is its place in order of arrival, its virtual index its place in order of keys. With scrambling
factor k they differ by k at most (theorem 2.1): once n tuples have come, the first n - k in order of keys are settled,
and each later tuple has a greater key than they.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from highlevel.interface import Space
from highlevel.join.oblivious.scrambling import Scrambling, pack, unpack
from lowmark.query.optimize.buffer_model import Traits

__all__ = ["InputMonitor", "Monitor", "monitor_space"]

Ints = npt.NDArray[np.int64]

_LEARNING = 2
"""No key is settled before this many times the scrambling factor of tuples have come, because the measured factor still
grows until then."""

_LEAST = 16
"""No key is settled before this many tuples."""

_ROUND = 256
"""Tuples of all inputs between two counts of their rates."""

_ROUNDS = 4
"""Rounds over which rates are counted."""

_GROWTH = 8
"""A full array grows by an eighth of the keys."""

_SIZE = struct.Struct(">I")


class InputMonitor:
    """One input. `multiplicity`: the most tuples that had one key."""

    def __init__(self, given: int | None = None) -> None:
        """`given`: the scrambling factor, if it is known beforehand."""
        self.order = Scrambling(given)
        self.multiplicity = 1
        self._keys: Ints = np.empty(0, np.int64)  # ascending; the keys of the `_gone` tuples before them are forgotten
        self._room = self._keys  # `_keys` is its first part; the rest is room to grow
        self._gone = 0
        self._floor: int | None = None  # the greatest key that was forgotten
        self._below: int | None = None  # no later tuple has a smaller key, as was promised
        self.whole = True  # the keys of a part of the state are all of them, not those that came since the part before
        self._new: list[Ints] | None = None  # keys that came since it was stored; None: all are to be written

    @property
    def arrived(self) -> int:
        return self.order.arrived

    @property
    def scrambling(self) -> int:
        return self.order.factor

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return self._room.nbytes + self.order.held

    def observe(self, keys: Ints) -> None:
        """Take keys in order of arrival."""
        if len(keys):
            self.order.observe(keys)
            self._insert(np.sort(keys))

    def promise(self, below: int) -> None:
        """No later tuple has a smaller key."""
        self._below = below if self._below is None else max(self._below, below)

    def settled(self) -> int | None:
        """The greatest key such that no later tuple has it or a smaller one, if the scrambling factor holds. None:
        unknown."""
        k, found = self.scrambling, None if self._below is None else self._below - 1
        if self.order.given is None and self.arrived < max(_LEARNING * k, _LEAST):
            return found
        place = self.arrived - k - self._gone
        return _greater(found, int(self._keys[place - 1]) if place > 0 else self._floor)

    def reached(self) -> int | None:
        """The greatest key that has come or that is known never to come."""
        return _greater(self.order.greatest, None if self._below is None else self._below - 1)

    def through(self, key: int) -> int:
        """The virtual index of the last tuple whose key is at most this one. Beyond the greatest key so far it is
        estimated from the density of keys, because no tuple has such a key yet."""
        if not len(self._keys):
            return self._gone
        last = int(self._keys[-1])
        if key <= last:
            return self._gone + int(np.searchsorted(self._keys, key, "right"))
        spread = last - int(self._keys[0])
        return self.arrived + max(1, (key - last) * (len(self._keys) - 1) // spread if spread else 0)

    def forget(self, through: int) -> None:
        """Drop the keys up to this one: no later question concerns them."""
        gone = int(np.searchsorted(self._keys, through, "right"))
        if gone > len(self._keys) // 2:
            self._floor = int(self._keys[gone - 1])
            self._gone += gone
            self._keys = self._room = self._keys[gone:].copy()
            self._new = None

    def _insert(self, keys: Ints) -> None:
        """Insert keys in order. Only the few keys after the least new one move, however many are remembered."""
        if self._new is not None:
            self._new.append(keys)
        start = int(np.searchsorted(self._keys, keys[0]))
        tail = self._keys[start:]
        tail = np.insert(tail, np.searchsorted(tail, keys, "right"), keys)
        end = start + len(tail)
        if end > len(self._room):
            room = np.empty(max(end + end // _GROWTH, _LEAST), np.int64)
            room[:start] = self._keys[:start]
            self._room = room
        self._room[start:end] = tail
        self._keys = self._room[:end]
        most = np.searchsorted(tail, keys, "right") - np.searchsorted(tail, keys, "left")
        self.multiplicity = max(self.multiplicity, int(most.max()))

    def encode(self) -> bytes:
        order = self.order.encode()
        return (
            _SIZE.pack(len(order))
            + order
            + pack([self.multiplicity, self._gone, self._floor, self._below, self.whole], self._keys)
        )

    @classmethod
    def decode(cls, data: bytes) -> InputMonitor:
        made = cls()
        (size,) = _SIZE.unpack_from(data)
        made.order = Scrambling.decode(data[_SIZE.size : _SIZE.size + size])
        head, made._keys = unpack(data[_SIZE.size + size :])
        made.multiplicity, made._gone, made._floor, made._below, made.whole = head
        made._room, made._new = made._keys, []
        return made

    def news(self) -> InputMonitor:
        """A part of the state: the keys that came since the last call or since it was read, all of them if some have
        been forgotten, and everything else. Call this only to store it."""
        whole, keys = self._new is None, self._new or []
        self._new = []
        return self._with([self._keys] if whole else keys, whole)

    @classmethod
    def merge(cls, parts: Sequence[InputMonitor]) -> InputMonitor:
        """The last part, with the keys of all that came since all were written."""
        first = max((at for at, part in enumerate(parts) if part.whole), default=0)
        return parts[-1]._with([part._keys for part in parts[first:]], parts[first].whole)

    def _with(self, keys: Sequence[Ints], whole: bool) -> InputMonitor:
        """The same with these keys, as it is stored."""
        made = copy(self)
        made._keys = made._room = np.sort(np.concatenate([np.empty(0, np.int64), *keys]), kind="stable")
        made.whole, made._new = whole, []
        return made


def _greater(a: int | None, b: int | None) -> int | None:
    return max((key for key in (a, b) if key is not None), default=None)


class Monitor:
    """All inputs of one join."""

    def __init__(self, given: Sequence[int | None]) -> None:
        """`given`: for each input its scrambling factor, or None if it is to be found."""
        self.inputs = [InputMonitor(k) for k in given]
        self._counts = [(0,) * len(given)]  # tuples of each input, at the end of each round

    def observe(self, port: int, keys: Ints) -> None:
        self.inputs[port].observe(keys)
        arrived = tuple(one.arrived for one in self.inputs)
        if sum(arrived) - sum(self._counts[-1]) >= _ROUND:
            self._counts = [*self._counts[-_ROUNDS:], arrived]

    def promise(self, port: int, below: int) -> None:
        """No later tuple of the input has a smaller key."""
        self.inputs[port].promise(below)

    def rates(self) -> tuple[int, ...]:
        """Tuples of each input in the last few rounds; at least one."""
        return tuple(max(1, one.arrived - before) for one, before in zip(self.inputs, self._counts[0], strict=True))

    def traits(self) -> tuple[Traits, ...]:
        inputs = zip(self.inputs, self.rates(), strict=True)
        return tuple(Traits(rate, one.scrambling, one.multiplicity) for one, rate in inputs)

    def buffers(self) -> tuple[int, ...]:
        """Equations 7 and 8, in tuples of each input. The term r_i k_j / r_j counts the tuples of i in the time in
        which the last k_j tuples of j came. Let N' be the tuples of i at the begin of this time, and N_i those now: the
        term is N_i - N', the lag at the begin is N' - VI, and their sum is N_i - VI."""
        settled = [one.settled() for one in self.inputs]
        ports = range(len(settled))
        return tuple(max(self._need(at, settled[of]) for of in ports if of != at) for at in ports)

    def lags(self) -> tuple[tuple[int, ...], ...]:
        """Definition 2.6, computed from what has come: the tuples that an input keeps for another one beyond those that
        scrambling requires; all of its tuples as long as nothing is known of the other one."""
        settled, traits = [one.settled() for one in self.inputs], self.traits()

        def lag(at: int, of: int) -> int:
            key, mine, other = settled[of], self.inputs[at], traits[of]
            if at == of:
                return 0
            if key is None:
                return mine.arrived
            return mine.arrived - mine.through(key) - round(traits[at].rate * other.scrambling / other.rate)

        ports = range(len(self.inputs))
        return tuple(tuple(lag(at, of) for of in ports) for at in ports)

    def leads(self) -> tuple[int, ...]:
        """For each input, by how many tuples it is ahead of the other input that is furthest behind; negative: it is
        behind all others."""
        reached = [one.reached() for one in self.inputs]
        found = []
        for at, one in enumerate(self.inputs):
            others = [key for of, key in enumerate(reached) if of != at and key is not None]
            known = len(others) == len(reached) - 1
            found.append(one.arrived - one.through(min(others)) if known else one.arrived)
        return tuple(found)

    def forget(self) -> None:
        """Drop the keys that no later question concerns."""
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
        inputs = [one.encode() for one in self.inputs]
        head = json.dumps([self._counts, [len(one) for one in inputs]]).encode()
        return b"".join([_SIZE.pack(len(head)), head, *inputs])

    @classmethod
    def decode(cls, data: bytes) -> Monitor:
        (size,) = _SIZE.unpack_from(data)
        counts, sizes = json.loads(data[_SIZE.size : _SIZE.size + size])
        made, at = cls(()), _SIZE.size + size
        made._counts = [tuple(each) for each in counts]
        for length in sizes:
            made.inputs.append(InputMonitor.decode(data[at : at + length]))
            at += length
        return made

    def news(self) -> Monitor:
        """A part of the state. Call this only to store it."""
        return self._with([one.news() for one in self.inputs])

    @classmethod
    def merge(cls, parts: Sequence[Monitor]) -> Monitor:
        return parts[-1]._with(
            [InputMonitor.merge(each) for each in zip(*(part.inputs for part in parts), strict=True)]
        )

    def _with(self, inputs: list[InputMonitor]) -> Monitor:
        made = copy(self)
        made.inputs = inputs
        return made


def monitor_space() -> Space[Monitor]:
    return Space("monitor", Monitor.encode, Monitor.decode, Monitor.merge, Monitor.news, version=2)
