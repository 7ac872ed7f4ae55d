"""A capture host: its traffic, and the processes that see it one after the other."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from random import Random

import numpy as np
import numpy.typing as npt

from lowlevel.config import LowLevelConfig, QueueConfig
from lowlevel.kernel.cache import Kernel, kernel
from lowlevel.node import NodeOutput, SourceNodes
from lowlevel.outbox import Outbox, Rows
from lowlevel.sender import Sender
from lowlevel.source_registration import SourcesLog
from lowlevel.spill import SpillFolder
from lowmark.query.plan.nodes import Stage
from lowmark.wire.frames import FrameBlock
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.registration import Registration, SourceKind
from lowmark.wire.rows.values import INT64_MIN
from lowmark.wire.rows.words import to_batch
from tests.naive.packets import Arrival, Packet
from tests.naive.values import Time
from tests.world.clients import Broker, Producer
from tests.world.clock import SECOND
from tests.world.network import Process

__all__ = ["KAFKA", "SOURCES", "CaptureHost", "cached_kernels", "traffic"]

KAFKA = KafkaSettings("world:1")
SOURCES = Topic(TopicKind.SOURCES, None).name

_DISORDER_NS = SECOND // 5
_FRAME_BYTES = 42
_ADDRESSES = 6

_compiled: dict[str, tuple[Kernel, npt.NDArray[np.int64]]] = {}


def cached_kernels(*asked: object) -> tuple[Kernel, npt.NDArray[np.int64]]:
    """In the place of `lowlevel.node.kernel`: to write a kernel's text takes longer than the rest of a schedule."""
    name = repr(asked)
    if name not in _compiled:
        _compiled[name] = kernel(*asked)  # type: ignore[arg-type]
    return _compiled[name]


@functools.cache
def _frame(address: int) -> npt.NDArray[np.uint8]:
    frame = np.zeros(_FRAME_BYTES, np.uint8)
    frame[12:14] = 8, 0
    frame[14] = 0x45
    frame[16:18] = 0, _FRAME_BYTES - 14
    frame[22:24] = 64, 17
    frame[26:34] = 10, 0, 0, address, 10, 9, 9, 9
    return frame


@dataclass(frozen=True, slots=True)
class Seen:
    arrival_ns: int
    ts: int
    address: int
    length: int

    def packet(self, stream: str, rank: int, position: int) -> Packet:
        fields = {"ts": Time(self.ts), "srcIP": IPv4Address(0x0A000000 + self.address), "len": self.length}
        return Packet(fields, Arrival(self.ts, stream, rank, position))


