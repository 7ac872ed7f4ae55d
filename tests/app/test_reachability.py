"""What a process says of a Kafka that does not answer: one line when it goes, one a minute, one when it is back."""

from __future__ import annotations

import logging
import os
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.broker import Broker, loopback
from lowmark.app.kafka.consumer import PatientReader
from lowmark.app.kafka.reachability import KafkaReach
from lowmark.wire.kafka import clients as wire
from lowmark.wire.kafka.clients import (
    KafkaSettings,
    KafkaUnavailable,
    admin,
    consumer,
    producer,
    transactional_producer,
)
from tests.fixtures.network import namespace
from tests.integration.jobprocess import await_true


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that nobody listens on for as long as the test lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_an_outage_is_told_when_it_begins_each_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reach = KafkaReach(KafkaSettings("a:1"), "t", CollectorRegistry(), clock)
    for _ in range(2):
        for _ in range(75):  # every two seconds
            reach._judge(KafkaUnavailable("nobody listens"), clock.now_s)
            clock.now_s += 2
        reach._judge(None, clock.now_s)
        reach._judge(None, clock.now_s)
    said = [record.getMessage() for record in caplog.records]
    assert said == 2 * [
        "Kafka does not answer: nobody listens",
        "Kafka has not answered for 60 s: nobody listens",
        "Kafka has not answered for 120 s: nobody listens",
        "Kafka answers again, after 150 s",
    ]


def test_clients_say_nothing_of_a_broker_that_is_away(
    nobody: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    settings = KafkaSettings(nobody)
    heard: list[object] = []

    def problem(of: wire.KafkaProblem) -> None:
        heard.append(of)
        wire.log_problem(of)

    clients = [
        producer(settings, on_problem=problem), transactional_producer(settings, "t", on_problem=problem),
        consumer(settings, "g", on_problem=problem),
    ]  # fmt: skip
    for _ in range(20):
        for client in clients:
            client.poll(0.05)
    assert len(heard) >= 3
    assert [record.getMessage() for record in caplog.records] == []
    assert capfd.readouterr().err == ""


def test_a_reader_that_waits_silences_nobody_else(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    with PatientReader(KafkaSettings(nobody), "watch", told.append) as reader:
        for _ in reader.batches(lambda: bool(told), 0.1):
            pass
        wire.log_problem(wire.KafkaRefused("no rights"))
    assert told == [f"the broker at {nobody} is away: waiting for it"]
    assert [record.getMessage() for record in caplog.records] == ["no rights"]


@pytest.mark.slow
def test_a_start_without_a_broker_says_each_minute_that_it_waits(nobody: str) -> None:
    class Enough(Exception):
        pass

    clock, told = Clock(), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            raise Enough

    def now_s() -> float:
        clock.now_s += 61
        return clock.now_s

    reach = KafkaReach(KafkaSettings(nobody), "t", CollectorRegistry(), now_s)
    with pytest.raises(Enough):
        reach.await_answer(tell)
    assert [text.partition(" s: ")[0] for text in told] == [f"waiting for Kafka, for {n}" for n in (61, 122, 183)]
    assert f"Kafka at {nobody} (PLAINTEXT)" in told[0]
    assert not reach.ok
    assert f"Kafka at {nobody} (PLAINTEXT)" in reach.detail["kafka"]


class StartingBroker(socketserver.ThreadingTCPServer):
    """As much of Kafka's protocol as a client needs to ask for metadata. While `knows_brokers` is not set, its answer
    names neither a broker nor a topic, as that of a broker does that is starting and has not heard of the cluster."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.knows_brokers = True
        self.asked_for: set[bytes] = set()
        self.answers = 0  # about metadata

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Conversation(socketserver.StreamRequestHandler):
    server: StartingBroker

    def handle(self) -> None:
        while head := self.rfile.read(4):
            request = self.rfile.read(int.from_bytes(head, "big"))
            kind, version, number, length = struct.unpack_from(">hhih", request)
            answer = number.to_bytes(4, "big") + self._answer(kind, version, request[10 + max(0, length) :])
            self.wfile.write(len(answer).to_bytes(4, "big") + answer)

    def _answer(self, kind: int, version: int, body: bytes) -> bytes:
        if kind == 18:  # ApiVersions
            apis = ((3, 0, 8), (18, 0, 0))
            error = 0 if version == 0 else 35  # UNSUPPORTED_VERSION
            return struct.pack(">hi", error, len(apis)) + b"".join(struct.pack(">hhh", *api) for api in apis)
        assert (kind, version) == (3, 8)  # Metadata
        self.server.answers += 1
        (count,) = struct.unpack_from(">i", body)
        if count == 1:
            self.server.asked_for.add(body[6 : 6 + int.from_bytes(body[4:6], "big")])
        host = b"127.0.0.1"
        broker = struct.pack(f">ih{len(host)}sih", 1, len(host), host, self.server.server_address[1], -1)
        brokers, controller = ([broker], 1) if self.server.knows_brokers else ([], -1)
        return (
            struct.pack(">ii", 0, len(brokers)) + b"".join(brokers) + struct.pack(">h1siii", 1, b"x", controller, 0, -1)
        )


ASKING = """\
import sys, time
from prometheus_client import CollectorRegistry
from lowmark.app.kafka import reachability
from lowmark.wire.kafka.clients import KafkaSettings
reachability._EVERY_S, reachability._ANSWER_WITHIN_S = 0.05, 2.0
with reachability.KafkaReach(KafkaSettings(sys.argv[1]), "of-sources", CollectorRegistry()) as reach:
    for line in sys.stdin:
        while reach.ok != (line == "ok\\n"):
            reach.helper.check()
            time.sleep(0.02)
        print(reach.detail["kafka"], flush=True)
"""


def test_a_broker_that_knows_of_no_broker_yet_does_not_end_the_process() -> None:
    with StartingBroker() as broker:
        serving = threading.Thread(target=broker.serve_forever, daemon=True)
        serving.start()
        with subprocess.Popen(
            [sys.executable, "-c", ASKING, broker.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            await_true(lambda: broker.answers > 2)
            for known in (True, False, True):
                broker.knows_brokers = known
                asking.stdin.write("ok\n" if known else "away\n")
                asking.stdin.flush()
                said = asking.stdout.readline()
                assert said.startswith("answers" if known else "has not answered for "), said
            asking.stdin.close()
            assert asking.wait(30) == 0
        broker.shutdown()
    assert broker.asked_for == {b"of-sources"}


@pytest.fixture
def without_ipv4() -> Iterator[None]:
    """This thread is on a host whose interfaces have IPv6 addresses alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a network namespace")
    with namespace() as network:
        network.pair("near", "far")
        for name in ("near", "far"):
            settings = Path(f"/proc/sys/net/ipv6/conf/{name}")
            (settings / "accept_dad").write_text("0")
            (settings / "disable_ipv6").write_text("0")
        yield


@pytest.mark.usefixtures("without_ipv4")
def test_a_host_without_ipv4_is_told_what_its_client_lacks(tmp_path: Path) -> None:
    with pytest.raises(KafkaUnavailable, match=re.escape("Use [::1] in place of 127.0.0.1")):
        admin(KafkaSettings("127.0.0.1:9"), 2)
    with pytest.raises(EnvironmentNotReady, match=r"find no address for 127\.0\.0\.1"):
        Broker(tmp_path).start()
    assert loopback() == "::1"


def test_the_loopback_address_of_other_hosts_is_the_usual_one() -> None:
    assert loopback() == "127.0.0.1"
