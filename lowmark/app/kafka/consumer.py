"""Reads topics for a person who watches. Waits through outages, and reports each in one line."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import TopicMetadata

from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettings, KafkaUnavailable, consumer, translate, watermarks

__all__ = ["PatientReader"]

_LOOK_EVERY_S = 1.0
"""Length of a wait for records; after each, `stop` is called and an absent broker is asked again."""

_AT_ONCE = 1000


class PatientReader:
    """A read_committed consumer. `say` gets one line when the broker goes, and one when it answers again. Any other
    problem is raised."""

    def __init__(self, kafka: KafkaSettings, name: str, say: Callable[[str], None]) -> None:
        self._kafka = kafka
        self._say = say
        self._problems: list[KafkaProblem] = []
        self._away = False
        self._consumer = consumer(kafka, f"lowmark-{name}-{uuid.uuid4()}", on_problem=self._problems.append)

    def __enter__(self) -> PatientReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        self._consumer.assign(list(parts))

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Those that exist and may be seen; none while the broker is away."""
        try:
            found: Mapping[str, TopicMetadata] = self._consumer.list_topics(timeout=_LOOK_EVERY_S).topics
        except KafkaException:
            return {}
        return found

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the offset after the last."""
        return watermarks(self._consumer, TopicPartition(topic, partition), self._kafka)

    def positions(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The next offset of each partition that has been read from; transaction marks count as read."""
        found = self._consumer.position([TopicPartition(*place) for place in places])
        return {(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def batches(self, stop: Callable[[], bool], wait_s: float = _LOOK_EVERY_S) -> Iterator[list[Message]]:
        """Yields records as they come, and an empty list about every `wait_s` while none come. Ends at `stop`."""
        while not stop():
            first = self._consumer.poll(wait_s)
            found = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, timeout=0)]
            yield [message for message in found if self._usable(message)]
            self._hear(bool(found))

    def _usable(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() != KafkaError._PARTITION_EOF:
            self._problems.append(translate(error, self._kafka))
        return False

    def _hear(self, answered: bool) -> None:
        problems, self._problems[:] = list(self._problems), []
        for problem in problems:
            if not isinstance(problem, KafkaUnavailable) or problem.fatal:
                raise problem
        if self._away:
            if answered or self._answers():
                self._away = False
                self._say(f"the broker at {self._kafka.bootstrap} is back")
        elif problems and not self._answers():
            self._away = True
            self._say(f"the broker at {self._kafka.bootstrap} is away: waiting for it")

    def _answers(self) -> bool:
        try:
            self._consumer.list_topics(timeout=_LOOK_EVERY_S)
        except KafkaException:
            return False
        return True
