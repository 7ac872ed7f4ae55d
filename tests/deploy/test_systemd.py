"""The units: systemd's own checks of them, and what the processes tell it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fixtures.service_manager import Told
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.processes import Command

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted((FOLDER / "systemd" / "system").glob("*.service"))
MOST_EXPOSED = 2.0
CONFIG = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}"
[capture]
metrics = "127.0.0.1:0"
[capture.table]
slots = 1024
[job]
metrics = "127.0.0.1:0"
heap = "512m"
buckets = 2
[streams.Main]
[sources.tap]
stream = "Main"
file = "{pipe}"
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
"""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """As installed, but with this environment's command: systemd looks whether it is there."""
    command = Path(sys.executable).with_name("lowmark")
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/opt/lowmark/bin/lowmark", str(command)))
        copies.append(copy)
    return copies


@needs_systemd
def test_systemd_understands_all_of_them(units: list[Path]) -> None:
    assert len(units) == 3
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_another_start_does_not_heal_is_not_started_again(unit: Path) -> None:
    """2 is the exit code of a wrong configuration, query or option, and of a refused checkpoint."""
    assert "\nRestartPreventExitStatus=2\n" in unit.read_text()


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_little_is_exposed(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--no-pager"]
    done = subprocess.run([*command, unit], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users")
def test_users_and_folders_are_made(tmp_path: Path) -> None:
    """In a root of its own."""
    (tmp_path / "etc").mkdir()
    for tool, file in (("sysusers", "sysusers.d/lowmark.conf"), ("tmpfiles", "tmpfiles.d/lowmark.conf")):
        command = [f"systemd-{tool}", f"--root={tmp_path}", FOLDER / file]
        subprocess.run(command + ["--create"] * (tool == "tmpfiles"), check=True, capture_output=True)
    (line,) = (text for text in (tmp_path / "etc/passwd").read_text().splitlines() if text.startswith("lowmark:"))
    group = int(line.split(":")[3])
    folder, secrets = tmp_path / "etc/lowmark", tmp_path / "etc/lowmark/secrets"
    assert (folder.stat().st_mode & 0o777, folder.stat().st_gid) == (0o750, group)
    assert (secrets.stat().st_mode & 0o777, secrets.stat().st_uid) == (0o700, 0)


def test_each_setting_names_a_command_and_a_folder_that_are_there() -> None:
    """What the units start exists, and everything that they may write is a folder that systemd makes for them."""
    for unit in UNITS:
        lines = [line for line in unit.read_text().splitlines() if line and not line.startswith("#")]
        settings = {name: value for name, _, value in (line.partition("=") for line in lines)}
        assert settings["Type"] == "notify"
        assert int(settings["WatchdogSec"]) > 0
        assert 0 < int(settings["TimeoutStartSec"]) <= 900, "what is started at a host's boot holds it up no longer"
        name = unit.stem.partition("@")[0]
        assert settings["StateDirectory"].startswith(name)
        assert settings["CacheDirectory"].startswith(name)
        assert f"LOWMARK_CACHE=%C/{settings['CacheDirectory']}" in unit.read_text()
        assert settings["CapabilityBoundingSet"] == ("CAP_NET_RAW" if "capture" in name else "")


@pytest.mark.slow
def test_capture_and_job_tell_when_they_work(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture of a pipe without a writer, and a job that has nothing to read, are ready, and feed the watchdog."""
    os.mkfifo(tmp_path / "tap.pcap")
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(broker=broker, prefix=f"{uuid4().hex[:8]}-", pipe=tmp_path / "tap.pcap"))
    of_job, of_capture = Told(tmp_path / "job", watchdog_s=1), Told(tmp_path / "capture", watchdog_s=1)
    for name, value in of_job.environment.items():
        monkeypatch.setenv(name, value)
    with JobProcess(path) as job:
        assert "READY=1" not in of_job.lines
        under = ("env", *(f"{name}={value}" for name, value in of_capture.environment.items()))
        with Command("capture", "-c", str(path), under=under) as capture:
            await_true(lambda: of_capture.count("WATCHDOG=1") > 2 or capture.process.poll() is not None)
            lines = of_capture.lines
            ready = lines.index("READY=1")
            assert any(line.startswith("STATUS=capturing tap") for line in lines[:ready])
            assert lines.index("WATCHDOG=1") > ready

            await_true(lambda: (bool(of_capture.lines) and of_job.count("WATCHDOG=1") > 2) or job.ended)
            assert any(line.startswith("STATUS=running packets") for line in of_job.lines)
            assert of_job.lines.index("WATCHDOG=1") > of_job.lines.index("READY=1")

            capture.process.send_signal(signal.SIGTERM)
            assert capture.wait() == 0, capture.error
            assert of_capture.count("STOPPING=1") == 1
        job.terminate()
        assert job.wait() == 0, job.said
        assert of_job.count("STOPPING=1") == 1
    of_job.close()
    of_capture.close()
