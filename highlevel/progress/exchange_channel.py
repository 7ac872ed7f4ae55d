"""Sends a bucket's rows into an exchange: numbered batches for every bucket, and punctuations that account for them.

The rows of a micro-batch leave at its end; rows of one group and pane leave as one row where they can be merged. After
them, every bucket gets one punctuation if the promise has moved or a loss was found, and one for each joint promise by
which groups can close. The same input gives the same output wherever the micro-batches are cut; only the division of
rows into records may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.groups.split import split
from highlevel.interface import Space, State, Words
from highlevel.progress.bucket_identity import BucketIdentity
from highlevel.progress.outputs import Forward
from highlevel.progress.promises.joint import JointPromises
from highlevel.progress.promises.values import ValuePromises, about_values, news
from highlevel.progress.records import batch_of_rows
from highlevel.verdicts.marks import MarkRow, Marks
from lowmark.query.plan.nodes import Aggregate, Exchange, NodeInput, QueryPlan, Send
from lowmark.query.windows.window import WindowKind
from lowmark.wire.records.partials import PANE, PANE_WORD, Origin, rows_of_a_batch
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation, Taint
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.by_bucket import divided
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Channel", "bucket_source", "channels"]

_MOST_ACCOUNTS = 4096
"""Most accounts, and most taints, in one punctuation of an exchange."""


def channels(plan: QueryPlan, place: BucketIdentity, state: State) -> dict[int, Channel]:
    """The channels of a query, by step."""
    found = {}
    for step, at in enumerate(plan.steps):
        if isinstance(at.plan, Send) and plan.exchanges is not None and (sent := plan.exchange(at.plan.node)):
            joint = _closed_jointly(plan, at.plan.node)
            found[step] = Channel(plan.name, sent, at.plan, joint, plan.exchanges.fingerprint, place, state)
    return found


def _closed_jointly(plan: QueryPlan, node: str) -> frozenset[str]:
    """The columns by which groups after an exchange may close before their pane has ended."""
    reading = (step.plan for step in plan.steps if NodeInput(node) in step.inputs)
    keys = (each.keys for each in reading if isinstance(each, Aggregate) and each.window.kind is WindowKind.NONE)
    return frozenset({PANE}.union(*keys))


def bucket_source(bucket: int, life: int | None = None) -> str:
    """The name of a bucket as a source of an exchange. `life`: the generation of a query that the job began later than
    others. Each generation has sources of its own, because a source has the same epoch on all nodes."""
    return f"bucket-{bucket}" if life is None else f"bucket-{bucket}.{life}"


@dataclass(slots=True)
class _Sent:
    """State of the records sent: the next number, and the tuples of granules not yet promised, by partition."""

    next: list[int]
    open: list[dict[int, int]]
    promised: int = NEVER
    taints: int = 0  # sent so far
    marks: list[MarkRow] = field(default_factory=list)  # not sent yet

    def encode(self) -> bytes:
        opened = [list(tuples.items()) for tuples in self.open]
        return json.dumps([self.next, opened, self.promised, self.taints, self.marks], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Sent:
        numbers, opened, *rest = json.loads(piece)
        return cls(numbers, [dict(map(tuple, tuples)) for tuples in opened], *rest)


class Channel:
    """One exchange in one bucket. `marks` are on the panes of the exchange's node: a caller that finds a loss adds a
    mark, and the next punctuation reports it."""

    def __init__(
        self, query: str, exchange: Exchange, send: Send, joint: frozenset[str], fingerprint: str,
        place: BucketIdentity, state: State,
    ) -> None:  # fmt: skip
        node = exchange.node
        self._query = query
        self._exchange = exchange
        self._schema = node.reduction.schema
        self._layout = Layout(send.input, send.keys, send.folds) if send.grouped else None
        self._fingerprint = fingerprint
        self._origin = Origin(fingerprint, place.source, place.generation, node.name)
        self._state = state
        self._space: Space[_Sent] = Space(f"sent.{node.name}", _Sent.encode, _Sent.decode)
        fresh = _Sent([0] * place.buckets, [{} for _ in range(place.buckets)])
        self._sent = state.get(self._space, 0) or fresh
        self.marks = Marks.of_rows(self._sent.marks)
        self._pending: list[Words] = []
        self._closing = joint
        self._joint = JointPromises()
        self._values = ValuePromises()

    def take(self, sent: Words | Promise) -> None:
        """Take rows, or a promise (joint or about values) on the rows still to be taken."""
        if not isinstance(sent, Promise):
            self._pending.append(sent)
        elif about_values(sent):
            self._values.take(sent)
        elif {name for bound in sent.bounds for name in bound.columns} <= self._closing:
            self._joint.take(sent)

    def flush(self, front: int) -> Iterator[Forward]:
        """All records of a micro-batch. The panes below `front` have ended: all their rows have been taken."""
        if self._pending:
            rows = self._merged(np.concatenate(self._pending))
            self._pending = []
            for partition, part in self._divided(rows):
                yield from self._batches(partition, part)
        if front > self._sent.promised or self.marks:
            yield from self._promise(front)
        if front < FOREVER:
            self._values.prune(front)
            for promise in (*self._joint.promises(), *news(ValuePromises(), self._values)):
                yield from self._tell(promise)
        self._joint, self._values = JointPromises(), ValuePromises()
        self._sent.marks = []
        self._state.put(self._space, 0, self._sent)

    def _merged(self, rows: Words) -> Words:
        """Merge several rows of a group in a pane into one, unless a sum would overflow the integers."""
        if self._layout is None:
            return rows
        offset = self._schema.offset(PANE)
        parts = []
        for pane, part in split(rows[:, offset].view(np.int64), rows):
            table = GroupTable(self._layout)
            table.merge(part)
            if any(table.overflowed(fold).any() for fold in range(len(self._layout.folds))):
                parts.append(part)
                continue
            groups = table.groups
            merged = np.empty((len(groups), self._schema.words), np.uint64)
            merged[:, 0] = groups[:, 0] << np.uint64(1)
            merged[:, PANE_WORD] = np.int64(pane).view(np.uint64)
            merged[:, 2:] = groups[:, 1:]
            parts.append(merged)
        return np.concatenate(parts)

    def _divided(self, rows: Words) -> Iterator[tuple[int, Words]]:
        partitions = len(self._sent.next)
        if self._exchange.to_all:
            yield from ((partition, rows) for partition in range(partitions))
            return
        yield from divided(self._schema, rows, self._exchange.node.bucket_by, partitions)

    def _batches(self, partition: int, rows: Words) -> Iterator[Forward]:
        step = rows_of_a_batch(self._schema)
        for start in range(0, len(rows), step):
            batch = batch_of_rows(self._origin, self._number(partition), rows[start : start + step], self._schema)
            _add(self._sent.open[partition], batch.tuples)
            yield Forward(self._query, self._fingerprint, partition, batch, self._schema)

    def _promise(self, front: int) -> Iterator[Forward]:
        """Promise in several steps, so that no record becomes too large."""
        opened = self._sent.open
        granules = sorted({granule for tuples in opened for granule in tuples if granule < front})
        taints = list(_taints(self.marks))
        self.marks = Marks()
        steps = range(0, max(1, len(granules), len(taints)), _MOST_ACCOUNTS)
        for start in steps:
            some, stop = granules[start : start + _MOST_ACCOUNTS], start + _MOST_ACCOUNTS
            bound = granules[stop] if stop < len(granules) else front
            yield from self._punctuations(bound, some, taints[start:stop], start == steps[-1])
        self._sent.promised = max(self._sent.promised, front)

    def _punctuations(
        self, bound: int, granules: Sequence[int], taints: Sequence[Taint], done: bool
    ) -> Iterator[Forward]:  # fmt: skip
        self._sent.taints += len(taints)
        counters = {"taints": self._sent.taints}
        everywhere = {granule: sum(tuples.get(granule, 0) for tuples in self._sent.open) for granule in granules}
        last = bound == FOREVER and done
        bounds = () if bound in (NEVER, FOREVER) else (Bound(PANE, bound),)
        for partition, tuples in enumerate(self._sent.open):
            accounts = tuple(Account(granule, tuples.pop(granule, 0), everywhere[granule]) for granule in granules)
            punctuation = Punctuation(
                self._origin, self._number(partition), Promise(bounds, last),
                LaneLedger(counters, accounts, tuple(taints)),
                Ending.END if last else Ending.NONE,
            )  # fmt: skip
            yield Forward(self._query, self._fingerprint, partition, punctuation, self._schema)

    def _tell(self, joint: Promise) -> Iterator[Forward]:
        """Send a joint promise to every bucket, after the rows of this micro-batch, because it concerns only later
        rows."""
        for partition in range(len(self._sent.next)):
            told = LaneLedger({"taints": self._sent.taints})
            punctuation = Punctuation(self._origin, self._number(partition), joint, told)
            yield Forward(self._query, self._fingerprint, partition, punctuation, self._schema)

    def _number(self, partition: int) -> int:
        number = self._sent.next[partition]
        self._sent.next[partition] = number + 1
        return number


def _taints(marks: Marks) -> Iterator[Taint]:
    for mark in marks.within(NEVER, FOREVER):
        reasons = tuple(reason.value for reason in Reason if reason in mark.verdict.reasons)
        yield Taint(mark.start, mark.stop, reasons, mark.verdict.partial)


def _add(to: dict[int, int], tuples: Mapping[int, int]) -> None:
    for granule, count in tuples.items():
        to[granule] = to.get(granule, 0) + count
