"""The connections that a source has seen close, until it promises that they are over (`PUNCTUATE ON`).

A connection has closed when RST came, or FIN from both of its ends; one direction of it, when its own FIN or RST came.
SYN opens it again. A table of fixed size holds what has begun to close. A connection that finds no room replaces the
one that began to close first: its promise is lost, never a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lowlevel.config import LowLevelConfig
from lowlevel.early_groups import mix
from lowlevel.node_memory import NodeMemory
from lowlevel.node_promises import SourceNode
from lowmark.jit.compiled import compiled
from lowmark.query.plan.closings import CONNECTION, FLAGS, closing_packets
from lowmark.query.plan.nodes import Closing, Node, Reduction
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["ClosedConnections", "Watched", "Watcher", "kernel_reductions", "watched", "watched_by"]

_SLOTS = 1 << 16
_WAYS = 4  # slots in which a connection may be
_WALK = 4  # partials that are looked at for each tuple taken
_SHORT = 1 << 16  # partials of a walk that takes a few milliseconds

# Words of a slot before those of the connection.
_ENDS = 0  # bits of the ends from which FIN came; RST sets both; 0: the slot is free
_CLOSED = 1  # time of the last closing packet, ns
_KEY = 2


Watched = tuple[tuple[str, ...], int]
"""Fields of a connection, and the time from its end to the promise."""


def watched(nodes: Sequence[Node]) -> tuple[Closing, ...]:
    """What a source with these nodes watches, one for each that differs in fields or time."""
    found = {watched_by(node): node.closing for node in nodes if node.closing is not None}
    return tuple(found.values())


def watched_by(node: Node) -> Watched | None:
    return None if node.closing is None else (node.closing.fields, node.closing.linger_ns)


def kernel_reductions(nodes: Sequence[Node], send_late: Sequence[bool]) -> tuple[list[Reduction], list[bool]]:
    """What the kernel of a source with these nodes computes, and which late tuples it puts out."""
    watching = [closing_packets(closing) for closing in watched(nodes)]
    return [*(node.reduction for node in nodes), *watching], [*send_late, *(False for _ in watching)]


class ClosedConnections:
    """Takes the packets of `closing_packets`, and gives the connections whose time has come."""

    def __init__(self, closing: Closing) -> None:
        schema = closing_packets(closing).schema
        self._schema = schema
        self._fields = closing.fields
        self._linger = closing.linger_ns
        ends = ("srcIP", "srcPort") if closing.fields == CONNECTION else ()
        of_a = ("conn.aIP", "conn.aPort") if closing.fields == CONNECTION else ()
        self._key = _words_of(schema, closing.fields)
        self._ends = np.array([_words_of(schema, of_a), _words_of(schema, ends)], np.int64)
        self._places = np.array([schema.offset(FLAGS), schema.offset("ts")], np.int64)
        self._slots: Words = np.zeros((_SLOTS, _KEY + len(self._key)), np.uint64)
        self._due = np.full(_SLOTS, FOREVER, np.int64)
        self._next = FOREVER

    def take(self, packets: Words) -> None:
        if len(packets):
            rows = np.ascontiguousarray(packets)
            _note(rows, self._key, self._ends, self._places, self._slots, self._due, self._linger)
            self._next = int(self._due.min())

    def due(self, low: int) -> bool:
        """Whether some connection has been closed for long enough at this low-watermark."""
        return self._next <= low

    def take_due(self, low: int) -> tuple[ValueSet, npt.NDArray[np.int64]]:
        """Those connections, each with the time of its last closing packet; forgets them."""
        at = np.flatnonzero(self._due <= low)
        found = self._slots[at]
        self._due[at], self._slots[at, _ENDS] = FOREVER, 0
        self._next = int(self._due.min())
        columns = []
        start = _KEY
        for name in self._fields:
            words = self._schema.column(name).kind.words
            columns.append(found[:, start : start + words])
            start += words
        return ValueSet.of_words(*columns), found[:, _CLOSED].view(np.int64)


class Watcher:
    """Looks at the closing packets of a source beside its nodes."""

    def __init__(self, closing: Closing, config: LowLevelConfig) -> None:
        self.memory = NodeMemory(closing_packets(closing), config, 0, 0)
        self.closed = ClosedConnections(closing)
        self._linger = closing.linger_ns
        self._late: dict[int, int] = {}
        self._taken = 0
        self._low = INT64_MIN

    def look(self) -> None:
        """Take the packets that the kernel has found. Late ones are of no use."""
        self.memory.drain_late(self._late)
        self._late.clear()
        if self.memory.pending_rows:
            self.closed.take(self.memory.drain())

    def pays(self, members: Sequence[SourceNode], low: int, hurry: bool) -> bool:
        """Whether it is time to look for closed connections in the tables of these nodes: that takes a walk over all
        partials, which the tuples since the last one, or the time, should be worth. `hurry`: a short walk is worth it
        in any case, since nothing may come for a while."""
        taken = sum(member.memory.taken for member in members)
        groups = sum(member.memory.groups for member in members)
        if groups > (_SHORT if hurry else _WALK * (taken - self._taken)) and low < self._low + self._linger:
            return False
        self._taken, self._low = taken, low
        return True


def _words_of(schema: Schema, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """The words of these columns in a row."""
    starts = [(schema.offset(name), schema.column(name).kind.words) for name in columns]
    return np.array([start + word for start, words in starts for word in range(words)], np.int64)


@compiled
def _note(
    rows: npt.NDArray[np.uint64],
    key: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],  # words of the address and port of end a, and of the sender
    places: npt.NDArray[np.int64],  # words of flags and time
    slots: npt.NDArray[np.uint64],
    due: npt.NDArray[np.int64],
    linger: int,
) -> None:
    for row in range(rows.shape[0]):
        hashed = np.uint64(0x9E3779B97F4A7C15)
        for at in range(key.shape[0]):
            hashed = mix(hashed, rows[row, key[at]])
        first = np.int64(hashed & np.uint64(slots.shape[0] - 1))
        slot, known = np.int64(-1), False
        for way in range(_WAYS):
            at = (first + way) & (slots.shape[0] - 1)
            if slots[at, _ENDS] != 0:
                same = True
                for word in range(key.shape[0]):
                    same = same and slots[at, _KEY + word] == rows[row, key[word]]
                if same:
                    slot, known = at, True
                    break
                if slot < 0 or (slots[slot, _ENDS] != 0 and slots[at, _CLOSED] < slots[slot, _CLOSED]):
                    slot = at
            elif slot < 0 or slots[slot, _ENDS] != 0:
                slot = at
        flags, time = rows[row, places[0]], rows[row, places[1]]
        if flags & np.uint64(2) != 0:
            if known:
                slots[slot, _ENDS] = 0
                due[slot] = np.int64(0x7FFFFFFFFFFFFFFF)
            continue
        sides = np.uint64(3)
        if flags & np.uint64(4) == 0 and ends.shape[1] != 0:
            from_a = True
            for word in range(ends.shape[1]):
                from_a = from_a and rows[row, ends[0, word]] == rows[row, ends[1, word]]
            sides = np.uint64(1) if from_a else np.uint64(2)
        if not known:
            slots[slot, _ENDS], slots[slot, _CLOSED] = 0, time
            for word in range(key.shape[0]):
                slots[slot, _KEY + word] = rows[row, key[word]]
        slots[slot, _ENDS] |= sides
        slots[slot, _CLOSED] = np.uint64(max(np.int64(slots[slot, _CLOSED]), np.int64(time)))
        closed = np.int64(slots[slot, _CLOSED])
        whole = slots[slot, _ENDS] == np.uint64(3)
        due[slot] = closed + linger if whole and closed <= 0x7FFFFFFFFFFFFFFF - linger else np.int64(0x7FFFFFFFFFFFFFFF)
