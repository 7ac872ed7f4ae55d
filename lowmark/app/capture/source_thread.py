"""One source of `lowmark capture`: the thread that reads it, its nodes, and their records to Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ingest.files.source import Source
from ingest.live.source import LiveSource
from lowlevel.emitter import Emitter
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowmark.app.capture.heartbeat import Beating
from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.config.file import Config
from lowmark.query.plan.nodes import Node, Stage
from lowmark.wire.frames import Flaw
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import Origin, PartialBatch, encode_batch
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, INT64_MIN
from lowmark.wire.rows.words import to_batch

__all__ = ["Rounds", "SourceThread", "Successor", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """A node of a stage, under a name (`alias`) that is unique among all stages in a source's kernel."""

    stage: Stage
    node: Node
    topic: str
    send_late: bool  # a query that reads the stage wants its late tuples

    @property
    def alias(self) -> str:
        return f"{self.stage.fingerprint}/{self.node.name}"


@dataclass(frozen=True, slots=True)
class Successor:
    """The next work of a source, and its nodes, already started."""

    work: Mapping[str, Work]
    nodes: SourceNodes
    running: threading.Event = field(default_factory=threading.Event)  # set when it has taken over


class SourceThread(threading.Thread):
    """Reads one source to its end, or until it is stopped; keeps an error for the main thread."""

    def __init__(
        self, source: Source, work: Sequence[Work], config: Config, emitter: Emitter, scheduling: ThreadScheduling
    ) -> None:
        super().__init__(name=f"source {source.name}", daemon=True)
        self.source = source
        self._table = config.capture.table
        self.work: Mapping[str, Work] = {item.alias: item for item in work}
        self.nodes = self._nodes_of(self.work)
        self.error: Exception | None = None
        self.superseded = False
        self.rounds = 0  # blocks taken, empty ones too: as long as it grows, the thread does its work
        self._emitter = emitter
        self._scheduling = scheduling
        self._compression = config.capture.queue.compression
        self._beating = Beating(self.nodes)
        self.outboxes: Mapping[str, Outbox] = {}
        self._ended: dict[str, Outbox] = {}  # of work that was removed: it may come back in this epoch
        self._epoch = 0
        self._newest_ns: int | None = None  # of the frames taken so far
        self._successor: Successor | None = None

    def _nodes_of(self, work: Mapping[str, Work]) -> SourceNodes:
        nodes = [replace(item.node, name=alias) for alias, item in work.items()]
        late = [alias for alias, item in work.items() if item.send_late]
        source = self.source
        return SourceNodes(nodes, stream=source.stream, rank=source.rank, config=self._table, send_late=late)

    def open_ring(self) -> None:
        """Opens the ring of an interface, so that `open` later needs no privileges. InterfaceError if it cannot."""
        if isinstance(self.source, LiveSource):
            self.source.open()

    def open(self) -> None:
        """Opens the source and loads the kernel. CaptureError or InterfaceError if there is nothing to read,
        StartRefused if the thread may not have its CPU or priority."""
        self._scheduling.check(self.source.name)
        self.source.start()
        self.nodes.start(touched=True)

    def begin(self, epoch: int) -> None:
        """Gives the source the epoch of its records. The source covers packets from now on; a thread that is started at
        once misses none of them."""
        self._epoch = epoch
        self.source.begin()
        self.outboxes = {alias: self._outbox(item, self.source.start_ns) for alias, item in self.work.items()}

    def _outbox(self, item: Work, start_ns: int | None) -> Outbox:
        origin = Origin(item.stage.fingerprint, self.source.name, self._epoch, item.node.name)
        room = partial(self._emitter.room, item.topic)
        return Outbox(item.node, origin, item.stage.buckets, start_ns=start_ns, room=room)

    def prepare(self, work: Sequence[Work]) -> Successor:
        """Loads the kernel and allocates the tables for new work while this one goes on. Callable from any thread. The
        next switch must be to the result."""
        found = {item.alias: item for item in work}
        nodes = self._nodes_of(found)
        nodes.start(touched=True, taken_over=self.work.keys())
        return Successor(found, nodes)

    def switch_to(self, successor: Successor) -> None:
        """Switches to the successor after the present block. Callable from any thread. Work that is in both goes on
        unchanged; new work covers frames newer than the newest one taken by then; removed work stops, and windows say
        what it missed when it comes back."""
        self._successor = successor

    def supersede(self) -> None:
        """Stops, because another process has registered the source again."""
        self.superseded = True
        self.source.stop()

    def run(self) -> None:
        try:
            self._scheduling.apply(self.source.name)
            for block in self.source.blocks():
                self._send(self._beating.take(block), Ending.END if block.low_after == FOREVER else Ending.NONE)
                self.rounds += 1
                if len(block):
                    self._newest_ns = max(
                        int(block.ts.max()), INT64_MIN if self._newest_ns is None else self._newest_ns
                    )
                if self._successor is not None and block.low_after != FOREVER:
                    self._switch(self._successor)
            if not self.source.ended and not self.superseded:
                # Stopped before its end: send what is in the tables, and promise nothing more.
                self._send(self.nodes.finish(self.nodes.low_ns), Ending.NONE)
                self._end(self.work)
        except Exception as error:
            # The main thread reports it and ends the process: the other sources must not go on as if all were well.
            self.error = error

    def _switch(self, to: Successor) -> None:
        gone = [alias for alias in self.work if alias not in to.work]
        self._send(self.nodes.let_go(gone), Ending.NONE)
        self._end(gone)
        to.nodes.take_over(self.nodes)
        start_ns = self.source.start_ns if self._newest_ns is None else self._newest_ns + 1
        outboxes = {}
        for alias, item in to.work.items():
            if alias in self.outboxes:
                outboxes[alias] = self.outboxes[alias]
            elif alias in self._ended:  # sequence numbers and accounts of an epoch go on
                outboxes[alias] = back = self._ended.pop(alias)
                missed = Flaw(Reason.NOT_COVERED, back.covered_to_ns, INT64_MIN if start_ns is None else start_ns - 1)
                to.nodes.taint(alias, missed)
                back.resume(start_ns)
            else:
                outboxes[alias] = self._outbox(item, start_ns)
        # Replaced whole, never changed in place: metrics read them from another thread.
        self.work, self.nodes, self.outboxes, self._beating = to.work, to.nodes, outboxes, Beating(to.nodes)
        self._successor = None
        to.running.set()

    def _end(self, aliases: Iterable[str]) -> None:
        for alias in aliases:
            self._ended[alias] = self.outboxes[alias]
            for partition, record in self.outboxes[alias].stop():
                self._emitter.put(self.work[alias].topic, partition, encode(record))

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


class Rounds:
    """Tells whether all sources do their work: an interface, a pipe and a followed file give empty blocks where there
    is no packet. The first pass of a scan gives no block, and reads."""

    def __init__(self) -> None:
        self._seen: dict[SourceThread, tuple[int, int]] = {}

    def moved(self, threads: Iterable[SourceThread]) -> bool:
        """Whether each living thread has taken a block or read more of its file since this was last true."""
        rounds = {thread: (thread.rounds, thread.source.read_bytes) for thread in threads if thread.is_alive()}
        if any(self._seen.get(thread) == done for thread, done in rounds.items()):
            return False
        self._seen = rounds
        return True
