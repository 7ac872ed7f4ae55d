"""Asks Kafka every two seconds whether it answers, because a process with nothing to send would not notice an outage.
Only this module reports an outage: one line when Kafka goes away, one a minute while it is away, and one when it is
back; at a start, one line at once and one a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, Gauge

from lowmark.helpers import Helper
from lowmark.wire.kafka.clients import (
    KafkaProblem,
    KafkaRefused,
    KafkaSettings,
    KafkaSettingsError,
    admin,
    translate,
    unasked_admin,
)

__all__ = ["KafkaReach"]

_LOG = logging.getLogger("lowmark.kafka.reach")  # its own logger: it limits its repetitions itself

_EVERY_S = 2.0
_ANSWER_WITHIN_S = 5.0
_LOOK_S = 0.2
_TOLD_AGAIN_S = 60.0


class KafkaReach:
    """`await_answer` first, then a `with` block; `helper` is the thread that asks inside it. Counts Kafka as answering
    until it finds otherwise. `topic`: one that this process may describe; it need not exist, and is not created."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, registry: CollectorRegistry,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.helper = Helper("kafka", self._run, (KafkaSettingsError,))
        self._kafka = kafka
        self._topic = topic
        self._now_s = now_s
        self._failing: tuple[str, float] | None = None  # why, and since when by the monotonic clock
        self._told_s: float | None = None  # when the outage was last logged; None: there is none
        unreachable = Gauge(
            "lowmark_kafka_unreachable_seconds", "Seconds for which no broker has answered; 0 while one answers.",
            registry=registry,
        )  # fmt: skip
        unreachable.set_function(lambda: self._failing_s)

    @property
    def ok(self) -> bool:
        return self._failing is None

    @property
    def detail(self) -> dict[str, str]:
        """Text for the readiness page."""
        failing = self._failing
        if failing is None:
            return {"kafka": "answers"}
        return {"kafka": f"has not answered for {self._failing_s:.0f} s: {failing[0]}"}

    def await_answer(self, tell: Callable[[str], None]) -> None:
        """Waits until a broker answers, so that a process may start before Kafka. KafkaRefused if Kafka refuses the
        client. Call it before signal handlers are set, so that a signal ends the wait."""
        began_s = self._now_s()
        self._failing = "it has not answered this process yet", began_s

        def waiting(problem: KafkaProblem) -> None:
            now_s = self._now_s()
            self._failing = str(problem), began_s
            if self._told_s is None or now_s - self._told_s >= _TOLD_AGAIN_S:
                self._told_s = now_s
                tell(f"waiting for Kafka, for {now_s - began_s:.0f} s: {problem}")

        admin(self._kafka, waiting=waiting)
        self._failing = self._told_s = None

    def __enter__(self) -> KafkaReach:
        self.helper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.helper.stop(_LOOK_S)  # it may be waiting for an answer; then it ends by itself when that is over

    @property
    def _failing_s(self) -> float:
        failing = self._failing
        return 0.0 if failing is None else self._now_s() - failing[1]

    def _run(self, stopping: threading.Event) -> None:
        try:
            self._ask(stopping)
        except KafkaSettingsError as error:  # a secret can no longer be read
            self._judge(error, self._now_s())
            raise

    def _ask(self, stopping: threading.Event) -> None:
        heard: list[KafkaProblem] = []
        files = self._kafka.state_of_files()
        client = unasked_admin(self._kafka, heard.append)
        while not stopping.is_set():
            began_s = self._now_s()
            heard.clear()
            problem = self._asked(client, heard)
            if stopping.is_set():
                return
            self._judge(problem, began_s)
            if isinstance(problem, KafkaRefused) or (problem and files != self._kafka.state_of_files()):
                files = self._kafka.state_of_files()
                client = unasked_admin(self._kafka, heard.append)  # secrets are read again
            stopping.wait(_EVERY_S)

    def _asked(self, client: AdminClient, heard: list[KafkaProblem]) -> KafkaProblem | None:
        """Why no answer has come; None: one has come.

        Asks for one topic: an answer about all would be large on a large cluster. librdkafka's DescribeCluster aborts
        the process when a broker that is starting knows of no broker yet.
        """
        try:
            client.list_topics(self._topic, timeout=_ANSWER_WITHIN_S)
        except KafkaException as error:
            client.poll(0)  # delivers the problems heard while it waited
            refused = [problem for problem in heard if isinstance(problem, KafkaRefused)]
            return (refused or heard or [translate(error.args[0], self._kafka)])[0]
        client.poll(0)
        return None

    def _judge(self, problem: KafkaProblem | KafkaSettingsError | None, began_s: float) -> None:
        if problem is not None:
            self._failing = str(problem), began_s if self._failing is None else self._failing[1]
            if self._told_s is None:
                _LOG.warning("Kafka does not answer: %s", problem)
            elif self._now_s() - self._told_s >= _TOLD_AGAIN_S:
                _LOG.warning("Kafka has not answered for %.0f s: %s", self._failing_s, problem)
            else:
                return
            self._told_s = self._now_s()
        elif self._failing is not None:
            _LOG.warning("Kafka answers again, after %.0f s", self._failing_s)
            self._failing = self._told_s = None
