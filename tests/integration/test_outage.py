"""What a capture and a job say of themselves while Kafka is away, and behind it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from lowmark.app.kafka.broker import Broker
from tests.acceptance.test_golden import at
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.frames import frame, write_pcap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = """
[kafka]
bootstrap = "{broker}"
[capture]
metrics = "127.0.0.1:0"
[job]
metrics = "127.0.0.1:0"
heap = "512m"
buckets = 2
[streams.Main]
disorder = "ordered"
[sources.tap]
stream = "Main"
file = "{file}"
follow = true
[queries.talkers]
sql = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP"
"""


def test_readiness_falls_and_comes_back(tmp_path: Path) -> None:
    """Of both processes, though the capture has nothing to send; they live all the time."""
    config, file = tmp_path / "lowmark.toml", tmp_path / "grows.pcap"
    write_pcap(file, [frame(at(number)) for number in range(10)])
    with Broker(tmp_path / "broker") as broker:
        config.write_text(CONFIG.format(broker=broker.bootstrap, file=file))
        with Command("capture", "-c", str(config)) as capture, Command("run", "-c", str(config)) as job:
            urls = capture.url(), job.url()

            def shown(url: str, name: str, **labels: str) -> float | None:
                return value(samples(get(f"{url}/metrics").text), f"lowmark_{name}", **labels)

            await_true(lambda: [get(f"{url}/readyz").status for url in urls] == [200, 200])
            await_true(lambda: shown(urls[1], "frontier_lag_seconds", query="talkers") is not None)
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                began_s = time.monotonic()
                lag = shown(urls[1], "frontier_lag_seconds", query="talkers")
                shown_s = time.monotonic()
                await_true(lambda: [get(f"{url}/readyz").status for url in urls] == [503, 503])
                for url in urls:
                    said = get(f"{url}/readyz").json["kafka"]
                    assert said.startswith("has not answered for ")
                    assert f"Kafka at {broker.bootstrap} (PLAINTEXT): " in said
                    assert (shown(url, "kafka_unreachable_seconds") or 0) > 0
                    assert get(f"{url}/healthz").status == 200
                asked_s = time.monotonic()
                later = shown(urls[1], "frontier_lag_seconds", query="talkers")
                assert lag is not None
                assert later is not None
                assert asked_s - shown_s - 0.1 <= later - lag <= time.monotonic() - began_s + 0.1
                silent = shown(urls[1], "source_silent_seconds", source="tap")
                assert silent is not None
                assert silent >= asked_s - began_s - 1
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            await_true(lambda: [get(f"{url}/readyz").status for url in urls] == [200, 200])
            assert [shown(url, "kafka_unreachable_seconds") for url in urls] == [0, 0]
            stage = {"node": _node(get(f"{urls[1]}/metrics").text), "source": "tap"}
            await_true(lambda: shown(urls[1], "source_awaited", **stage) == 2)  # nothing more has come of it
            os.kill(broker.pid, signal.SIGKILL)
            await_true(lambda: [get(f"{url}/readyz").status for url in urls] == [503, 503])
            for process in (capture, job):
                assert spoken(process) == ["Kafka does not answer", "Kafka answers again", "Kafka does not answer"]
                assert "%3|" not in process.error  # as the client would print it
            job.process.send_signal(signal.SIGTERM)
            assert job.wait() == 0, job.error


def spoken(process: Command) -> list[str]:
    """The beginnings of what it has logged of Kafka."""
    lines = [json.loads(line) for line in process.error.splitlines() if line.startswith("{")]
    return [re.split("[:,]", line["message"])[0] for line in lines if line["logger"].startswith("lowmark.kafka")]


def _node(page: str) -> str:
    (labels,) = (dict(labels) for name, labels in samples(page) if name == "lowmark_node_info")
    return labels["node"]
