"""A capture that root starts, and that goes on as somebody without any rights."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowmark.app.kafka.broker import Broker
from lowmark.jit.cache_folder import cache_root
from tests.fixtures.network import Network, ip, namespace, packet
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.integration.readings import Results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root's rights: run the tests as root"),
]

_ROOT = Path(__file__).parents[2]
USER = "nobody"
CAPTURE = """
[kafka]
bootstrap = "{broker}"
[capture]
metrics = "127.0.0.1:{port}"
[capture.queue]
spill = "spill"
[streams.Main]
[sources.tap]
stream = "Main"
interface = "near"
priority = {priority}
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
buckets = 2
"""
RAISE_LIMITS = 1 << 24  # CAP_SYS_RESOURCE, which root may lack in a container
PRIORITY = int(bool(int(re.findall(r"CapEff:\s(\S+)", Path("/proc/self/status").read_text())[0], 16) & RAISE_LIMITS))
NEW = """
[queries.pairs]
sql = "SELECT srcIP, sum(len) AS bytes, count(*) AS packets [RANGE 2 s] FROM Main GROUP BY srcIP"
"""


@pytest.fixture
def net() -> Iterator[Network]:
    with namespace() as made:
        made.pair("far", "near")
        yield made


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of the user's; kernels that have been compiled are in it."""
    folder = Path(tempfile.mkdtemp(prefix="lowmark-"))
    try:
        if (kernels := cache_root() / "kernels").is_dir():
            shutil.copytree(kernels, folder / "cache" / "kernels")
        _give(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _give(folder: Path, name: str = USER) -> None:
    entry = pwd.getpwnam(name)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, entry.pw_uid, entry.pw_gid)


def _readable(theirs: Path) -> tuple[str, ...]:
    """Runs what follows where everybody can read the interpreter, this repository and `theirs`: any of them may lie in
    a folder of root's own, over which another is mounted that has nothing but them."""
    closed: dict[Path, list[Path]] = {}
    for path in (Path(sys.base_prefix), _ROOT, Path(sys.prefix), theirs):
        top = next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)
        if top is not None:
            closed.setdefault(top, []).append(path)
    script = ["mount -t tmpfs -o mode=755 tmpfs /mnt"]
    for number, (top, paths) in enumerate(closed.items()):
        for path in paths:
            place = f"/mnt/{number}/{path.relative_to(top)}"
            script += [f"mkdir -p {place}", f"mount --rbind {path} {place}"]
        script.append(f"mount --rbind /mnt/{number} {top}")
    under = ("env", f"LOWMARK_CACHE={theirs / 'cache'}")
    return (*under, "unshare", "--mount", "sh", "-c", " && ".join([*script, 'exec "$@"']), "sh")


def test_a_capture_goes_on_without_any_rights(net: Network, theirs: Path) -> None:
    path = theirs / "lowmark.toml"
    with Broker(theirs / "broker") as broker:
        path.write_text(CAPTURE.format(broker=broker.bootstrap, port=0, priority=PRIORITY))
        with Command("capture", "-c", str(path), "--user", USER, under=_readable(theirs)) as capture:
            capture.url()
            entry = pwd.getpwnam(USER)
            tasks = list(Path(f"/proc/{capture.process.pid}/task").iterdir())
            for task in tasks:
                lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
                assert lines["Uid"].split() == [str(entry.pw_uid)] * 4
                assert lines["Gid"].split() == [str(entry.pw_gid)] * 4
                assert set(map(int, lines["Groups"].split())) == set(os.getgrouplist(USER, entry.pw_gid))
                assert [int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0] * 4
            policies = {os.sched_getscheduler(int(task.name)) for task in tasks}
            assert (os.SCHED_FIFO in policies) == bool(PRIORITY)
            assert "NoNewPrivs:\t1\n" in Path(f"/proc/{capture.process.pid}/status").read_text()
            assert (theirs / "spill").stat().st_uid == entry.pw_uid

            net.send("far", [packet(1, port=port) for port in range(1, 401)])
            await_true(lambda: Results.of(path).packets["10.0.0.1"] == 400)

            path.write_text(path.read_text() + NEW)
            capture.process.send_signal(signal.SIGHUP)
            await_true(lambda: "queries are packets, pairs" in capture.error)
            net.send("far", [packet(2, port=port) for port in range(1, 401)])
            await_true(lambda: Results.of(path, "pairs").packets["10.0.0.2"] == 400)

            # Another ring is more than it has a right to.
            ip("link", "del", "near")
            await_true(lambda: "near was removed" in capture.error)
            net.pair("far", "near")
            assert capture.wait() == 1
            assert "near is there again, and another ring for it takes the capability CAP_NET_RAW" in capture.error
        assert Results.of(path, "packets").sent == 800


def test_what_cannot_be_done_then_is_said_before_it_captures(net: Network, theirs: Path) -> None:
    path = theirs / "lowmark.toml"
    under = _readable(theirs)

    def said(user: str = USER, port: int = 0, priority: int = 0) -> str:
        path.write_text(CAPTURE.format(broker="127.0.0.1:1", port=port, priority=priority))
        with Command("capture", "-c", str(path), "--user", user, under=under) as capture:
            assert capture.wait() in (1, 2)
            assert "Traceback" not in capture.error
            return " ".join(capture.error.split())

    assert "there is no user 'lowmark-nobody' on this host" in said("lowmark-nobody")
    assert "cannot serve metrics on 127.0.0.1:99: Permission denied" in said(port=99)
    if not PRIORITY:
        assert "source tap is to run with real-time priority 1, and this process may not" in said(priority=1)
    (theirs / "spill").mkdir(exist_ok=True)
    _give(theirs / "spill", "root")
    assert "spill: nothing can be written there: Permission denied" in said()
    path.chmod(0o600)
    _give(path, "root")
    assert f"cannot read the configuration {path}: Permission denied" in said()


def test_who_is_not_root_cannot_become_another_and_needs_the_capability_alone(net: Network, theirs: Path) -> None:
    """The command that the refusal shows."""
    path = theirs / "lowmark.toml"
    path.write_text(CAPTURE.format(broker="127.0.0.1:1", port=0, priority=0))
    under = (
        *_readable(theirs), "setpriv", f"--reuid={USER}", f"--regid={pwd.getpwnam(USER).pw_gid}", "--init-groups",
        "--inh-caps=+net_raw", "--ambient-caps=+net_raw",
    )  # fmt: skip
    with Command("capture", "-c", str(path), "--user", USER, under=under) as capture:
        assert capture.wait() == 2
        assert f"this process may not become the user '{USER}'" in " ".join(capture.error.split())
    text = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
    with Command("query", "--format", "jsonl", "-i", "near", text, under=under) as query:
        await_true(lambda: "Ctrl-C ends it" in query.error or query.process.poll() is not None)
        net.send("far", [packet(1)] * 10)
        query.process.send_signal(signal.SIGINT)
        assert query.wait() == 0, query.error
        assert sum(int(str(row["packets"])) for row in query.rows) == 10