def traffic(random: Random, begin_ns: int, seconds: float, late: float) -> list[Seen]:
    """Packets as they arrive, each a moment after its time; a share of them far too late."""
    found: list[Seen] = []
    at = begin_ns
    while at < begin_ns + seconds * SECOND:
        at += random.randrange(SECOND // 100, SECOND // 2)
        behind = random.randrange(8 * SECOND) if random.random() < late else random.randrange(_DISORDER_NS)
        found.append(Seen(at, max(begin_ns, at - behind), random.randrange(_ADDRESSES), random.randrange(60, 1500)))
    return found


class CaptureHost:
    """One source. It has at most one process at a time that reads; a process that died may have records on their
    way."""

    def __init__(
        self, broker: Broker, stages: Sequence[Stage], stream: str, name: str, rank: int, packets: Sequence[Seen],
        random: Random, folder: SpillFolder,
    ) -> None:  # fmt: skip
        self.name = name
        self.packets = packets
        self.rank = rank
        self.stream = stream
        self.lives = 0
        self.process: Process | None = None
        self._broker = broker
        self._stages = stages
        self._random = random
        self._folder = folder
        self._next = 0  # packet
        self._low = INT64_MIN
        self._nodes: SourceNodes | None = None
        self._outboxes: dict[str, tuple[Stage, Outbox]] = {}
        self.senders: dict[str, Sender] = {}

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """A process begins to read. What passed before it did is seen by nobody."""
        self.lives += 1
        self.process = process = Process(f"capture {self.name}, life {self.lives}")
        broker = self._broker
        with broker.network.running(process):
            aliases = {
                f"{stage.fingerprint}/{each.name}": (stage, each) for stage in self._stages for each in stage.nodes
            }
            nodes = [replace(each, name=alias) for alias, (_, each) in aliases.items()]
            config = LowLevelConfig(slots=4, output_rows=64)
            self._nodes = SourceNodes(
                nodes, stream=self.stream, rank=self.rank, config=config, seed=self._random.randrange(1 << 30)
            )
            self._nodes.start()
            start_ns = broker.clock.now_ns
            while self._next < len(self.packets) and self.packets[self._next].arrival_ns <= start_ns:
                self._next += 1
            registration = Registration(
                self.name, self.stream, SourceKind.LIVE, None, start_ns, "within 200 ms", process.name
            )
            epoch = SourcesLog(KAFKA, SOURCES).append(registration)
            self._low = INT64_MIN
            self.senders = {}
            for stage in self._stages:
                topic = Topic(TopicKind.PARTIALS, stage.fingerprint).name
                self.senders[stage.fingerprint] = sender = Sender(
                    topic, KAFKA, QueueConfig(), self._folder, broker.clock.monotonic
                )
                if self._random.random() < 0.2:
                    sender.share(20_000, self._random.choice((0, 40_000)))
                sender.turn()
            self._outboxes = {
                alias: (
                    stage,
                    Outbox(
                        each, Origin(stage.fingerprint, self.name, epoch, each.name), stage.buckets, start_ns=start_ns,
                        room=self.senders[stage.fingerprint].room,
                    ),
                )
                for alias, (stage, each) in aliases.items()
            }  # fmt: skip

    def kill(self) -> None:
        """What its tables and queues hold is lost; records on their way may still arrive."""
        if self.process is not None:
            self.process.alive = False
        for sender in self.senders.values():
            producer = sender._producer
            if isinstance(producer, Producer):
                producer.fail(self._random.randrange(3))

    def look(self) -> None:
        """The process takes what has arrived, and what its clock says."""
        if self.process is None or self._nodes is None or not self.alive or self._broker.network.busy(self.process):
            return
        now_ns = self._broker.clock.now_ns
        first = self._next
        while self._next < len(self.packets) and self.packets[self._next].arrival_ns <= now_ns:
            self._next += 1
        with self._broker.network.running(self.process):
            block = self._block(self.packets[first : self._next], now_ns)
            self._send(self._nodes.take(block))
            self._send(self._nodes.heartbeat(now_ns))

    def send(self, count: int, fail: bool = False) -> None:
        """So many records of each topic reach the broker, and its answers come back, in any order of partitions."""
        if self.process is None or not self.alive or self._broker.network.busy(self.process):
            return
        with self._broker.network.running(self.process):
            for sender in self.senders.values():
                producer = sender._producer
                if isinstance(producer, Producer):
                    if fail:
                        producer.fail(count)
                    else:
                        producer.deliver(count)
                        producer.mix_answers(self._random.randrange)
                sender.turn()

    @property
    def gave_up(self) -> bool:
        return any(outbox.counters["given_up"] for _, outbox in self._outboxes.values())

    @property
    def waits(self) -> bool:
        return any(sender.state().queued_records for sender in self.senders.values())

    def _block(self, seen: Sequence[Seen], now_ns: int) -> FrameBlock:
        count = len(seen)
        lows = np.empty(count, np.int64)
        for number, each in enumerate(seen):
            lows[number] = self._low
            self._low = max(self._low, each.arrival_ns - _DISORDER_NS)
        self._low = max(self._low, now_ns - _DISORDER_NS)
        data = np.concatenate([_frame(each.address) for each in seen]) if count else np.empty(0, np.uint8)
        return FrameBlock(
            data, np.arange(count, dtype=np.int64) * _FRAME_BYTES, np.full(count, _FRAME_BYTES, np.int64),
            np.array([each.length for each in seen], np.int64), np.array([each.ts for each in seen], np.int64),
            np.ones(count, np.int32), lows, self._low, taken_ns=now_ns,
        )  # fmt: skip

    def _send(self, outputs: Iterable[NodeOutput]) -> None:
        for output in outputs:
            stage, outbox = self._outboxes[output.node]
            for partition, record in outbox.take(output, Ending.NONE):
                if isinstance(record, Rows):
                    schema = next(each for each in stage.nodes if output.node.endswith(each.name)).reduction.schema
                    rows = to_batch(schema, record.rows)
                    wire = encode(PartialBatch(record.origin, record.sequence, rows, record.tuples, record.late))
                else:
                    wire = encode(record)
                self.senders[stage.fingerprint].put(partition, wire)
