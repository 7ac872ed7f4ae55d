"""The units, started by a real systemd: as users of their own, with the rights that they state and no more."""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lowmark.app.kafka.jars import SETS, obtain
from tests.fixtures.network import packet
from tests.fixtures.systemd import Booted, boot
from tests.integration.jobprocess import await_true

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not os.environ.get("LOWMARK_TEST_SYSTEMD"), reason="it takes two minutes: LOWMARK_TEST_SYSTEMD=1 has it done"
    ),
]

ROOT = Path(__file__).parents[2]
UNITS = ("lowmark-broker", "lowmark-job", "lowmark-capture@tap")
NET_RAW = 1 << 13
CONFIG = """
[kafka]
bootstrap = "127.0.0.1:9092"
[topics]
replication = 1
[capture.table]
slots = 1024
[metrics]
token = {file = "${CREDENTIALS_DIRECTORY}/secrets_token"}
[job]
checkpoint = "/var/lib/lowmark-job/checkpoint"
heap = "512m"
buckets = 1
[streams.Main]
[sources.tap]
stream = "Main"
interface = "eth0"
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
"""
COMMAND = """#!/bin/sh
export PYTHONPATH=/opt/source:/opt/packages PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=/opt/python/lib
exec /opt/python/bin/{python} -m lowmark "$@"
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as far:
    far.bind(("far", 0))
    for frame in sys.argv[1:]:
        far.send(bytes.fromhex(frame))
"""


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """With lowmark below /opt/lowmark as the command alone: interpreter, packages and sources lie beside it."""
    binds = {Path(sys.base_prefix): "opt/python", Path(site.getsitepackages()[0]): "opt/packages", ROOT: "opt/source"}
    for jar_set in SETS:
        jars = obtain(jar_set)[0].parent
        binds[jars] = f"opt/lowmark/share/lowmark/jars/{jars.name}"
    with boot(tmp_path_factory.mktemp("host"), binds) as booted:
        command = booted.root / "opt/lowmark/bin/lowmark"
        command.parent.mkdir(parents=True)
        command.write_text(COMMAND.format(python=Path(sys.executable).resolve().name))
        command.chmod(0o755)
        shutil.copytree(ROOT / "deploy" / "systemd", booted.root / "usr/local/lib", dirs_exist_ok=True)
        booted.do("systemd-sysusers", "lowmark.conf")
        booted.do("systemd-tmpfiles", "--create", "lowmark.conf")
        booted.do("systemctl", "daemon-reload")
        for name in ("lowmark", "tap"):
            (booted.root / f"etc/lowmark/{name}.toml").write_text(CONFIG)
        yield booted


def sees(systemd: Booted, unit: str) -> dict[str, str]:
    """A process of a unit, as the kernel has it."""
    text = (systemd.root / "proc" / systemd.shown(unit, "MainPID") / "status").read_text()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def send(systemd: Booted, *frames: bytes) -> None:
    systemd.do(sys.executable, "-c", SEND, *(frame.hex() for frame in frames))


def lowmark(systemd: Booted, *arguments: str) -> str:
    """A command that reads the configuration as the units do."""
    given = ["-p", "LoadCredential=secrets:/etc/lowmark/secrets", "-E", "LOWMARK_JARS=/opt/lowmark/share/lowmark"]
    command = ["/opt/lowmark/bin/lowmark", *arguments, "-c", "/etc/lowmark/lowmark.toml"]
    return systemd.do("systemd-run", "--pipe", "--wait", "--quiet", *given, *command, within_s=120)


def counted(systemd: Booted, since: float, until: float) -> int:
    """Packets of 10.0.0.1 in the windows between two times, which are final."""
    times = [datetime.fromtimestamp(of, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for of in (since, until)]
    said = lowmark(systemd, "watch", "packets", "--json", "--since", times[0], "--until", times[1])
    rows = map(json.loads, said.splitlines())
    return sum(row["packets"] for row in rows if row.get("srcIP") == "10.0.0.1")


def test_the_units_start_work_and_are_watched(systemd: Booted) -> None:
    """A capture that is started before Kafka is there does not hold its starter up for ever, and comes by itself. Then,
    in the order of docs/deploy.md: each is active once it works, with a user of its own, no right but the capture's
    one, and the secret that root alone may read. A capture that stands still is killed and started again."""
    secret = systemd.root / "etc/lowmark/secrets/token"
    secret.write_text("of-the-pages\n")
    secret.chmod(0o600)
    dropped = systemd.root / "run/systemd/system/lowmark-capture@tap.service.d/soon.conf"
    dropped.parent.mkdir(parents=True)
    dropped.write_text("[Service]\nWatchdogSec=10\nRestartSec=1\n")
    bounded = dropped.with_name("bounded.conf")
    bounded.write_text("[Service]\nTimeoutStartSec=10\n")
    systemd.do("systemctl", "daemon-reload")
    assert systemd.run("systemctl", "start", "lowmark-capture@tap", within_s=120).returncode != 0
    bounded.unlink()
    systemd.do("systemctl", "daemon-reload")
    await_true(lambda: systemd.shown("lowmark-capture@tap", "StatusText").startswith("waiting for Kafka"))

    systemd.do("systemctl", "start", "lowmark-broker", within_s=180)
    await_true(lambda: systemd.shown("lowmark-capture@tap", "ActiveState") == "active")
    assert "fail" not in lowmark(systemd, "check")
    systemd.do("systemctl", "start", *UNITS[1:], within_s=180)
    users = set()
    for unit in UNITS:
        assert systemd.shown(unit, "ActiveState") == "active"
        process = sees(systemd, unit)
        rights = NET_RAW if "capture" in unit else 0
        assert [int(process[name], 16) for name in ("CapEff", "CapPrm", "CapAmb", "CapBnd")] == [rights] * 4
        assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")
        users.add(process["Uid"])
    assert len(users) == 3
    assert not [user for user in users if user.startswith("0")]
    assert systemd.shown("lowmark-broker", "StatusText") == "broker ready at 127.0.0.1:9092"
    assert systemd.shown("lowmark-capture@tap", "StatusText").startswith("capturing tap")

    page = ["-H", "Authorization: Bearer of-the-pages", "http://127.0.0.1:9464/metrics"]
    assert "lowmark_" in systemd.do("curl", "--silent", "--fail", *page)
    assert systemd.run("curl", "--silent", "--fail", page[-1]).returncode == 22

    before = time.time()
    send(systemd, *[packet(1)] * 20)
    assert counted(systemd, before - 1, time.time() + 2) == 20

    stuck, restarts = (systemd.shown("lowmark-capture@tap", name) for name in ("MainPID", "NRestarts"))
    systemd.do("kill", "-STOP", stuck)
    await_true(lambda: systemd.shown("lowmark-capture@tap", "NRestarts") != restarts)
    await_true(lambda: systemd.shown("lowmark-capture@tap", "ActiveState") == "active")
    assert systemd.shown("lowmark-capture@tap", "MainPID") not in ("0", stuck)

    for unit in reversed(UNITS):  # the host's end stops them in this order, too: what is queued gets to the broker
        systemd.do("systemctl", "stop", unit, within_s=180)
    for unit in UNITS:
        said = systemd.do("journalctl", "--unit", unit, "--lines=20", "--output=cat")
        assert (systemd.shown(unit, "ActiveState"), systemd.shown(unit, "Result")) == ("inactive", "success"), said
