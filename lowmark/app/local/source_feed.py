"""One source of a local run: its capture or interface, the nodes that read it, and their records."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence

from highlevel.progress.records import Batch, Record
from ingest.files.source import Source
from lowlevel.config import LowLevelConfig
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.app.capture.heartbeat import Beating
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Feed", "FeedThreads"]

_WAITING = 32  # steps queued between source threads and operators; beyond that, packets wait in the rings


class Feed:
    """Inert until `start()`."""

    def __init__(
        self, source: Source, nodes: Sequence[Node], config: LowLevelConfig, stage: str, send_late: bool
    ) -> None:
        self.source = source
        late = [node.name for node in nodes if send_late]
        self.nodes = SourceNodes(nodes, stream=source.stream, rank=source.rank, config=config, send_late=late)
        self.low = NEVER
        self._origins = {node.name: (node, Origin(stage, source.name, 0, node.name)) for node in nodes}
        self._outboxes: dict[str, Outbox] = {}
        self._beating = Beating(self.nodes)

    def start(self) -> None:
        """Opens the source and loads the kernel."""
        self.source.start()
        self.nodes.start(touched=self.source.live)

    def begin(self) -> None:
        """Covers the packets from now on."""
        self.source.begin()
        self._outboxes = {
            name: Outbox(node, origin, 1, start_ns=self.source.start_ns)
            for name, (node, origin) in self._origins.items()
        }

    @property
    def ended(self) -> bool:
        return self.low == FOREVER

    @property
    def kind(self) -> SourceKind:
        """LIVE for interfaces: only they may begin in the middle of a window."""
        return SourceKind.LIVE if self.source.live else SourceKind.FINITE

    def steps(self) -> Iterator[list[Record]]:
        """The records of each block. A stopped source counts as ended, so that its last windows come too."""
        for block in self.source.blocks():
            yield list(self._taken(block))
        if not self.ended:
            self.low = FOREVER
            yield list(self._records(self.nodes.finish()))

    def _taken(self, block: FrameBlock) -> Iterator[Record]:
        self.low = block.low_after
        yield from self._records(self._beating.take(block))

    def _records(self, outputs: Iterable[NodeOutput]) -> Iterator[Record]:
        ending = Ending.END if self.ended else Ending.NONE
        for output in outputs:
            for _, record in self._outboxes[output.node].take(output, ending):
                if isinstance(record, Rows):
                    yield Batch(record.origin, record.sequence, record.rows, record.tuples, record.late)
                else:
                    yield record


class FeedThreads:
    """Runs each feed in its own thread, because interfaces and files that grow cannot wait for one another."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._taken: queue.Queue[tuple[Feed, list[Record] | Exception | None]] = queue.Queue(_WAITING)
        self._threads = [
            threading.Thread(target=self._run, args=(feed,), name=f"source {feed.source.name}", daemon=True)
            for feed in feeds
        ]

    def steps(self) -> Iterator[tuple[Feed, list[Record]]]:
        """The records of the feeds' blocks, as they arrive, until all feeds have ended. Raises the error of a feed."""
        for thread in self._threads:
            thread.start()
        running = len(self._threads)
        while running:
            feed, records = self._taken.get()
            if isinstance(records, Exception):
                raise records
            if records is None:
                running -= 1
            else:
                yield feed, records

    def _run(self, feed: Feed) -> None:
        try:
            for records in feed.steps():
                self._taken.put((feed, records))
        except Exception as error:  # raised again in the thread that runs the query
            self._taken.put((feed, error))
        else:
            self._taken.put((feed, None))
