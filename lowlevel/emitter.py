"""Sends records to Kafka: a sender for each topic, with its own producer, thread and share of the queue's room.

A fault of one topic (it is deleted, writing is no longer allowed, it takes no record of this size) affects no other. A
producer costs about 1 MiB of memory, and threads that mostly sleep: the sender's, two more, and one per broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lowlevel.config import QueueConfig
from lowlevel.sender import Sender, TopicState
from lowlevel.spill import SpillFolder
from lowmark.helpers import Helper
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.records.record import WireRecord

__all__ = ["Emitter", "TopicState"]

_LEAST_BYTES = 1 << 20
"""The least share of a topic, in bytes: one record fits."""


class Emitter:
    """Inactive until `start`. `room` and `put` may be called from any thread. Raises LowLevelConfigError if the folder
    for records that do not fit into memory cannot be used."""

    def __init__(self, kafka: KafkaSettings, config: QueueConfig) -> None:
        self._kafka = kafka
        self._config = config
        self._folder = None if config.spill is None else SpillFolder(config.spill)
        self._senders: Mapping[str, Sender] = {}  # never changed in place: other threads read it
        self._started = False

    def serve(self, readers: Mapping[str, Sequence[str]]) -> None:
        """Set the topics that records are put to from now on, each with the queries that read it; they divide the room.
        Records queued for topics served before are still sent."""
        senders = {}
        for topic, before in self._senders.items():
            if topic not in readers and not before.state().queued_records:
                before.stop()
            else:
                senders[topic] = before
        new = [Sender(topic, self._kafka, self._config, self._folder) for topic in readers if topic not in senders]
        senders |= {sender.topic: sender for sender in new}
        for sender in senders.values():
            sender.readers = tuple(readers.get(sender.topic, ()))
            sender.share(
                max(_LEAST_BYTES, self._config.max_bytes // max(1, len(readers))),
                max(_LEAST_BYTES, self._config.spill_bytes // max(1, len(readers))),
            )
        self._senders = senders
        if self._started:
            for sender in new:
                sender.start()

    def start(self) -> None:
        """Connect in the background, and wait for a broker that is not there yet."""
        self._started = True
        for sender in self._senders.values():
            sender.start()

    def room(self, topic: str, size: int) -> bool:
        """Whether this many more bytes of data fit. If not, the caller gives the data up before it gets a number."""
        return self._senders[topic].room(size)

    def put(self, topic: str, partition: int, record: WireRecord) -> None:
        """Take a numbered record, even without room: it will arrive after all records put before it."""
        self._senders[topic].put(partition, record)

    def drained(self, timeout_s: float) -> bool:
        """Wait until everything has been acknowledged; returns whether it was. Records of a thread that has ended never
        will be, so they are not awaited."""
        until = time.monotonic() + timeout_s
        heard = [sender for sender in self._senders.values() if sender.helper.failure is None]
        return all(sender.drained(max(0.0, until - time.monotonic())) for sender in heard)

    def stop(self) -> None:
        """Stop; records not acknowledged by now are lost. Call `drained` first."""
        for sender in self._senders.values():
            sender.stop()

    def states(self) -> tuple[TopicState, ...]:
        """The state of each topic."""
        return tuple(sender.state() for sender in self._senders.values())

    def helpers(self) -> tuple[Helper, ...]:
        """The threads that receive the brokers' answers."""
        return tuple(sender.helper for sender in self._senders.values())
