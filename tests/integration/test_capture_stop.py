"""A capture process that is told to end, or that is superseded, while its sources have nothing to say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.command import Row, lowmark
from tests.acceptance.test_golden import at
from tests.integration.heads import CAPTURE
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.frames import frame, write_pcap

pytestmark = pytest.mark.slow

CONFIG = (
    CAPTURE
    + """\
[streams.Main]
[sources.pipe]
stream = "Main"
file = "-"
[queries.count]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
"""
)


def _state(config: Path) -> Row:
    (row,) = lowmark("sources", "-c", str(config)).rows
    return row


def test_silent_pipe(broker: str, tmp_path: Path) -> None:
    """SIGTERM ends it with what has arrived; a later life takes over from a silent one when it is told to."""
    config = tmp_path / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    data = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(15), at(31)])).read_bytes()
    assert _state(config)["state"] == "not seen"

    with _fed(config, data) as first:
        assert _state(config)["state"] == "active"
        first.process.send_signal(signal.SIGTERM)
        assert first.wait() == 0, first.error
    stopped = _state(config)
    assert stopped["state"] == "stopped"

    with _fed(config, data) as second, _fed(config, data, "--take-over") as third:
        assert second.wait() == 1, second.error
        assert "registered again elsewhere" in second.error
        assert third.process.stdin is not None
        third.process.stdin.close()
        assert third.wait() == 0, third.error
    ended = _state(config)
    assert ended["state"] == "ended"
    assert int(str(ended["epoch"])) > int(str(stopped["epoch"])) + 1


def test_captures_that_have_only_begun(broker: str, tmp_path: Path) -> None:
    """They hold up neither the start nor another source, nor the end."""
    data = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(15), at(31)])).read_bytes()
    (tmp_path / "begun.pcap").write_bytes(data[:24])
    (tmp_path / "rotated").mkdir()
    (tmp_path / "rotated" / "1.pcap").write_bytes(data[:24])
    os.mkfifo(tmp_path / "unopened")
    config = tmp_path / "lowmark.toml"
    config.write_text(
        CONFIG.format(broker=broker, prefix=uuid4().hex[:8]).replace('"-"', '"a.pcap"')
        + "".join(
            f'[sources.{name}]\nstream = "Main"\nfile = "{file}"\nfollow = {follow}\n'
            for name, file, follow in (
                ("begun", "begun.pcap", "true"), ("rotated", "rotated", "true"), ("unopened", "unopened", "false")
            )
        )
    )  # fmt: skip
    with Command("capture", "-c", str(config)) as capture:
        url = capture.url()
        busy = {"source": "pipe", "stream": "Main"}
        await_true(lambda: value(samples(get(f"{url}/metrics").text), "lowmark_frames_received_total", **busy) == 3)
        told = get(f"{url}/readyz").json
        assert [told[name] for name in ("begun", "rotated", "unopened")] == ["capturing"] * 3
        capture.process.send_signal(signal.SIGTERM)
        assert capture.wait() == 0, capture.error


def test_second_start(broker: str, tmp_path: Path) -> None:
    """It is refused, and the first goes on; a process that was killed is in nobody's way."""
    config = tmp_path / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    data = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(15), at(31)])).read_bytes()
    with _fed(config, data) as first:
        registered = _state(config)
        with _begun(config, data) as second:
            assert second.wait() == 1, second.error
        assert "another process is sending sources that this one is to capture" in second.error
        assert f"source pipe: {registered['process']}" in second.error
        assert "--take-over" in second.error

        # Nor does one that finds its port taken stop it.
        (port,) = re.findall(r":(\d+)$", first.url())
        beside = tmp_path / "beside.toml"
        beside.write_text(config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        with _begun(beside, data, "--take-over") as third:
            assert third.wait() == 1, third.error
        assert f"cannot serve metrics on 127.0.0.1:{port}" in third.error
        assert "capture.metrics in the configuration" in third.error

        # One with the same configuration says whose sources they are, not that their page is taken.
        with _begun(beside, data) as same:
            assert same.wait() == 1, same.error
        assert f"source pipe: {registered['process']}" in same.error
        assert "cannot serve metrics" not in same.error

        assert {**_state(config), "lag_s": None} == {**registered, "lag_s": None}
        assert get(f"{first.url()}/readyz").json["pipe"] == "capturing"
        first.process.kill()
        first.process.wait()
    with _fed(config, data) as fourth:
        fourth.process.send_signal(signal.SIGTERM)
        assert fourth.wait() == 0, fourth.error
    assert int(str(_state(config)["epoch"])) > int(str(registered["epoch"]))


def test_one_of_two_sources_that_is_taken_over(broker: str, tmp_path: Path) -> None:
    """The process goes on with the other one, and says so."""
    config = tmp_path / "lowmark.toml"
    sources = ""
    for name in ("left", "right"):
        file = write_pcap(tmp_path / f"{name}.pcap", map(frame, [at(1), at(15)]))
        sources += f'[sources.{name}]\nstream = "Main"\nfile = "{file}"\nfollow = true\n'
    pipe = '[sources.pipe]\nstream = "Main"\nfile = "-"\n'
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]).replace(pipe, sources))
    with Command("capture", "-c", str(config)) as first:
        url = first.url()
        await_true(lambda: get(f"{url}/readyz").json.get("left") == "capturing")
        with Command("capture", "-c", str(config), "--source", "left", "--take-over") as second:
            second.url()
            await_true(lambda: get(f"{url}/readyz").json["left"] == "captured by another process")
        page = get(f"{url}/readyz")
        assert (page.status, page.json["right"]) == (200, "capturing")


def _fed(config: Path, data: bytes, *options: str) -> Command:
    """A capture that has taken all of this in, and waits for more."""
    command = _begun(config, data, *options)
    try:
        url = command.url()
        source = {"source": "pipe", "stream": "Main"}
        await_true(lambda: value(samples(get(f"{url}/metrics").text), "lowmark_frames_received_total", **source) == 3)
        assert json.loads(get(f"{url}/readyz").text)["pipe"] == "capturing"
    except BaseException:
        command.__exit__()
        raise
    return command


def _begun(config: Path, data: bytes, *options: str) -> Command:
    command = Command("capture", "-c", str(config), *options, stdin=subprocess.PIPE)
    assert command.process.stdin is not None
    command.process.stdin.write(data)
    command.process.stdin.flush()
    return command
