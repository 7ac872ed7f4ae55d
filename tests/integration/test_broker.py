"""The single-node broker: what it keeps, how it ends, and what it says when it cannot start."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.broker import Broker, openness, serve
from tests.fixtures.service_manager import Told
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command

SECONDS = 60.0


def create_topic(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})  # named: the answer is lost when it is collected
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(SECONDS) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` committed values, sorted, and proof that no further one is visible."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False}
    settings |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[bytes] = []
    ended: set[int] = set()
    try:
        while len(values) < count or len(ended) < 2:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{len(values)} of {count} values within {SECONDS} s"
            if message.error():
                ended.add(message.partition())
            else:
                values.append(message.value())
    finally:
        consumer.close()
    return sorted(values)


@pytest.mark.slow
def test_committed_transactions_are_seen_and_aborted_ones_are_not(broker: str) -> None:
    create_topic(broker, "transactions")
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "test"})
    producer.init_transactions(SECONDS)
    for value, end in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("transactions", value)
        end(SECONDS)
    assert consume(broker, "transactions", 1) == [b"kept"]


@pytest.mark.slow
def test_topics_are_not_made_by_mistake(broker: str) -> None:
    client = AdminClient({"bootstrap.servers": broker})
    assert client.list_topics("a-misspelt-topic", timeout=SECONDS).topics["a-misspelt-topic"].error is not None
    assert "a-misspelt-topic" not in client.list_topics(timeout=SECONDS).topics


@pytest.mark.slow
def test_data_survives_a_stop_and_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "a folder, with [odd] letters: é"
    said: list[str] = []
    with Broker(folder, progress=said.append) as first:
        create_topic(first.bootstrap, "kept")
        produce(first.bootstrap, "kept", [b"1", b"2"])
        cluster = AdminClient({"bootstrap.servers": first.bootstrap}).list_topics(timeout=SECONDS).cluster_id
    assert "starting the broker" in said
    with Broker(folder) as second:
        assert consume(second.bootstrap, "kept", 2) == [b"1", b"2"]
        produce(second.bootstrap, "kept", [b"3"])
        os.kill(second.pid, signal.SIGKILL)
        with pytest.raises(EnvironmentNotReady, match="the broker ended"):
            second.wait()
    with Broker(folder) as third:
        assert consume(third.bootstrap, "kept", 3) == [b"1", b"2", b"3"]
        assert AdminClient({"bootstrap.servers": third.bootstrap}).list_topics(timeout=SECONDS).cluster_id == cluster
    assert (folder / "cluster.id").read_text().strip() == cluster


@pytest.mark.slow
def test_a_folder_in_use_is_refused_and_its_broker_unharmed(tmp_path: Path) -> None:
    with Broker(tmp_path) as living:
        with pytest.raises(EnvironmentNotReady) as caught:
            Broker(tmp_path).start()
        assert f"process {living.pid} at {living.bootstrap}" in caught.value.message
        create_topic(living.bootstrap, "still-there")


@pytest.mark.slow
def test_a_broker_that_outlives_its_parent_keeps_its_folder(tmp_path: Path) -> None:
    pid = run_and_abandon(tmp_path, die_with_parent=False)
    try:
        with pytest.raises(EnvironmentNotReady, match=f"in use by a live broker, process {pid} at"):
            Broker(tmp_path).start()
    finally:
        end(pid)


@pytest.mark.slow
def test_a_broker_dies_with_its_parent_and_leaves_its_folder_free(tmp_path: Path) -> None:
    pid = run_and_abandon(tmp_path, die_with_parent=True)
    await_end(pid)
    with Broker(tmp_path) as next_one:
        create_topic(next_one.bootstrap, "usable")


def run_and_abandon(folder: Path, *, die_with_parent: bool) -> int:
    """Start a broker from a process that is then killed; returns the broker's process id."""
    code = (
        "import os, signal, sys; from pathlib import Path; from lowmark.app.kafka.broker import Broker\n"
        "broker = Broker(Path(sys.argv[1]), die_with_parent=sys.argv[2] == 'True'); broker.start()\n"
        "print(broker.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, folder, str(die_with_parent)], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    return int(done.stdout)


def await_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], SECONDS)[0], f"process {pid} is still there after {SECONDS} s"
    finally:
        os.close(descriptor)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await_end(pid)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use_is_named(taken_port: int, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match=rf"port {taken_port} of 127\.0\.0\.1 is in use"):
        Broker(tmp_path, taken_port).start()


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("0.0.0.0", 0, "cannot tell clients"),
        ("203.0.113.1", 0, r"cannot listen on 203\.0\.113\.1:0"),
        ("::1", 70000, "port 70000"),
    ],
)
def test_an_address_that_cannot_be_is_refused(host: str, port: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match=message):
        Broker(tmp_path, port, host).start()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_on_loopback_there_is_nothing_to_warn_of(host: str) -> None:
    assert openness(host) is None


