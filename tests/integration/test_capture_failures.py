"""What fails beside a capture's sources: a topic of two, a thread."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from lowlevel.source_registration import EpochWatch
from lowmark.app.capture.process import run_capture
from lowmark.app.capture.sources import CaptureOptions
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.helpers import HelperEnded
from lowmark.wire.kafka.clients import KafkaSettings, admin, ensure_topics
from tests.acceptance.command import lowmark
from tests.acceptance.test_golden import at
from tests.integration.heads import CAPTURE
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.frames import frame, write_pcap
from tests.naive.readers import Frame

pytestmark = pytest.mark.slow

CONFIG = (
    CAPTURE
    + """\
[streams.Main]
disorder = "ordered"
[sources.tap]
stream = "Main"
file = "{file}"
follow = true
[queries.kept]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
[queries.lost]
sql = "SELECT srcIP, count(*) [RANGE 10 s] FROM Main GROUP BY srcIP"
"""
)


def _topic(config: Path, query: str) -> str:
    """Of its partials."""
    loaded = load_config(config)
    (plan,) = plan_queries(loaded, [query])
    return f"{loaded.prefix}lowmark.v1.partials.{plan.stage.fingerprint}"


def test_a_topic_that_is_deleted_and_made_again(broker: str, tmp_path: Path) -> None:
    config, file = tmp_path / "lowmark.toml", tmp_path / "grows.pcap"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8], file=file))
    packets = [frame(at(10 * number)) for number in range(1000)]
    written = 10
    write_pcap(file, packets[:written])
    kept, lost = _topic(config, "kept"), _topic(config, "lost")
    client = AdminClient({"bootstrap.servers": broker})
    with Command("capture", "-c", str(config)) as capture:
        url = capture.url()

        def shown(name: str, topic: str) -> float:
            found = value(samples(get(f"{url}/metrics").text), f"lowmark_{name}", topic=topic)
            assert found is not None
            return found

        def goes_on() -> None:
            """More packets come, and those of the topic that is well reach Kafka."""
            nonlocal written
            before = shown("kafka_records_total", kept)
            _append(file, packets[written : written + 10])
            written += 10
            await_true(lambda: shown("kafka_records_total", kept) > before)

        await_true(lambda: get(f"{url}/readyz").status == 200)
        goes_on()
        client.delete_topics([lost])[lost].result(30)
        goes_on()
        await_true(lambda: get(f"{url}/readyz").status == 503)
        page = get(f"{url}/readyz").json
        assert set(page) == {"status", "tap", "kafka", f"topic {lost}"}
        assert " s; lost reads it: " in page[f"topic {lost}"]
        assert "Was the topic deleted?" in page[f"topic {lost}"]
        assert shown("topic_failing_seconds", lost) > 0 == shown("topic_failing_seconds", kept)
        assert get(f"{url}/healthz").json == {
            "status": "ok", f"emitter {kept}": "running", f"emitter {lost}": "running", "epochs": "running",
            "kafka": "running", "health": "running",
        }  # fmt: skip
        await_true(lambda: shown("producer_restarts_total", lost) >= 2)
        goes_on()
        assert capture.error.count(f"topic {lost}, read by lost: Kafka takes no records") == 1

        loaded = load_config(config)
        assert ensure_topics(admin(KafkaSettings(broker)), topics_of(loaded, plan_queries(loaded))) == []
        await_true(lambda: get(f"{url}/readyz").status == 200)
        goes_on()
        capture.process.send_signal(signal.SIGTERM)
        assert capture.wait() == 0, capture.error
    assert f"topic {lost}, read by lost: Kafka takes records again" in capture.error


def _append(file: Path, packets: list[Frame]) -> None:
    part = write_pcap(file.with_suffix(".part"), packets)
    with file.open("ab") as grown:
        grown.write(part.read_bytes()[24:])


def test_a_thread_that_dies_ends_the_process(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is sent before."""
    config, file = tmp_path / "lowmark.toml", tmp_path / "grows.pcap"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8], file=file))
    write_pcap(file, [frame(at(10 * number)) for number in range(10)])
    hear, begun = EpochWatch._hear, threading.Event()

    def dying(self: EpochWatch, reader: Consumer) -> None:
        hear(self, reader)
        if begun.is_set():
            raise RuntimeError("a defect")

    def progress(text: str) -> None:
        if text.startswith("capturing"):
            begun.set()

    monkeypatch.setattr(EpochWatch, "_hear", dying)
    options = CaptureOptions(sources=(), pace=None, rebase=False)
    with pytest.raises(HelperEnded, match=r"the thread 'epochs' has ended, .*: RuntimeError: a defect"):
        run_capture(load_config(config), options, progress)
    (row,) = lowmark("sources", "-c", str(config)).rows
    assert row["state"] == "stopped"
