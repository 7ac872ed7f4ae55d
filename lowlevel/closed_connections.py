"""Tracks the connections that a source has seen close, until it promises that they are over (`PUNCTUATE ON`).

A connection has closed after RST, or after FIN from both of its ends. One direction of it has closed after its own FIN
or RST. SYN opens it again. A table of fixed size holds connections that have begun to close. A connection that finds no
room replaces the one that began to close first; the replaced one loses its promise, never a row.
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
from lowmark.query.expr.expressions import Expr
from lowmark.query.plan.closings import CONNECTION, FLAGS, closing_packets
from lowmark.query.plan.nodes import ClosePromises, Node, Reduction
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["ClosedConnections", "Watched", "Watcher", "kernel_reductions", "watched", "watched_by"]

_SLOTS = 1 << 16
_WAYS = 4  # slots that can hold a connection
_WALK = 4  # partials that a walk may examine for each tuple taken
_SHORT = 1 << 16  # partials of a walk that takes a few milliseconds

# Words of a slot before those of the connection.
_ENDS = 0  # bits of the ends from which FIN came; RST sets both; 0: the slot is free
_CLOSED = 1  # time of the last closing packet, ns
_KEY = 2


Watched = tuple[tuple[str, ...], int, Expr | None]
"""Fields of a connection, the time from its end to the promise, and the condition of its packets."""


def watched(nodes: Sequence[Node]) -> dict[Watched, ClosePromises]:
    """What a source with these nodes watches: one entry per distinct combination of fields, time and condition."""
    known = ((watched_by(node), node.closing) for node in nodes)
    return {key: closing for key, closing in known if key is not None and closing is not None}


def watched_by(node: Node) -> Watched | None:
    closing = node.closing
    return None if closing is None else (closing.fields, closing.linger_ns, closing.where)


def kernel_reductions(nodes: Sequence[Node], send_late: Sequence[bool]) -> tuple[list[Reduction], list[bool]]:
    """What the kernel of a source with these nodes computes, and which late tuples it outputs."""
    watching = [closing_packets(closing) for closing in watched(nodes).values()]
    return [*(node.reduction for node in nodes), *watching], [*send_late, *(False for _ in watching)]


class ClosedConnections:
    """Takes the packets of `closing_packets` and returns the connections that have been closed for long enough."""

    def __init__(self, closing: ClosePromises) -> None:
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
        """Remove and return these connections, each with the time of its last closing packet."""
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
    """Reads the closing packets of a source beside its nodes."""

    def __init__(self, closing: ClosePromises, config: LowLevelConfig) -> None:
        self.memory = NodeMemory(closing_packets(closing), config, 0, 0)
        self.closed = ClosedConnections(closing)
        self._linger = closing.linger_ns
        self._late: dict[int, int] = {}
        self._taken = 0
        self._low = INT64_MIN

    def look(self) -> None:
        """Take the packets that the kernel has found; ignore late ones."""
        self.memory.drain_late(self._late)
        self._late.clear()
        if self.memory.pending_rows:
            self.closed.take(self.memory.drain())

    def pays(self, members: Sequence[SourceNode], low: int, hurry: bool) -> bool:
        """Whether a search for closed connections in these nodes' tables is worth its cost, a walk over all partials.
        It is when enough tuples have come or enough time has passed since the last search. `hurry`: a short walk is
        always worth it, because no packet may come for a while."""
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
    ends: npt.NDArray[np.int64],  # words of the address and port of end a and of the sender
    places: npt.NDArray[np.int64],  # words of the flags and the time
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