def test_what_it_means_to_open_a_broker_is_said(tmp_path: Path) -> None:
    """Before it starts; here it cannot, because no interface has the address."""
    with Command("broker", "--data", str(tmp_path), "--host", "203.0.113.1", "--port", "0") as command:
        assert command.wait() == 1
    assert "warning: everybody who reaches 203.0.113.1 may read, write and delete all topics" in command.error


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(EnvironmentNotReady, match="it holds letters"):
        Broker(tmp_path).start()
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters"]


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=Theirs\nnode.id=1\n")
    (tmp_path / "cluster.id").write_text("Ours\n")
    with pytest.raises(EnvironmentNotReady, match="another cluster: its id there is Theirs, and Ours"):
        Broker(tmp_path).start()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentNotReady, match=r"cannot use .*file"):
        Broker(tmp_path / "file").start()


@pytest.mark.slow
def test_a_broker_that_ends_while_it_starts_shows_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=Ours\nnode.id=7\n")
    (tmp_path / "cluster.id").write_text("Ours\n")
    with pytest.raises(EnvironmentNotReady) as caught:
        Broker(tmp_path).start()
    assert caught.value.message == "the broker ended while it started"
    assert any("node" in line and "7" in line for line in caught.value.details)
    assert str(tmp_path / "broker.log") in caught.value.hint


@pytest.mark.slow
def test_why_a_folder_could_not_be_prepared_is_shown(tmp_path: Path) -> None:
    """Kafka's tool says it on its output, and fills the log with its settings."""
    (tmp_path / "cluster.id").write_text("Lowmark-of-this-test-0\n")
    (tmp_path / "data").symlink_to("/proc/nothing")
    with pytest.raises(EnvironmentNotReady, match="could not be prepared") as caught:
        Broker(tmp_path).start()
    assert any("Error while writing meta.properties" in line for line in caught.value.details)


@pytest.mark.slow
def test_a_broker_that_is_killed_while_it_starts_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path)

    def is_there() -> bool:
        with contextlib.suppress(RuntimeError):
            return broker.pid > 0
        return False

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(broker.start)
        await_true(is_there)
        os.kill(broker.pid, signal.SIGKILL)
        assert str(started.exception()).startswith("the broker ended while it started, killed by SIGKILL\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_ends_on_a_signal_with_everything_ended(number: signal.Signals, tmp_path: Path) -> None:
    """systemd hears of its readiness, and shows it."""
    manager = Told(tmp_path / "notify", watchdog_s=60)
    code = (
        "import sys; from pathlib import Path; from lowmark.app.kafka.broker import serve\n"
        "serve(Path(sys.argv[1]), port=0, ready=lambda bootstrap: print(bootstrap, flush=True))"
    )
    data, environment = tmp_path / "data", {**os.environ, **manager.environment}
    command = [sys.executable, "-c", code, data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            create_topic(address, "served")
            await_true(lambda: "READY=1" in manager.lines)
            assert [line for line in manager.lines if line.startswith("STATUS=")][
                -1
            ] == f"STATUS=broker ready at {address}"
            server.send_signal(number)
            assert server.wait(SECONDS) == 0
        finally:
            server.kill()
    manager.close()
    with Broker(data) as next_one:
        assert "served" in AdminClient({"bootstrap.servers": next_one.bootstrap}).list_topics(timeout=SECONDS).topics


def test_constructing_a_broker_does_nothing(tmp_path: Path) -> None:
    Broker(tmp_path / "new", 70000).stop()
    assert not (tmp_path / "new").exists()


def test_serving_puts_the_signal_handlers_back(taken_port: int, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(EnvironmentNotReady, match="is in use"):
        serve(tmp_path, port=taken_port)
    assert signal.getsignal(signal.SIGTERM) is before
