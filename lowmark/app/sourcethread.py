"""One source of `lowmark capture`: a thread that reads it, its nodes, and their way to Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ingest.source import Source
from lowlevel.emitter import Emitter
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.app.beating import Beating
from lowmark.app.config import Config
from lowmark.app.scheduling import Scheduling
from lowmark.query.plan import Node, Stage
from lowmark.wire.codec import encode
from lowmark.wire.frames import FOREVER
from lowmark.wire.partials import Origin, PartialBatch, encode_batch
from lowmark.wire.promises import Ending
from lowmark.wire.rows import to_batch

__all__ = ["SourceThread", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """A node of a stage, as a source's kernel knows it: there its name is unique among all stages."""

    stage: Stage
    node: Node
    topic: str
    send_late: bool  # a query that reads the stage wants its late tuples

    @property
    def alias(self) -> str:
        return f"{self.stage.fingerprint}/{self.node.name}"


class SourceThread(threading.Thread):
    """Reads one source to its end, or until it is stopped; what went wrong is kept for the main thread."""

    def __init__(
        self, source: Source, work: Sequence[Work], config: Config, emitter: Emitter, scheduling: Scheduling
    ) -> None:
        super().__init__(name=f"source {source.name}", daemon=True)
        self.source = source
        self.work = {item.alias: item for item in work}
        nodes = [replace(item.node, name=alias) for alias, item in self.work.items()]
        late = [alias for alias, item in self.work.items() if item.send_late]
        self.nodes = SourceNodes(
            nodes, stream=source.stream, rank=source.rank, config=config.capture.table, send_late=late
        )
        self.error: Exception | None = None
        self.superseded = False
        self._emitter = emitter
        self._scheduling = scheduling
        self._compression = config.capture.queue.compression
        self._beating = Beating(self.nodes)
        self.outboxes: dict[str, Outbox] = {}

    def open(self) -> None:
        """Opens the source and loads the kernel. CaptureError or InterfaceError when there is nothing to read."""
        self.source.start()
        self.nodes.start()

    def begin(self, epoch: int) -> None:
        """The source has its epoch: its records can be numbered."""
        for alias, item in self.work.items():
            origin = Origin(item.stage.fingerprint, self.source.name, epoch, item.node.name)
            self.outboxes[alias] = Outbox(
                item.node, origin, item.stage.buckets, start_ns=self.source.start_ns, room=self._emitter.room
            )

    def supersede(self) -> None:
        """A later life of the source has begun elsewhere: this one has nothing more to say."""
        self.superseded = True
        self.source.stop()

    def run(self) -> None:
        try:
            self._scheduling.apply(self.source.name)
            for block in self.source.blocks():
                self._send(self._beating.take(block), Ending.END if block.low_after == FOREVER else Ending.NONE)
            if not self.source.ended and not self.superseded:
                # Stopped before its end, if it has one: what is in the tables is sent and nothing more promised.
                self._send(self.nodes.finish(self.nodes.low_ns), Ending.NONE)
                for alias, item in self.work.items():
                    for partition, record in self.outboxes[alias].stop():
                        self._emitter.put(item.topic, partition, encode(record))
        except Exception as error:
            # Told by the main thread, which ends the process: the other sources must not go on as if all were well.
            self.error = error

    def _send(self, outputs: Iterable[NodeOutput], ending: Ending) -> None:
        for output in outputs:
            item = self.work[output.node]
            schema = item.node.reduction.schema
            for partition, record in self.outboxes[output.node].take(output, ending):
                if isinstance(record, Rows):
                    rows = to_batch(schema, record.rows)
                    batch = PartialBatch(record.origin, record.sequence, rows, record.tuples, record.late)
                    self._emitter.put(item.topic, partition, encode_batch(batch, self._compression))
                else:
                    self._emitter.put(item.topic, partition, encode(record))
