"""The way of records to Kafka: a sender for each topic, with a producer, a thread and a share of the room of its own.

So what befalls a topic (it is deleted, nobody may write to it any more, it takes no record of this size) is its own
affair. A producer costs about 1 MiB of memory, and threads that sleep mostly: the sender's, two, and one a broker.
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
"""Of a topic's share: a record fits."""


class Emitter:
    """Inert until `start`. `room` and `put` may be called from any thread. LowLevelConfigError where the folder for
    what has no room in memory cannot be used."""

    def __init__(self, kafka: KafkaSettings, config: QueueConfig) -> None:
        self._kafka = kafka
        self._config = config
        self._folder = None if config.spill is None else SpillFolder(config.spill)
        self._senders: Mapping[str, Sender] = {}  # never changed in place: other threads read it
        self._started = False

    def serve(self, readers: Mapping[str, Sequence[str]]) -> None:
        """The topics that records are put to from now on, each with the queries that read it; they divide the room. Of
        another one that was served what is queued still leaves."""
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
        """Connects in the background, and waits for a broker that is not there yet."""
        self._started = True
        for sender in self._senders.values():
            sender.start()

    def room(self, topic: str, size: int) -> bool:
        """Whether so many bytes of data still fit: when not, they are to be given up before they get a number."""
        return self._senders[topic].room(size)

    def put(self, topic: str, partition: int, record: WireRecord) -> None:
        """Takes a numbered record, whether there is room or not: it will arrive behind all that were put before it."""
        self._senders[topic].put(partition, record)

    def drained(self, timeout_s: float) -> bool:
        """Waits until everything has been acknowledged, and says whether it was. What is in the hands of a thread that
        has ended will never be, and is not waited for."""
        until = time.monotonic() + timeout_s
        heard = [sender for sender in self._senders.values() if sender.helper.failure is None]
        return all(sender.drained(max(0.0, until - time.monotonic())) for sender in heard)

    def stop(self) -> None:
        """What is not acknowledged by now is lost: `drained` comes before."""
        for sender in self._senders.values():
            sender.stop()

    def states(self) -> tuple[TopicState, ...]:
        """Of each topic."""
        return tuple(sender.state() for sender in self._senders.values())

    def helpers(self) -> tuple[Helper, ...]:
        """The threads that hear the broker."""
        return tuple(sender.helper for sender in self._senders.values())
