"""The time from a packet on an interface to its record in Kafka."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.common.settings import Installation
from bench.host.generator import Generator
from ingest.config import LiveConfig
from ingest.live.source import LiveSource
from lowlevel.emitter import Emitter
from lowmark.app.capture.scheduling import ThreadScheduling
from lowmark.app.capture.source_thread import SourceThread, Work
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.settings import consumer_options
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.rows.schema import Schema

__all__ = ["record_delays"]

_RATE = 5_000  # packets a second
_SELECTION = "SELECT ts, srcIP, destIP, len FROM Main"
_POLL_S = 0.01
_WARM_UP_S = 1.0  # in which Kafka's client makes its connections
_QUIET_S = 3.0  # after which nothing more comes
_DRAINED_S = 20.0


def record_delays(seconds: float) -> list[float]:
    """In seconds, of each packet that a selection's node sends on: from the kernel's time stamp until a reader has its
    record. Thread, emitter and broker are the product's; the broker's jars are in the cache by now."""
    with (
        tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name,
        Broker(Path(name) / "broker") as broker,
    ):
        streams = {"Main": {"near": "not-read.pcap"}}
        installation = Installation(Path(name) / "live", broker.bootstrap, _SELECTION, streams)
        installation.create_topics()
        return list(_delays(installation, seconds))


def _delays(installation: Installation, seconds: float) -> Iterator[float]:
    config, stage = installation.config, installation.plan.stage
    topic = Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name
    (node,) = stage.nodes
    emitter = Emitter(config.kafka, config.capture.queue)
    emitter.serve({topic: [installation.plan.name]})
    source = LiveSource(LiveConfig(name="near", stream="Main", interface="near"))
    thread = SourceThread(source, [Work(stage, node, topic, False)], config, emitter, ThreadScheduling())
    reader = Consumer(consumer_options(config.kafka, "reach"))
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(stage.buckets)])
    emitter.start()
    try:
        thread.open()
        thread.begin(0)
        thread.start()
        generator = Generator(_RATE, _WARM_UP_S + seconds)
        yield from _read(reader, node.reduction.schema)
        generator.ended()
    finally:
        source.stop()
        thread.join()
        emitter.drained(_DRAINED_S)
        emitter.stop()
        reader.close()
        source.close()
    if thread.error is not None:
        raise thread.error


def _read(reader: Consumer, schema: Schema) -> Iterator[float]:
    """Of what comes behind the warm-up, until nothing has come for a while."""
    heard, from_ns = time.monotonic(), 0
    while time.monotonic() - heard < _QUIET_S:
        message = reader.poll(_POLL_S)
        now_ns = time.time_ns()
        if message is None or message.error() is not None:
            continue
        record = decode(message.headers(), message.value(), lambda origin: schema)
        if isinstance(record, PartialBatch):
            heard = time.monotonic()
            times = record.rows.column("ts").cast("int64").to_pylist()
            from_ns = from_ns or min(times) + int(_WARM_UP_S * 1e9)
            yield from ((now_ns - ts) / 1e9 for ts in times if ts >= from_ns)
