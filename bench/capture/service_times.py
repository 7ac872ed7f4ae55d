"""What the thread of a capture source takes for each block of its ring: kernel, table, encoding, hand-off to Kafka's
client. It is the product's own thread of a source; only the ring is not there, and the broker is one that does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from bench.capture.ring_model import Service
from bench.common.frames import MINUTE_NS, START_NS, Traffic, blocks_of, records_of
from bench.common.settings import Installation
from ingest.disorder.declarations import Disorder
from ingest.files.errors import Damage
from lowlevel.config import LowLevelConfig
from lowlevel.emitter import Emitter
from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.capture.source_thread import SourceThread, Work
from lowmark.wire.frames import FrameBlock
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["Node", "Served"]

_WINDOWS = 4
_WARM_UP = 2  # windows: buffers are touched for the first time at the first one's end
_A_GROUP = 4  # packets in a window, so that a table is as full at its end as it gets
_MOST_RECORDS = 4_000_000  # kept; they come again and again
_QUEUE_BYTES = 4 << 30
_DRAINED_S = 120.0
_SQL = "SELECT srcIP, destIP, count(*) [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM Main GROUP BY srcIP, destIP"  # Q8-1


@dataclass(frozen=True, slots=True)
class Served:
    service: Service
    evicted: float  # rows a packet that left by collisions
    mean_ns: float  # a packet


@dataclass
class _Windows:
    """A source of a few windows, which notes how long it is until a block is given back."""

    traffic: Traffic
    records: npt.NDArray[np.uint8]
    packets: int  # of a window
    block: int
    name: str = "near"
    stream: str = "Main"
    rank: int = 0
    received: int = 0
    ended: bool = False
    damages: list[Damage] = field(default_factory=list)
    live: bool = False
    start_ns: int | None = None
    bound_ns: int | None = None
    filtering: bool = False
    waits: bool = False
    disorder: Disorder | None = None
    read_bytes: int = 0
    total_bytes: int | None = None
    took: list[list[int]] = field(default_factory=list)

    def start(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def blocks(self) -> Iterator[FrameBlock]:
        for window in range(_WINDOWS):
            self.took.append([])
            for block in self._window(window):
                self.received += len(block)
                begun = time.thread_time_ns()
                yield block
                self.took[-1].append(time.thread_time_ns() - begun)
        self.ended = True

    def _window(self, window: int) -> Iterator[FrameBlock]:
        """Not in the order of the window before: else each group would come exactly a window after it came last."""
        room = len(self.records) - self.block
        first = window * self.packets // 3
        for start in range(0, self.packets, self.block):
            ts = np.arange(start, start + self.block, dtype=np.int64) * MINUTE_NS // self.packets
            place = (first + start) % room
            yield from blocks_of(
                self.records[place : place + self.block], START_NS + window * MINUTE_NS + ts, self.block
            )


class Node:
    """The node of Q8-1 over this many pairs of addresses that are all alike. `folder` is for a configuration."""

    def __init__(self, folder: Path, groups: int) -> None:
        self._traffic = Traffic(groups)
        self._packets = _A_GROUP * groups
        self._records = records_of(self._traffic, min(2 * self._packets, _MOST_RECORDS))
        # A cluster that librdkafka plays itself; it lives as long as its client.
        self._cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        (broker,) = self._cluster.list_topics(timeout=10).brokers.values()
        streams = {"Main": {"near": "not-read.pcap"}}
        self._installation = Installation(folder, f"{broker.host}:{broker.port}", _SQL, streams)

    def serve(self, table: LowLevelConfig, block: int) -> Served:
        """CPU time of blocks of this many packets."""
        config = self._installation.config
        queue = replace(config.capture.queue, max_bytes=_QUEUE_BYTES)  # nothing is to be given up
        config = replace(config, capture=replace(config.capture, table=table, queue=queue))
        stage = self._installation.plan.stage
        topic = Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name
        packets = self._packets // block * block
        source = _Windows(self._traffic, self._records, packets, block)
        emitter = Emitter(config.kafka, queue)
        emitter.serve({topic: [self._installation.plan.name]})
        emitter.start()
        try:
            work = [Work(stage, node, topic, False) for node in stage.nodes]
            thread = SourceThread(source, work, config, emitter, ThreadScheduling())
            thread.open()
            thread.begin(0)
            thread.run()
            if thread.error is not None:
                raise thread.error
            if not emitter.drained(_DRAINED_S):
                raise RuntimeError(f"the cluster has not taken all records in {_DRAINED_S:.0f} s")
        finally:
            emitter.stop()
        windows = [np.array(took) for took in source.took[_WARM_UP:]]
        late = np.concatenate([window[len(window) // 2 :] for window in windows])
        (counts,) = thread.nodes.counts().values()
        return Served(
            Service(block, windows, late.mean() / block, MINUTE_NS),
            counts.evicted / source.received,
            np.concatenate(windows).mean() / block,
        )
