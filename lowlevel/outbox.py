"""Turns a node's output into numbered records for its stage's partitions, with the ledger. Pure: both runners use it.

One outbox serves one (source, epoch, node). Sequence numbers are dense in each partition, from 0. Data that is given up
is counted and gets no number. A punctuation goes to every partition, after the data that it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.node_promises import Closed
from lowmark.query.plan.nodes import Node
from lowmark.wire.records.partials import PANE, TUPLES, Origin, rows_of_a_batch
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation, Taint
from lowmark.wire.rows.by_bucket import divided, tuples_by_pane
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import Words

__all__ = ["Outbox", "Outgoing", "Rows"]

_MOST_VALUES = 2048
"""Most connections in one punctuation; one takes at most 200 bytes."""

_MOST_ACCOUNTS = 8192
"""Most accounts in one punctuation, so that it stays well below a record's limit. A promise over more granules is made
in steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A batch in word form; `tuples` in each pane of it. `late` rows are outside promises and accounts."""

    origin: Origin
    sequence: int
    rows: Words
    tuples: Mapping[int, int]
    late: bool = False


Outgoing = tuple[int, Rows | Punctuation]
"""Partition and record."""

Room = Callable[[int], bool]
"""Whether this many more bytes of data may be sent. Punctuations are never refused."""


def _always(size: int) -> bool:
    return True


class Outbox:
    """`start_ns`: the time from which it covers its source (None: finite sources). The epoch's `counters` go
    with each punctuation."""

    def __init__(
        self, node: Node, origin: Origin, partitions: int, *, start_ns: int | None = None, room: Room = _always
    ) -> None:
        self._node = node
        self._schema = node.reduction.schema
        self._origin = origin
        self._start_ns = start_ns
        self._room = room
        self._next = [0] * partitions
        self._sent: list[dict[int, int]] = [{} for _ in range(partitions)]  # tuples of granules not yet promised
        self._given_up: dict[int, int] = {}
        names = ("tuples", "promised", "late", "dropped", "given_up", "late_given_up", "taints")
        self._counters = dict.fromkeys(names, 0)
        self._promised_ns: int | None = None
        self._step = rows_of_a_batch(self._schema)

    @property
    def counters(self) -> dict[str, int]:
        """Cumulative since the epoch began: tuples sent, and those of them that accounts reported; late and given up;
        frames dropped; late tuples that should have been sent and were given up; taints. Late tuples, dropped frames
        and taints count once they are reported."""
        return dict(self._counters)

    @property
    def covered_to_ns(self) -> int:
        """The time up to which all granules have been promised."""
        promised_ns = self._start_ns if self._promised_ns is None else self._promised_ns
        return INT64_MIN if promised_ns is None else promised_ns

    def resume(self, start_ns: int | None) -> None:
        """After `stop`: go on, and cover the source from this time on."""
        self._start_ns = start_ns

    def take(self, output: NodeOutput, ending: Ending = Ending.NONE) -> Iterator[Outgoing]:
        """The records of an output. `ending` goes with its progress and says that nothing follows."""
        if len(output.rows):
            yield from self._data(output.rows, False)
        if output.late is not None:
            yield from self._data(output.late, True)
        if output.progress is not None:
            yield from self._promise(output.progress, ending)
        for closed in output.closed:
            yield from self._close(closed)

    def stop(self) -> Iterator[tuple[int, Punctuation]]:
        """Announce to every partition, with the last promise, that nothing follows although the source has not ended.
        Does nothing without a promise so far."""
        if self._promised_ns is not None:
            promise = Promise((Bound("ts", self._promised_ns),), False)
            yield from self._punctuations(promise, [], {}, (), Ending.STOP)

    def _close(self, closed: Closed) -> Iterator[Outgoing]:
        """The promises about values, each for the partitions that can have rows with them."""
        closing = self._node.closing
        assert closing is not None, "only nodes with `closing` promise values"
        kinds = [self._schema.column(name).kind for name in closing.columns]
        for start in range(0, len(closed.values), _MOST_VALUES):
            values = ValueSet(closed.values.wide[start : start + _MOST_VALUES])
            keys = Schema(tuple(map(self._schema.column, closing.columns)), self._schema.strings)
            rows = np.concatenate((np.zeros((len(values), 1), np.uint64), values.words(*kinds)), axis=1)
            parts: Iterable[tuple[int, Words]] = ((partition, rows) for partition in range(len(self._next)))
            if self._node.tells_one_bucket:
                parts = divided(keys, rows, self._node.bucket_by, len(self._next))
            for partition, part in parts:
                there = ValueSet.of_words(*(_words(keys, part, name) for name in closing.columns))
                promise = Promise((Bound(closing.columns, values=there), Bound("ts", closed.until_ns)))
                ledger = LaneLedger(dict(self._counters))
                yield (
                    partition,
                    Punctuation(self._origin, self._number(partition), promise, ledger, Ending.NONE, self._start_ns),
                )

    def _data(self, rows: Words, late: bool) -> Iterator[Outgoing]:
        for partition, part in divided(self._schema, rows, self._node.bucket_by, len(self._next)):
            yield from self._batches(partition, part, late)

    def _batches(self, partition: int, rows: Words, late: bool) -> Iterator[Outgoing]:
        for start in range(0, len(rows), self._step):
            part = rows[start : start + self._step]
            tuples = tuples_by_pane(self._column(part, PANE), self._column(part, TUPLES))
            if late:
                # Late tuples are counted as late whether they are sent or not; they have no account here.
                if self._room(part.nbytes):
                    yield partition, Rows(self._origin, self._number(partition), part, tuples, True)
                else:
                    self._counters["late_given_up"] += sum(tuples.values())
                continue
            if not self._room(part.nbytes):
                _add(self._given_up, tuples)
                self._counters["given_up"] += sum(tuples.values())
                continue
            _add(self._sent[partition], tuples)
            self._counters["tuples"] += sum(tuples.values())
            yield partition, Rows(self._origin, self._number(partition), part, tuples)

    def _column(self, rows: Words, name: str) -> npt.NDArray[np.int64]:
        return rows[:, self._schema.offset(name)].view(np.int64)

    def _number(self, partition: int) -> int:
        sequence = self._next[partition]
        self._next[partition] = sequence + 1
        return sequence

    def _promise(self, progress: NodeProgress, ending: Ending) -> Iterator[Outgoing]:
        pane = self._node.reduction.pane
        self._promised_ns = progress.promised_ns
        last = progress.promised_ns == FOREVER
        first_open = FOREVER if last else pane.index(progress.promised_ns)
        self._counters["late"] += sum(progress.late.values())
        self._counters["dropped"] += sum(taint.dropped for taint in progress.taints)
        self._counters["taints"] += len(progress.taints)
        closed = {granule for sent in (*self._sent, self._given_up) for granule in sent if granule < first_open}
        granules = sorted(closed | set(progress.late))
        for start in range(0, max(1, len(granules)), _MOST_ACCOUNTS):
            step = granules[start : start + _MOST_ACCOUNTS]
            done = start + _MOST_ACCOUNTS >= len(granules)
            bound = progress.promised_ns if done else pane.start(granules[start + _MOST_ACCOUNTS])
            promise = Promise((Bound("ts", bound),), last and done)
            taints = progress.taints if start == 0 else ()
            yield from self._punctuations(promise, step, progress.late, taints, ending if done else Ending.NONE)

    def _punctuations(
        self, promise: Promise, granules: list[int], late: Mapping[int, int], taints: tuple[Taint, ...], ending: Ending
    ) -> Iterator[tuple[int, Punctuation]]:
        everywhere = {granule: sum(sent.get(granule, 0) for sent in self._sent) for granule in granules}
        self._counters["promised"] += sum(everywhere.values())
        counters = dict(self._counters)
        for partition, sent in enumerate(self._sent):
            accounts = tuple(
                Account(
                    granule,
                    here=sent.get(granule, 0),
                    everywhere=everywhere[granule],
                    late=late.get(granule, 0),
                    given_up=self._given_up.get(granule, 0),
                )
                for granule in granules
            )
            sequence = self._number(partition)
            ledger = LaneLedger(counters, accounts, taints)
            yield partition, Punctuation(self._origin, sequence, promise, ledger, ending, self._start_ns)
        for granule in granules:
            self._given_up.pop(granule, None)
            for sent in self._sent:
                sent.pop(granule, None)


def _words(schema: Schema, rows: Words, name: str) -> Words:
    return rows[:, schema.offset(name) :][:, : schema.column(name).kind.words]


def _add(to: dict[int, int], counts: Mapping[int, int]) -> None:
    for granule, count in counts.items():
        to[granule] = to.get(granule, 0) + count
