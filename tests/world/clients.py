"""Kafka's client on the simulated broker: the part of confluent_kafka's interface that lowmark uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from lowmark.wire.kafka import clients
from tests.world.clock import Clock
from tests.world.log import Entry, Headers, Log, OutOfOrder
from tests.world.network import How, Network
from tests.world.transactions import Coordinator, Fenced, NoTransaction, Unstable

__all__ = ["Broker", "Consumer", "Producer"]


class Broker:
    """What clients of the world reach."""

    def __init__(self, clock: Clock, network: Network) -> None:
        self.clock = clock
        self.network = network
        self.log = Log()
        self.coordinator = Coordinator(self.log, clock)
        self.late: deque[Callable[[], None]] = deque()  # requests of clients that are gone, still on their way

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """In this block, all clients that lowmark makes are of this broker."""
        with (
            mock.patch.object(clients, "Producer", lambda options, logger=None: Producer(self, options)),
            mock.patch.object(clients, "Consumer", lambda options, logger=None: Consumer(self, options)),
        ):
            yield


def error(
    code: int, text: str, retriable: bool = False, abort: bool = False, fatal: bool = False
) -> KafkaException:  # fmt: skip
    return KafkaException(KafkaError(code, text, fatal, retriable, abort))


class Message:
    """A delivered or a received message, or the word that a partition has ended."""

    def __init__(self, topic: str, partition: int, entry: Entry | None, problem: KafkaError | None = None) -> None:
        self._topic, self._partition, self._entry, self._problem = topic, partition, entry, problem

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return -1 if self._entry is None else self._entry.offset

    def key(self) -> bytes | None:
        return None if self._entry is None else self._entry.key

    def value(self) -> bytes | None:
        return None if self._entry is None else self._entry.value

    def headers(self) -> list[tuple[str, bytes]]:
        return [] if self._entry is None else list(self._entry.headers)

    def timestamp(self) -> tuple[int, int]:
        return 2, 0 if self._entry is None else self._entry.appended_ns // 10**6

    def error(self) -> KafkaError | None:
        return self._problem


OnDelivery = Callable[[KafkaError | None, Message], None]


class Producer:
    """Records are on their way from `produce` on and reach the broker in order, at the latest with `flush`."""

    def __init__(self, broker: Broker, options: Mapping[str, Any]) -> None:
        self._broker = broker
        self._network = broker.network
        self._owner = broker.network.current
        self._on_error: Callable[[KafkaError], None] = options["error_cb"]
        self._name: str | None = options.get("transactional.id")
        self._timeout_s = options.get("transaction.timeout.ms", 60_000) / 1000
        self._number, self._epoch = broker.coordinator.producer(), 0
        self._sequences: dict[tuple[str, int], int] = {}
        self._queue: deque[tuple[str, int, Entry, OnDelivery | None]] = deque()
        self._answers: deque[tuple[OnDelivery, KafkaError | None, Message]] = deque()
        self._problems: deque[KafkaError] = deque()
        self._begun = False
        self._failed: KafkaException | None = None

    def __len__(self) -> int:
        return len(self._queue) + len(self._answers)

    def produce(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, partition: int = 0,
        on_delivery: OnDelivery | None = None, headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:  # fmt: skip
        self._network.check(self._owner)
        if self._failed is not None:
            raise self._failed
        copied: Headers = tuple(headers)
        self._queue.append((topic, partition, Entry(0, 0, key, value, copied), on_delivery))

    def poll(self, timeout: float = 0) -> int:
        self._network.check(self._owner)
        while self._problems:
            self._on_error(self._problems.popleft())
        served = len(self._answers)
        while self._answers:
            on_delivery, problem, message = self._answers.popleft()
            on_delivery(problem, message)
        if self._failed is not None and self._name is None:
            raise self._failed
        return served

    def flush(self, timeout: float = -1) -> int:
        try:
            self.deliver(len(self._queue) // 2)
            how = self._network.call(self._owner, "flush")
            if how not in (How.DIES_AFTER, How.REFUSED):
                self.deliver(len(self._queue))
        except KafkaException:
            if self._name is None:
                raise
            how = None
        if how is How.DIES_AFTER:
            self._network.die(self._owner)
        if how is How.REFUSED and self._name is not None and self._failed is None:
            self._failed = error(KafkaError._MSG_TIMED_OUT, "records were not delivered in time", abort=True)
            self._queue.clear()
        if how in (How.LOST, How.UNANSWERED):
            self._lose_connection()
        self.poll()
        return len(self._queue)

    def deliver(self, count: int) -> None:
        """So many records reach the broker, which acknowledges them."""
        for _ in range(min(count, len(self._queue))):
            topic, partition, entry, on_delivery = self._queue.popleft()
            self._append(topic, partition, entry)
            if on_delivery is not None:
                self._answers.append((on_delivery, None, Message(topic, partition, entry)))

    def mix_answers(self, order: Callable[[int], int]) -> None:
        """Answers of different partitions come in another order than they were given."""
        by_place: dict[tuple[str, int], deque[tuple[OnDelivery, KafkaError | None, Message]]] = {}
        for answer in self._answers:
            by_place.setdefault((answer[2].topic(), answer[2].partition()), deque()).append(answer)
        self._answers.clear()
        while by_place:
            place = sorted(by_place)[order(len(by_place))]
            self._answers.append(by_place[place].popleft())
            if not by_place[place]:
                del by_place[place]

    def fail(self, reached: int) -> None:
        """The client cannot be used any more. So many of its records reached the broker, which it does not know; the
        rest are still on their way."""
        rest = list(self._queue)
        self._queue.clear()
        for number, (topic, partition, entry, _) in enumerate(rest):
            if number < reached:
                self._append(topic, partition, entry)
            else:
                self._broker.late.append(lambda at=(topic, partition, entry): self._append(*at))
        self._failed = error(KafkaError._TRANSPORT, "a record cannot be delivered", fatal=True)

    def purge(self, blocking: bool = True) -> None:
        self._queue.clear()
        self._answers.clear()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self._broker.log.topics))

    def init_transactions(self, timeout: float = -1) -> None:
        how = self._network.call(self._owner, "init_transactions")
        if how in (How.LOST, How.REFUSED):
            raise self._timed_out()
        assert self._name is not None
        self._number, self._epoch = self._broker.coordinator.begin(self._name, self._timeout_s)
        self._sequences.clear()
        self._answer(how)

    def begin_transaction(self) -> None:
        self._network.check(self._owner)
        if self._failed is not None:
            raise self._failed
        self._begun = True

    def send_offsets_to_transaction(
        self, offsets: Sequence[TopicPartition], group: str, timeout: float = -1
    ) -> None:  # fmt: skip
        how = self._network.call(self._owner, "send_offsets_to_transaction")
        self._refuse_or_lose(how)
        transaction = self._transaction()
        moved = {(at.topic, at.partition): (at.offset, at.metadata or "") for at in offsets}
        transaction.offsets.setdefault(group, {}).update(moved)
        self._answer(how)

    def commit_transaction(self, timeout: float = -1) -> None:
        how = self._network.call(self._owner, "commit_transaction")
        if how is How.REFUSED and self._name is not None and not self._broker.coordinator.under_way(self._name):
            how = None  # it has been committed, and the answer was lost: the broker says so now
        if how not in (How.LOST, How.REFUSED):
            self.deliver(len(self._queue))
        self._refuse_or_lose(how)
        self._end(True, how)

    def abort_transaction(self, timeout: float = -1) -> None:
        how = self._network.call(self._owner, "abort_transaction")
        if how in (How.LOST, How.REFUSED):
            raise self._timed_out()
        self.purge()
        if self._failed is not None and not self._failed.args[0].fatal():
            self._failed = None
        self._end(False, how)

    def _end(self, commit: bool, how: How | None) -> None:
        assert self._name is not None
        self._raise_if_failed()
        try:
            if how is How.REPEATED:
                self._lose_connection()
            self._broker.coordinator.end(self._name, self._epoch, commit)
            if how is How.REPEATED:
                self._broker.coordinator.hold_up(self._name, self._epoch, commit, self._broker.clock.now_ns % 7)
        except Fenced:
            raise self._fenced() from None
        except NoTransaction:
            raise error(KafkaError.INVALID_TXN_STATE, "the transaction has ended otherwise", fatal=True) from None
        self._answer(how)
        self._begun = False

    def _append(self, topic: str, partition: int, entry: Entry) -> None:
        broker, place = self._broker, (topic, partition)
        if self._name is not None:
            broker.clock.pass_by(self._network.slow_s)
        if place not in broker.log:
            raise error(KafkaError._UNKNOWN_TOPIC, f"{topic} [{partition}]")
        entry.appended_ns = broker.clock.now_ns
        if self._name is not None:
            entry.transaction = self._transaction()
            broker.coordinator.join(entry.transaction, place)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        with suppress(OutOfOrder):  # of a client that is gone: an earlier record of it has not arrived
            broker.log[place].append(entry, (self._number, self._epoch), sequence)

    def _transaction(self) -> Any:
        assert self._name is not None
        if not self._begun:
            raise error(KafkaError._STATE, "no transaction was begun")
        self._raise_if_failed()
        try:
            return self._broker.coordinator.transaction(self._name, self._epoch)
        except Fenced:
            raise self._fenced() from None

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _refuse_or_lose(self, how: How | None) -> None:
        if how is How.LOST:
            self._lose_connection()
            raise self._timed_out()
        if how is How.REFUSED:
            self._failed = error(KafkaError.CONCURRENT_TRANSACTIONS, "the transaction must be undone", abort=True)
        self._raise_if_failed()

    def _answer(self, how: How | None) -> None:
        if how is How.DIES_AFTER:
            self._network.die(self._owner)
        if how is How.UNANSWERED:
            self._lose_connection()
            raise self._timed_out()

    def _lose_connection(self) -> None:
        self._problems.append(KafkaError(KafkaError._TRANSPORT, "the connection was lost"))

    def _timed_out(self) -> KafkaException:
        self._broker.clock.pass_by(1.0)
        return error(KafkaError._TIMED_OUT, "no answer in time", retriable=True)

    def _fenced(self) -> KafkaException:
        self._failed = error(KafkaError._FENCED, "another producer has the transactional id", fatal=True)
        return self._failed


class Consumer:
    def __init__(self, broker: Broker, options: Mapping[str, Any]) -> None:
        self._broker = broker
        self._owner = broker.network.current
        self._group: str = options["group.id"]
        self._committed = options.get("isolation.level") == "read_committed"
        self._tells_ends = bool(options.get("enable.partition.eof"))
        self._at: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}  # where the end was told

    def committed(self, places: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        how = self._broker.network.call(self._owner, "committed")
        if how in (How.LOST, How.UNANSWERED, How.REFUSED):
            self._broker.clock.pass_by(1.0)
            raise error(KafkaError._TIMED_OUT, "no answer in time", retriable=True)
        wanted = [(at.topic, at.partition) for at in places]
        while True:
            try:
                found = self._broker.coordinator.offsets(self._group, wanted, self._committed)
            except Unstable:  # the client asks again until the broker has undone the transaction
                self._broker.clock.pass_by(5.0)
                self._broker.coordinator.write_markers()
            else:
                break
        if how is How.DIES_AFTER:
            self._broker.network.die(self._owner)
        nothing = (-1001, "")
        return [TopicPartition(*place, *found.get(place, nothing)) for place in wanted]

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool = True) -> None:
        moved = {(at.topic, at.partition): (at.offset, at.metadata or "") for at in offsets}
        self._broker.coordinator.commit(self._group, moved)

    def consumer_group_metadata(self) -> str:
        return self._group

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = -1) -> tuple[int, int]:
        partition = self._broker.log[place.topic, place.partition]
        return partition.low, partition.stable if self._committed else partition.high

    def offsets_for_times(self, asked: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        self._broker.network.check(self._owner)
        found = []
        for at in asked:  # `offset` is the time, in ms
            entries = self._broker.log[at.topic, at.partition].read(0)
            first = (entry.offset for entry in entries if entry.appended_ns // 1_000_000 >= at.offset)
            found.append(TopicPartition(at.topic, at.partition, next(first, -1)))
        return found

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._at = {(at.topic, at.partition): at.offset for at in places}
        self._told.clear()

    def poll(self, timeout: float = -1) -> Message | None:
        self._broker.network.check(self._owner)
        for place, start in self._at.items():
            partition = self._broker.log[place]
            entry = next(partition.read(start, self._committed), None)
            if entry is not None:
                self._at[place] = entry.offset + 1
                return Message(*place, entry)
            end = partition.stable if self._committed else partition.high
            if self._tells_ends and self._told.get(place) != end:
                self._told[place] = end
                return Message(*place, None, KafkaError(KafkaError._PARTITION_EOF))
        self._broker.clock.pass_by(max(0.0, timeout))
        return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        found: list[Message] = []
        while len(found) < num_messages:
            message = self.poll(0.0)
            if message is None:
                break
            found.append(message)
        if not found:
            self._broker.clock.pass_by(max(0.0, timeout))
        return found

    def close(self) -> None:
        self._at.clear()
