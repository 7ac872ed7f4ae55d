"""A query over packets without a kernel and without files: nodes computed from packets, records in any interleaving,
buckets whose state may be written and read between any two records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from random import Random

import numpy as np
import numpy.typing as npt

from highlevel.interface import State
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowmark.query.catalog import PACKET_FIELDS
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import all_valid, assemble_rows, evaluate, holds, lost_in
from lowmark.query.options import Late, Strategy
from lowmark.query.plan.nodes import Node, QueryPlan
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending, Punctuation, Taint
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from lowmark.wire.rows.schema import Column, Kind, Schema
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.values import FOREVER, show
from lowmark.wire.rows.words import Words, column_of
from tests.acceptance.lawful import Lawful
from tests.naive.evaluate import ResultRow
from tests.naive.packets import Packet
from tests.naive.values import Mac, Time, Value

FIELDS = (*(Column(field.name, field.kind) for field in PACKET_FIELDS), Column("_rank", Kind.INT),
          Column("_position", Kind.INT))  # fmt: skip

Streams = dict[str, list[list[Packet]]]


@dataclass(frozen=True)
class Ran:
    rows: list[ResultRow]
    completes: list[list[Complete]]  # of each bucket
    unfinished: int  # rows without a completion behind them
    certain: list[ResultRow]  # rows whose completion says that they are exact
    broken: int  # rows in exchanges that an earlier promise of their lane excludes
    joint: int  # joint promises in exchanges
    lossy: frozenset[tuple[object, object]]  # window_start and window_end, as rows show them, by whichever bucket
    doubted: bool  # something is said to be lossy
    overtaken: int
    """Rows of queries without windows with a time before the bound of a completion that stands before, or of a window
    that ends by it."""


def run(
    text: str, streams: Streams, random: Random, buckets: int, lost: bool = False, strategy: Strategy = Strategy.AUTO,
    late: Late = Late.COUNT, tardy: bool = False,
) -> Ran:  # fmt: skip
    """All chances are taken from `random`: batches, promises, the interleaving of lanes, and where state is stored.
    `lost`: one batch of tuples gets lost on the way. `tardy`: sources promise as if their packets were in order."""
    counts = {name: len(sources) for name, sources in streams.items()}
    return run_plan(
        compile_query(text, streams=counts, buckets=buckets, strategy=strategy, late=late), streams, random, lost, tardy
    )


def run_plan(
    plan: QueryPlan, streams: Streams, random: Random, lost: bool = False, tardy: bool = False,
    more: Callable[[list[Record]], list[Record]] = list,
) -> Ran:  # fmt: skip
    """`more`: what one lane sends to a bucket, with what is added to it."""
    lanes = [
        [more(records) for records in records_of(plan, node, stream, rank, packets, random, tardy)]
        for stream, sources in streams.items()
        for rank, packets in enumerate(sources)
        for node in plan.stage.nodes
        if stream in node.streams
    ]
    if lost:
        _lose(lanes, random)
    roster = Roster.of({
        stream: tuple(f"{stream}-{rank}" for rank in range(len(sources)))
        for stream, sources in streams.items()
        if any(stream in node.streams for node in plan.stage.nodes)
    })  # fmt: skip
    lawful = Lawful()
    outputs = _buckets(plan, roster, lanes, random, lawful)
    rows = [shown_rows(output) for part in outputs for output in part if isinstance(output, ResultRows)]
    return Ran(
        [row for part in rows for row in part],
        [[output for output in part if isinstance(output, Complete)] for part in outputs],
        sum(map(_unfinished, outputs)),
        [row for part in outputs for row in _certain(part)],
        lawful.broken,
        lawful.joint,
        _lossy(plan, outputs),
        any(_reasons(output) for part in outputs for output in part),
        sum(map(_overtaken, outputs)),
    )


def _lose(lanes: list[list[list[Record]]], random: Random) -> None:
    full = [records for lane in lanes for records in lane if any(isinstance(record, Batch) for record in records)]
    if full:
        records = random.choice(full)
        del records[random.choice([i for i, record in enumerate(records) if isinstance(record, Batch)])]


def _reasons(output: Output) -> frozenset[Reason]:
    if isinstance(output, Complete):
        return output.verdict.reasons
    return output.reasons if isinstance(output, Amendment) else frozenset()


def _lossy(plan: QueryPlan, outputs: list[list[Output]]) -> frozenset[tuple[object, object]]:
    found = set()
    for output in (output for part in outputs for output in part if _reasons(output)):
        assert isinstance(output, Complete | Amendment)
        if output.windows is not None:
            assert plan.window is not None
            for number in range(output.windows.first, output.windows.to + 1):
                start, end, kind = plan.window.start(number), plan.window.end(number), plan.window.axis.kind
                found.add((None if start is None else show(kind, start), show(kind, end)))
    return frozenset(found)


def _certain(outputs: list[Output]) -> list[ResultRow]:
    """Of a query without windows a completion says nothing of rows with later times than its bound, though they may
    stand before it; so none can be known to speak of a row that shows no time."""
    found: list[ResultRow] = []
    waiting: list[tuple[int, ResultRow]] = []
    for output in outputs:
        if isinstance(output, ResultRows):
            waiting += zip(_least_times(output), shown_rows(output), strict=True)
        elif isinstance(output, Complete):
            bounded = output.windows is None and output.kind is Kind.TIME
            end = output.end if bounded else FOREVER
            exact = output.verdict.exact
            found += (row for time, row in waiting if time < end and exact and not (bounded and time == -FOREVER))
            waiting = [(time, row) for time, row in waiting if time >= end]
    return found


def _times(output: ResultRows) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
    """Those that a bound on times speaks of, and which there are: of a window its last moment; it begins long before
    that."""
    for column in output.schema:
        if column.kind is Kind.TIME and column.name != "window_start":
            times, there = column_of(output.schema, output.rows, column.name)
            yield times - (column.name == "window_end"), there


def _least_times(output: ResultRows) -> list[int]:
    """Of each row; one without times is before all others."""
    least = np.full(len(output.rows), FOREVER)
    for times, there in _times(output):
        least = np.where(there, np.minimum(least, times), least)
    return [-FOREVER if time == FOREVER else time for time in least.tolist()]


def _overtaken(outputs: list[Output]) -> int:
    found, end = 0, -(2**63)
    for output in outputs:
        if isinstance(output, ResultRows):
            found += sum(int(np.count_nonzero(there & (times < end))) for times, there in _times(output))
        elif isinstance(output, Complete) and output.windows is None:
            end = output.end
    return found


def _unfinished(outputs: list[Output]) -> int:
    rows = 0
    for output in outputs:
        if isinstance(output, ResultRows):
            rows += len(output.rows)
        elif isinstance(output, Complete):
            assert output.rows == rows, output
            rows = 0
    return rows


def _buckets(
    plan: QueryPlan, roster: Roster, lanes: list[list[list[Record]]], random: Random, lawful: Lawful
) -> list[list[Output]]:  # fmt: skip
    """What each bucket gives out. What goes into exchanges comes at any time, in the order of its lane."""
    buckets = [
        _Bucket(plan, bucket, roster, [lane[bucket] for lane in lanes], random) for bucket in range(plan.stage.buckets)
    ]
    while ready := [bucket for bucket in buckets if bucket.ready]:
        bucket = random.choice(ready)
        for forward in bucket.micro_batch():
            lawful.see(forward)
            buckets[forward.partition].receive(forward.record)
    return [bucket.outputs for bucket in buckets]


class _Bucket:
    def __init__(self, plan: QueryPlan, bucket: int, roster: Roster, lanes: list[list[Record]], random: Random) -> None:
        self.outputs: list[Output] = []
        self._random = random
        self._store = MemoryByteStore()
        self._stored = random.random() < 0.5
        self._state: State = PiecewiseState(self._store, plan.stage.fingerprint) if self._stored else MemoryState()
        self._make = lambda: BucketDriver(plan.stage, (plan,), bucket, self._state, roster, 1)
        self._driver = self._make()
        self._fingerprint = plan.stage.fingerprint
        self._turns = [number for number, lane in enumerate(lanes) for _ in lane]
        if random.random() < 0.5:
            random.shuffle(self._turns)  # else one lane after the other
        self._turns.reverse()
        self._queues = [iter(lane) for lane in lanes]
        self._come: dict[str, list[Record]] = {}  # through exchanges, by source
        self._position = 0

    @property
    def ready(self) -> bool:
        return bool(self._turns) or any(self._come.values())

    def receive(self, record: Batch | Punctuation) -> None:
        lane = self._come.setdefault(f"{record.origin.source} {record.origin.node}", [])
        lane += [record] * (2 if self._random.random() < 0.1 else 1)

    def micro_batch(self) -> list[Forward]:
        while self.ready:
            waiting = [lane for lane in self._come.values() if lane]
            if waiting and (not self._turns or self._random.random() < 0.5):
                record = self._random.choice(waiting).pop(0)
            else:
                record = next(self._queues[self._turns.pop()])
            self._driver.take(record, Arrival(self._position))
            self._position += 1
            if self._random.random() < 0.3:
                break
        outputs = self._driver.flush().outputs
        if isinstance(self._state, PiecewiseState) and self._random.random() < 0.5:
            self._state.commit()
            self._state = PiecewiseState(self._store, self._fingerprint)
            self._driver = self._make()
        self.outputs += [output for output in outputs if not isinstance(output, Forward)]
        return [output for output in outputs if isinstance(output, Forward)]


def records_of(
    plan: QueryPlan, node: Node, stream: str, rank: int, packets: Sequence[Packet], random: Random, tardy: bool = False
) -> list[list[Record]]:
    """What a source sends of a node to each bucket: batches in the order of its packets, promises that hold. `tardy`:
    they hold because what comes late is left out and counted."""
    outbox = Outbox(node, Origin(plan.stage.fingerprint, f"{stream}-{rank}", 1, node.name), plan.stage.buckets)
    sent: list[list[Record]] = [[] for _ in range(plan.stage.buckets)]
    rows = matrix(packets, rank, node.reduction.strings)
    least = np.minimum.accumulate([packet.arrival.ts for packet in reversed(packets)])[::-1]
    pane = node.reduction.pane
    promised, start = None, 0
    lost: set[int] = set()
    late: Counter[int] = Counter()
    while start < len(packets):
        stop = random.randint(start + 1, min(len(packets), start + 40))
        partials, more = reduced(node, rows[start:stop])
        lost |= more
        if promised is not None:
            behind = partials[:, 1].view(np.int64) < pane.index(promised)
            late.update(partials[behind, 1].view(np.int64).tolist())
            partials = partials[~behind]
        progress = None
        if stop < len(packets) and random.random() < 0.6:
            known = max(packet.arrival.ts for packet in packets[:stop]) if tardy else int(least[stop])
            bound = pane.start(pane.index(known))
            if promised is None or bound > promised:
                promised, progress = bound, _progress(bound, lost, late)
                lost, late = set(), Counter()
        _send(outbox, NodeOutput(node.name, partials, progress), Ending.NONE, sent)
        start = stop
    nothing = np.empty((0, node.reduction.schema.words), np.uint64)
    _send(outbox, NodeOutput(node.name, nothing, _progress(FOREVER, lost, late)), Ending.END, sent)
    return sent


def _progress(promised_ns: int, lost: set[int], late: Mapping[int, int]) -> NodeProgress:
    taints = (Taint(granule, granule + 1, (Reason.OVERFLOW.value,)) for granule in sorted(lost))
    return NodeProgress(promised_ns, dict(late), tuple(taints))


def _send(outbox: Outbox, output: NodeOutput, ending: Ending, sent: list[list[Record]]) -> None:
    for bucket, record in outbox.take(output, ending):
        if isinstance(record, Rows):
            sent[bucket].append(Batch(record.origin, record.sequence, record.rows, record.tuples))
        else:
            sent[bucket].append(record)


def reduced(node: Node, packets: Words) -> tuple[Words, set[int]]:
    """Rows of the node, a partial for each packet; and the panes in which something is lost to an overflow."""
    reduction = node.reduction
    schema = Schema(FIELDS, reduction.strings)
    times = packets[:, 1].view(np.int64)
    panes = np.array([reduction.pane.index(time) for time in times.tolist()], np.int64)
    lost: set[int] = set()
    if reduction.where is not None:
        where = evaluate(reduction.where, packets, schema)
        lost |= set(panes[lost_in((where,), len(packets))].tolist())
        packets, panes = packets[holds(where)], panes[holds(where)]
    count = len(packets)
    columns = [evaluate(expr, packets, schema) for expr in reduction.exprs]
    lost |= set(panes[lost_in(columns, count)].tolist())
    head = [all_valid(Kind.INT, panes), all_valid(Kind.INT, np.ones(count, np.int64))]
    return assemble_rows(reduction.schema, [*head, *columns], count), lost


def matrix(packets: Sequence[Packet], rank: int, strings: tuple[str, ...]) -> Words:
    schema = Schema(FIELDS, strings)
    rows = np.zeros((len(packets), schema.words), np.uint64)
    for position, (row, packet) in enumerate(zip(rows, packets, strict=True)):
        fields = packet.fields | {"row_num": position + 1, "_rank": rank, "_position": position}
        for column in FIELDS:
            at = schema.offset(column.name)
            row[at : at + column.kind.words] = _words(fields[column.name], strings)
    return rows


def _words(value: Value, strings: tuple[str, ...]) -> list[int]:
    match value:
        case Time(ns=number) | Mac(number=number):
            return [number]
        case IPv4Address() | IPv6Address():
            return [value.version, int(value) >> 64, int(value) & 2**64 - 1]
        case str():
            return [strings.index(value) if value in strings else 0]
        case int():
            return [value]
    raise TypeError(f"{value!r} is no field of a packet")


def shown_rows(output: ResultRows) -> list[ResultRow]:
    return [json.loads(line) for line in json_writer(output.schema).write(output.rows)]
