"""A query in several buckets at the pace of its stream: second by second everything comes, with the promise that it is
all of the second, and the buckets send each other what they have until nothing is left. So it can be seen when a row
came out."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType

from highlevel.build import Build, build
from highlevel.interface import State, Words
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowmark.query.plan.nodes import Node, QueryPlan
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.rows.values import FOREVER

__all__ = ["Feed", "paced", "rows_out"]

NS = 10**9

Feed = Callable[[Node, str, int], Words]
"""Rows of a node that come of a stream's only source in a second."""


def paced(
    plan: QueryPlan,
    feed: Feed,
    seconds: range,
    *,
    ends: Mapping[str, int] = MappingProxyType({}),
    lost: Container[tuple[str, int]] = (),
    build: Build = build,
    again: bool = False,
) -> Iterator[tuple[int, list[Output]]]:
    """What each bucket gives out, but for what goes to other buckets, by the end of which second; with the last one
    the sources end, but those with an end of their own. `lost`: streams and seconds whose rows
    do not arrive. `again`: every micro-batch begins with what its state says in bytes."""
    streams = sorted({stream for node in plan.stage.nodes for stream in node.streams})
    roster = Roster.of({stream: (stream,) for stream in streams})
    buckets = [_Bucket(plan, bucket, roster, build, again) for bucket in range(plan.stage.buckets)]
    outboxes = {
        (node.name, stream): Outbox(node, Origin(plan.stage.fingerprint, stream, 1, node.name), plan.stage.buckets)
        for node in plan.stage.nodes
        for stream in node.streams
    }
    for second in seconds:
        for node in plan.stage.nodes:
            for stream in node.streams:
                end = ends.get(stream, seconds[-1])
                if second > end:
                    continue
                progress = NodeProgress((second + 1) * NS if second < end else FOREVER)
                ending = Ending.NONE if second < end else Ending.END
                output = NodeOutput(node.name, feed(node, stream, second), progress)
                for bucket, sent in outboxes[node.name, stream].take(output, ending):
                    if not isinstance(sent, Rows):
                        buckets[bucket].waiting.append(sent)
                    elif (stream, second) not in lost:
                        batch = Batch(sent.origin, sent.sequence, sent.rows, sent.tuples)
                        buckets[bucket].waiting.append(batch)
        while any(each.waiting for each in buckets):
            for each in buckets:
                outputs = each.micro_batch()
                for output in outputs:
                    if isinstance(output, Forward):
                        buckets[output.partition].waiting.append(output.record)
                yield second + 1, [output for output in outputs if not isinstance(output, Forward)]


def rows_out(outputs: Iterator[tuple[int, list[Output]]]) -> Iterator[tuple[int, ResultRows]]:
    return ((second, each) for second, given in outputs for each in given if isinstance(each, ResultRows))


class _Bucket:
    def __init__(self, plan: QueryPlan, bucket: int, roster: Roster, build: Build, again: bool) -> None:
        self.waiting: list[Record] = []
        self._store = MemoryByteStore()
        self._again = again
        self._make = lambda state: BucketDriver(plan.stage, (plan,), bucket, state, roster, 1, build)
        self._read = lambda: PiecewiseState(self._store, plan.stage.fingerprint)
        self._state: State = self._read() if again else MemoryState()
        self._driver = self._make(self._state)
        self._position = 0

    def micro_batch(self) -> tuple[Output, ...]:
        records, self.waiting = self.waiting, []
        for record in records:
            self._driver.take(record, Arrival(self._position))
            self._position += 1
        outputs = self._driver.flush().outputs
        if isinstance(self._state, PiecewiseState):
            self._state.commit()
            self._state = self._read()
            self._driver = self._make(self._state)
        return tuple(outputs)
