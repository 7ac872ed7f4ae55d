"""`lowmark watch --progress` over a broker: what stands in the topics says what a window waits for."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from lowmark.app.broker import Broker
from tests.acceptance.command import Row, lowmark
from tests.acceptance.test_golden import at
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.naive.frames import frame, write_pcap

pytestmark = pytest.mark.slow

CONFIG = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}-"
[capture]
metrics = "127.0.0.1:0"
[streams.Main]
[sources.pipe]
stream = "Main"
file = "-"
[sources.other]
stream = "Main"
file = "other.pcap"
[queries.count]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
"""


def waiting(config: Path) -> dict[str, Row]:
    outcome = lowmark("watch", "--progress", "--once", "--json", "-c", str(config))
    assert outcome.code == 0, outcome.error
    (row,) = (json.loads(line) for line in outcome.out.splitlines())
    assert row["query"] == "count"
    return {item["who"]: item for item in row["waiting"]}


def test_a_window_waits_first_for_a_source_then_for_another_then_for_the_job(broker: str, tmp_path: Path) -> None:
    config = tmp_path / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    assert {name: item["why"] for name, item in waiting(config).items()} == {
        "pipe": "it has never been seen", "other": "it has never been seen",
    }  # fmt: skip
    write_pcap(tmp_path / "other.pcap", map(frame, [at(1), at(60)]))
    with Command("capture", "-c", str(config), "--source", "other") as other:
        assert other.wait() == 0, other.error
    assert {name: item["why"] for name, item in waiting(config).items()} == {"pipe": "it has never been seen"}
    data = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(15), at(27)])).read_bytes()
    with Command("capture", "-c", str(config), "--source", "pipe", stdin=subprocess.PIPE) as capture:
        assert capture.process.stdin is not None
        capture.process.stdin.write(data)
        capture.process.stdin.flush()
        # Both are past the first window, which nobody closes: there is no job.
        await_true(lambda: list(waiting(config)) == ["the job"])
        capture.process.stdin.close()
        assert capture.wait() == 0, capture.error


def test_a_query_has_to_be_named_unless_progress_is_asked_for() -> None:
    for arguments in (["watch"], ["watch", "q", "--once"]):
        assert lowmark(*arguments).code == 2


def test_a_broker_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    """Nothing of what Kafka's client has to say of it; and watching goes on when it is back."""
    config = tmp_path / "lowmark.toml"
    with contextlib.ExitStack() as stack:
        with Broker(tmp_path / "data") as started:
            address = started.bootstrap
            config.write_text(CONFIG.format(broker=address, prefix=uuid4().hex[:8]))
            assert lowmark("topics", "--create", "-c", str(config)).code == 0
            plain = stack.enter_context(Command("watch", "count", "-c", str(config), "--json"))
            progress = stack.enter_context(Command("watch", "--progress", "-c", str(config), "--json"))
            await_true(lambda: "never been seen" in progress.out)
        await_true(lambda: all("is away" in watch.error for watch in (plain, progress)))
        with Broker(tmp_path / "data", int(address.rpartition(":")[2])):
            await_true(lambda: all("is back" in watch.error for watch in (plain, progress)))
            for watch in (plain, progress):
                watch.process.send_signal(signal.SIGINT)
                assert watch.wait() == 130
    for watch in (plain, progress):
        away, back, *rest = watch.error.splitlines()
        assert away == f"the broker at {address} is away: waiting for it"
        assert back == f"the broker at {address} is back"
        assert "".join(rest).strip() == ""
