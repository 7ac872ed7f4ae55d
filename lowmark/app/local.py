"""The local runner: sources, nodes and operators of one query in this process, without Kafka or Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Output, Rejection, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.progress.roster import Roster
from highlevel.state import MemoryState
from ingest.config import FileConfig
from ingest.disorder import Disorder
from ingest.source import FileSource
from lowlevel.config import LowLevelConfig
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.app.audit import Audit
from lowmark.app.bindings import Binding
from lowmark.query.plan import Node, QueryPlan
from lowmark.wire.frames import FOREVER, FrameBlock
from lowmark.wire.partials import Origin
from lowmark.wire.promises import Ending
from lowmark.wire.results import Complete
from lowmark.wire.rows import Words

__all__ = ["LocalRun"]

_BEGINNING = -(2**63)


class _Feed:
    """One capture, the nodes that read it, and their way into the bucket."""

    def __init__(self, source: FileSource, nodes: Sequence[Node], config: LowLevelConfig, stage: str) -> None:
        self.source = source
        self.nodes = SourceNodes(nodes, stream=source.stream, rank=source.rank, config=config)
        self.low = _BEGINNING
        self._outboxes = {node.name: Outbox(node, Origin(stage, source.name, 0, node.name), 1) for node in nodes}
        self._blocks: Iterator[FrameBlock] = iter(())

    def start(self) -> None:
        self.source.start()
        self.nodes.start()
        self._blocks = self.source.blocks()

    @property
    def ended(self) -> bool:
        return self.low == FOREVER

    def step(self) -> Iterator[Record]:
        """The records of the next block."""
        block = next(self._blocks)
        self.low = block.low_after
        for output in self.nodes.take(block):
            yield from self._records(output)

    def _records(self, output: NodeOutput) -> Iterator[Record]:
        ending = Ending.END if self.ended else Ending.NONE
        for _, record in self._outboxes[output.node].take(output, ending):
            if isinstance(record, Rows):
                yield Batch(record.origin, record.sequence, record.rows, record.tuples)
            else:
                yield record


class LocalRun:
    """One query over captures. Inert until `start`; then `results` delivers its rows as they become final."""

    def __init__(
        self, plan: QueryPlan, bindings: Sequence[Binding], *, disorder: Disorder | None, config: LowLevelConfig
    ) -> None:
        """The plan has one bucket: everything meets in this process."""
        self.audit = Audit()
        self._feeds = [_feed(plan, binding, disorder, config) for binding in bindings]
        roster: dict[str, tuple[str, ...]] = {}
        for binding in bindings:
            roster[binding.stream] = (*roster.get(binding.stream, ()), binding.source)
        self._driver = BucketDriver(plan.stage, (plan,), 0, MemoryState(), Roster.of(roster), 0)
        self._position = 0

    @property
    def read_bytes(self) -> int:
        return sum(feed.source.read_bytes for feed in self._feeds)

    @property
    def total_bytes(self) -> int | None:
        """None where there is no saying."""
        totals = [feed.source.total_bytes for feed in self._feeds]
        return None if None in totals else sum(total for total in totals if total is not None)

    def start(self) -> None:
        """Opens the captures and compiles or loads the kernels. CaptureError for what cannot be read at all."""
        for feed in self._feeds:
            feed.start()

    def results(self) -> Iterator[Words]:
        """Rows in batches, those of one window together; the audit is whole when this ends. Between two batches there
        may be empty ones: time to show progress."""
        waiting = list(self._feeds)
        while waiting:
            # The source that is furthest behind holds up all windows, and what is ahead of it has to be kept.
            feed = min(waiting, key=lambda candidate: candidate.low)
            for record in feed.step():
                self._driver.take(record, Arrival(self._position))
                self._position += 1
            for output in self._driver.flush().outputs:
                yield from self._rows(output)
            if feed.ended:
                waiting.remove(feed)
                self._account(feed)

    def close(self) -> None:
        for feed in self._feeds:
            feed.source.close()

    def _rows(self, output: Output) -> Iterator[Words]:
        match output:
            case ResultRows(rows=rows):
                self.audit.rows += len(rows)
                yield rows
            case Complete():
                self.audit.complete(output)
            case Rejection(detail=detail):
                raise RuntimeError(f"a record of this process was refused: {detail}")

    def _account(self, feed: _Feed) -> None:
        audit = self.audit
        audit.received += feed.nodes.received
        audit.decoded += feed.nodes.decoded
        audit.skipped.update({reason.name.lower(): count for reason, count in feed.nodes.skipped.items()})
        for counts in feed.nodes.counts().values():
            audit.filtered += counts.filtered
            audit.late += counts.late
        if feed.source.damage is not None:
            audit.damage.append(str(feed.source.damage))


def _feed(plan: QueryPlan, binding: Binding, disorder: Disorder | None, config: LowLevelConfig) -> _Feed:
    file = FileConfig(name=binding.source, stream=binding.stream, path=binding.path, disorder=disorder)
    nodes = [node for node in plan.stage.nodes if binding.stream in node.streams]
    return _Feed(FileSource(file, rank=binding.rank), nodes, config, plan.stage.fingerprint)
