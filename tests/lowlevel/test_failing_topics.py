"""What befalls one topic is its own affair, is told with its reason, and passes when its cause does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lowlevel.config import QueueConfig
from lowlevel.emitter import Emitter
from lowlevel.sender import Sender
from lowlevel.source_registration import EpochWatch, SourcesLog
from lowmark.helpers import HelperEnded
from lowmark.wire.kafka.clients import KafkaSettings, SaslMechanism, Secret, SecurityProtocol
from tests.fixtures.sasl import PASSWORD, USER, sasl_broker
from tests.lowlevel.test_emitter import (
    PARTITIONS,
    _wait_for,
    received,
    record,
    registration,
    serving,
    state,
    topic,
)

pytestmark = pytest.mark.slow


@contextmanager
def started(kafka: KafkaSettings, *topics: str) -> Iterator[Emitter]:
    emitter = serving(kafka, QueueConfig(retry_s=0.2, max_bytes=16 << 20), *topics)
    emitter.start()
    try:
        yield emitter
    finally:
        emitter.stop()


class Load:
    """Records for a topic, in numbers by partition, until `stop`; those that find no room are given up unnumbered."""

    def __init__(self, emitter: Emitter, name: str) -> None:
        self.sent = 0
        self.given_up = 0
        self._emitter, self._name = emitter, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            if not self._emitter.room(self._name, 2_000):
                self.given_up += 1
                continue
            for partition in range(PARTITIONS):
                self._emitter.put(self._name, partition, record(self.sent, 2_000))
            self.sent += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_a_deleted_topic_starves_no_other(broker: str, caplog: pytest.LogCaptureFixture) -> None:
    client = AdminClient({"bootstrap.servers": broker})
    well, dead = topic(broker, "failing-well"), topic(broker, "failing-dead")
    with started(KafkaSettings(broker), well, dead) as emitter, caplog.at_level(logging.INFO, "lowmark.emitter"):
        loads = {name: Load(emitter, name) for name in (well, dead)}
        try:
            _wait_for(lambda: all(load.sent > 100 for load in loads.values()))
            client.delete_topics([dead])[dead].result(30)
            # That nothing is acknowledged shows before the client knows why.
            _wait_for(lambda: "Was the topic deleted?" in (state(emitter, dead).failing or ""))
            _wait_for(lambda: loads[dead].given_up > 100)
            failing = state(emitter, dead)
            assert failing.readers == (f"q-{dead}",)
            assert failing.failing_s > 0
            before = state(emitter, well).records
            _wait_for(lambda: state(emitter, well).records > before + 1000)
            assert (state(emitter, well).failing, loads[well].given_up) == (None, 0)
            _wait_for(lambda: state(emitter, dead).restarts >= 2)
            topic(broker, dead)
            records = state(emitter, dead).records
            _wait_for(lambda: state(emitter, dead).failing is None and state(emitter, dead).records > records)
        finally:
            for load in loads.values():
                load.stop()
        assert emitter.drained(60)
    assert received(broker, well, loads[well].sent) == [list(range(loads[well].sent))] * PARTITIONS
    for numbers in received(broker, dead, loads[dead].sent):
        # What had been acknowledged before is gone with the former topic.
        assert numbers == list(range(numbers[0], loads[dead].sent))
    told = [line for name, _, line in caplog.record_tuples if name == "lowmark.emitter" and dead in line]
    assert len(told) == 2, told
    assert f"topic {dead}, read by q-{dead}: Kafka takes no records, " in told[0]
    assert told[1] == f"topic {dead}, read by q-{dead}: Kafka takes records again"


def test_a_right_that_is_missing_starves_no_other(broker: str) -> None:
    client = AdminClient({"bootstrap.servers": broker})
    well, closed = topic(broker, "failing-open"), topic(broker, "failing-closed")
    denied = (ResourceType.TOPIC, closed, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE)
    with started(KafkaSettings(broker), well, closed) as emitter:
        (made,) = client.create_acls([AclBinding(*denied, AclPermissionType.DENY)]).values()
        made.result(30)

        def put() -> None:
            for name in (well, closed):
                emitter.put(name, 0, record(0))

        def fails() -> bool:
            put()  # again, since the broker applies a right some time after it has accepted it
            return state(emitter, closed).failing is not None

        _wait_for(fails)
        # The first message may be the client's last one, which repeats the broker's reason without our hint.
        assert "authorization failed" in str(state(emitter, closed).failing)
        _wait_for(lambda: state(emitter, well).queued_records == 0)
        assert state(emitter, well).failing is None
        (gone,) = client.delete_acls([AclBindingFilter(*denied, AclPermissionType.DENY)]).values()
        gone.result(30)
        assert emitter.drained(60)
        assert state(emitter, closed).failing is None


def test_a_secret_that_cannot_be_read_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again for each new client."""
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    with sasl_broker(tmp_path / "broker", monkeypatch) as (bootstrap, address):
        settings = KafkaSettings(
            address, SecurityProtocol.SASL_PLAINTEXT, SaslMechanism.PLAIN, USER, Secret(file=secret)
        )
        name = topic(bootstrap, "secretive", max_message_bytes="5000")
        sources = topic(bootstrap, "secretive-sources")
        log = SourcesLog(settings, sources)
        epochs = {"a": log.append(registration("a", "one"))}
        heard: list[int] = []
        watch = EpochWatch(settings, sources, "one", epochs, lambda source, epoch: heard.append(epoch), lambda _: True)
        with started(settings, name) as emitter:
            emitter.put(name, 0, record(0))
            assert emitter.drained(60)
            secret.unlink()
            watch.start()
            emitter.put(name, 0, record(1, 50_000))  # its producer fails over this
            emitter.put(name, 0, record(2))
            said = f"the secret in {secret} cannot be read: No such file"
            _wait_for(lambda: said in str(state(emitter).failing) and said in watch.helper.state)
            assert watch.helper.state.startswith("starts again")
            assert emitter.helpers()[0].state == "running"
            secret.write_text(PASSWORD)
            client = AdminClient({"bootstrap.servers": bootstrap})
            client.delete_topics([name])[name].result(30)
            _wait_for(lambda: name not in client.list_topics(timeout=10).topics)
            topic(bootstrap, name)
            assert emitter.drained(90)
            later = log.append(registration("a", "two"))
            _wait_for(lambda: heard)
            assert heard == [later]
            assert watch.helper.state == "running"
            watch.stop()


def test_a_thread_that_has_died_is_not_waited_for(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    well, dead = topic(broker, "thread-well"), topic(broker, "thread-dead")
    hear = Sender._hear

    def dying(self: Sender, producer: object) -> None:
        if self.topic == dead:
            raise RuntimeError("a defect")
        hear(self, producer)

    monkeypatch.setattr(Sender, "_hear", dying)
    with started(KafkaSettings(broker), well, dead) as emitter:
        helpers = {helper.name: helper for helper in emitter.helpers()}
        _wait_for(lambda: helpers[f"emitter {dead}"].failure)
        for name in (well, dead):
            emitter.put(name, 0, record(0))
        assert emitter.drained(60)
        assert state(emitter, well).records == 1
        with pytest.raises(HelperEnded, match=rf"the thread 'emitter {dead}' has ended, .*: RuntimeError: a defect"):
            helpers[f"emitter {dead}"].check()
