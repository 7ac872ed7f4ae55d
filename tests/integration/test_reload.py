"""SIGHUP: queries change while a capture goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowmark.app.kafka.broker import Broker
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.command import lowmark
from tests.fixtures.network import Network, namespace, packet
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples
from tests.integration.readings import Results

pytestmark = pytest.mark.slow

CAPTURE = """
[kafka]
bootstrap = "{broker}"
[capture]
metrics = "127.0.0.1:0"
[job]
overlap = "1 s"
[streams.Main]
[sources.tap]
stream = "Main"
interface = "near"
fanout = 2
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
buckets = 2
share = "hosts"
"""
NEW = """
[queries.pairs]
sql = "SELECT srcIP, sum(len) AS bytes, count(*) AS packets [RANGE 2 s] FROM Main GROUP BY srcIP"
"""
BESIDE = """
[queries.sizes]
sql = "SELECT srcIP, max(len) [RANGE 1 s] FROM Main GROUP BY srcIP"
buckets = 2
share = "hosts"
"""


@pytest.fixture
def net() -> Iterator[Network]:
    with namespace() as made:
        made.pair("far", "near")
        yield made


def test_queries_change_and_no_packet_of_those_that_stay_is_missed(net: Network, tmp_path: Path) -> None:
    path = tmp_path / "lowmark.toml"
    with Broker(tmp_path / "broker") as broker:
        first = CAPTURE.format(broker=broker.bootstrap)
        path.write_text(first)
        with Command("capture", "-c", str(path)) as capture:
            capture.url()
            net.send("far", [packet(1, port=port) for port in range(1, 101)])

            # What cannot be taken is said, and nothing changes.
            for wrong in (
                first.replace("count(*)", "sum(nothing)"),
                first + "[sources.more]\nstream = 'Main'\nfile = '-'\n",
                first + BESIDE,
            ):
                said = capture.error.count("the old one stays in use")
                path.write_text(wrong)
                capture.process.send_signal(signal.SIGHUP)
                await_true(lambda said=said: capture.error.count("the old one stays in use") > said)
            assert "there is no field called nothing" in capture.error
            assert "more than queries has changed" in capture.error
            assert "query packets would have another stage and topic, since" in capture.error
            assert "and so has or had sizes, which changed: its windows would start again" in capture.error

            path.write_text(first + NEW)
            capture.process.send_signal(signal.SIGHUP)
            sent = 0

            def switched() -> bool:
                nonlocal sent
                net.send("far", [packet(2, port=port) for port in range(1, 11)])
                sent += 10
                return "the configuration was read again: queries are packets, pairs" in capture.error

            await_true(switched)
            net.send("far", [packet(3, port=port) for port in range(1, 301)])
            await_true(lambda: Results.of(path, "pairs").packets["10.0.0.3"] == 300)
            expected = {"10.0.0.1": 100, "10.0.0.2": sent, "10.0.0.3": 300}
            await_true(lambda: Results.of(path, "packets").packets == expected)
            old, new = Results.of(path, "packets"), Results.of(path, "pairs")
            assert old.reasons == new.reasons == frozenset()
            assert new.packets["10.0.0.1"] == 0
            assert new.partial, "windows that began before the query did"

            # The former stage of a changed query is served beside the new one, for a while.
            path.write_text(first + NEW.replace("count(*) AS packets", "count(*) AS packets, max(len)"))
            capture.process.send_signal(signal.SIGHUP)
            await_true(lambda: "the former stage of pairs is served for 1 s more" in capture.error)
            await_true(lambda: "the former stage of pairs has ended" in capture.error)
            net.send("far", [packet(5, port=port) for port in range(1, 11)])
            await_true(lambda: Results.of(path, "pairs").packets["10.0.0.5"] == 10)
            path.write_text(first + NEW)
            assert Results.of(path, "pairs").packets["10.0.0.5"] == 0

            # A query that is gone stops; the one that stays goes on.
            path.write_text(first.split("[queries.packets]")[0] + NEW)
            capture.process.send_signal(signal.SIGHUP)
            await_true(lambda: "queries are pairs" in capture.error)
            gone_s = time.monotonic()
            net.send("far", [packet(4, port=port) for port in range(1, 301)])
            await_true(lambda: Results.of(path, "pairs").packets["10.0.0.4"] == 300)
            again = Results.of(path, "pairs")
            assert again.reasons == {Reason.NOT_COVERED}, "it has missed what the other text counted"
            assert again.packets["10.0.0.3"] == 300

            def followed() -> bool:
                """Sources go on, and what the query that is gone has promised is not what they promise."""
                asked_s = time.monotonic()
                states = lowmark("sources", "-c", str(path)).rows
                assert [state["state"] for state in states] == ["active", "active"]
                return all(float(str(state["lag_s"])) < asked_s - gone_s for state in states)

            await_true(followed)

            # What it holds at its end waits for Kafka, and that is said.
            os.kill(broker.pid, signal.SIGSTOP)
            capture.process.send_signal(signal.SIGTERM)
            await_true(lambda: f"waits for Kafka at {broker.bootstrap} to take its last " in capture.error)
            assert capture.process.poll() is None
            os.kill(broker.pid, signal.SIGCONT)
            assert capture.wait() == 0, capture.error
            assert [state["state"] for state in lowmark("sources", "-c", str(path)).rows] == ["stopped", "stopped"]
        path.write_text(first)
        assert Results.of(path).sent == 100 + sent + 300 + 10


def test_a_mounted_config_map_that_changes_is_taken_without_a_signal(net: Network, tmp_path: Path) -> None:
    """Kubernetes exchanges a link to a folder. What is refused is told, and ends nothing."""

    def mount(version: int, text: str) -> None:
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "lowmark.toml").write_text(text)
        (tmp_path / "..new").symlink_to(f"..{version}")
        (tmp_path / "..new").rename(tmp_path / "..data")

    path = tmp_path / "lowmark.toml"
    path.symlink_to("..data/lowmark.toml")
    with Broker(tmp_path / "broker") as broker:
        first = CAPTURE.format(broker=broker.bootstrap)
        mount(1, first)
        with Command("capture", "-c", str(path), "--reload-on-change") as capture:
            url = capture.url()

            def refused() -> float:
                return samples(get(f"{url}/metrics").text)["lowmark_configuration_refused", frozenset()]

            assert refused() == 0
            mount(2, first.replace("count(*)", "sum(nothing)"))
            await_true(lambda: "the old one stays in use" in capture.error or capture.process.poll() is not None)
            await_true(lambda: refused() == 1)
            page = get(f"{url}/readyz")
            assert page.status == 200
            assert "there is no field called nothing" in page.json["configuration refused"]
            mount(3, first + NEW)
            await_true(lambda: "queries are packets, pairs" in capture.error or capture.process.poll() is not None)
            await_true(lambda: refused() == 0)
            net.send("far", [packet(1, port=port) for port in range(1, 101)])
            await_true(lambda: Results.of(path, "pairs").packets["10.0.0.1"] == 100)
            capture.process.send_signal(signal.SIGTERM)
            assert capture.wait() == 0, capture.error
