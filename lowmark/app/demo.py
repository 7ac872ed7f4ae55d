"""`lowmark demo`: runs all of lowmark on one machine, from packets to final windows, and removes it afterwards."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lowmark.app.console import Teller, telling
from lowmark.app.errors import EnvironmentNotReady, OutputError
from lowmark.app.kafka.broker import Broker, loopback
from lowmark.app.traffic import Handshakes, TrafficSpec, write_links
from lowmark.app.watch.follow import follow, show_window
from lowmark.app.watch.window_board import FinishedWindow
from lowmark.jit.cache_folder import cache_root
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind

__all__ = ["DemoOptions", "run_demo"]

QUERY = "talkers"
_WINDOW_S = 5
_READY_S = 180
_SKEW_NS = 400_000_000
"""How far the clock of the second link is ahead of the first."""

_CONFIG = """\
# A working configuration of lowmark: two links, one query over both. docs/configuration.md explains every key.
[kafka]
bootstrap = "{bootstrap}"

[capture]
metrics = "127.0.0.1:{capture_port}"

[job]
checkpoint = "{folder}/checkpoint"
buckets = 2
metrics = "127.0.0.1:{job_port}"

[streams.Main1]
disorder = "within 50 ms"

[streams.Main2]
disorder = "within 50 ms"

[sources.tap1]
stream = "Main1"
file = "{folder}/main1.pcap"

[sources.tap2]
stream = "Main2"
file = "{folder}/main2.pcap"

[queries.{query}]
sql = '''
{sql}
'''
"""

SQL = f"""\
SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes [RANGE {_WINDOW_S} seconds, WA ts]
FROM Main1 UNION Main2
GROUP BY srcIP, destIP
HAVING count(*) > 1000"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    seconds: float  # time to run after the first final window
    rate: int  # packets per second on each link
    keep: Path | None  # working folder, kept afterwards; None: a temporary one


class _Ended(Exception):
    """Ctrl-C or SIGTERM."""


def run_demo(options: DemoOptions) -> int:
    """Returns the exit code. In any case, it ends all that it started and removes the temporary folder."""
    console = Console()

    def end(number: int, frame: object) -> None:
        raise _Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(_folder(options.keep))
            _run(options, folder, stack, console)
    except _Ended:
        removed = "" if options.keep else " and the demo's data removed"
        console.print(f"\nended: processes are stopped{removed}", style="dim")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _run(options: DemoOptions, folder: Path, stack: ExitStack, console: Console) -> None:
    started = time.monotonic()
    with telling() as tell:
        tell("starting a Kafka broker, and making traffic of two links")
        with ThreadPoolExecutor(1) as beside:
            traffic = beside.submit(_write_traffic, folder, options.rate, options.seconds + 120)
            try:
                broker = stack.enter_context(Broker(folder / "broker", host=loopback(), progress=tell))
            except EnvironmentNotReady:
                with _writing(folder):
                    traffic.result()  # a full disk stops both, and this one says so
                raise
            with _writing(folder):
                config = _write_config(folder, broker.bootstrap)
            tell("starting the Spark job and the capture (some 15 seconds)")
            job = stack.enter_context(_child("job", ["run", "--config", str(config.path)], folder))
            with _writing(folder):
                traffic.result()
        paced = ["capture", "--config", str(config.path), "--pace", "1.0", "--rebase"]
        capture = stack.enter_context(_child("capture", paced, folder))
        children = [job, capture]
        _await_ready(config.job_port, children, tell, "waiting for the Spark job")
        tell.note(_pointers(config, folder))
        tell(f"the first {_WINDOW_S}-second window closes when both links have promised that they are past it")
        events = follow(
            KafkaSettings(config.bootstrap), "", QUERY, beginning=True, stop=lambda: _check(children) is None,
            say=tell.note,
        )  # fmt: skip
        deadline: float | None = None
        windows = (event for event in events if isinstance(event, FinishedWindow))
        first = next(windows)
    console.print(f"first final window {time.monotonic() - started:.0f} s after the start", style="dim")
    show_window(console, QUERY, first)
    deadline = time.monotonic() + options.seconds
    for window in windows:
        show_window(console, QUERY, window)
        if time.monotonic() > deadline:
            break
    console.print(f"end of the demo; `lowmark demo --seconds {2 * options.seconds:.0f}` runs longer", style="dim")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        with _writing(keep):
            keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    root = cache_root()
    with _writing(root):
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="demo-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{error.filename or folder} cannot be written: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    bootstrap: str
    capture_port: int
    job_port: int


def _write_config(folder: Path, bootstrap: str) -> _Written:
    capture_port, job_port = _free_port(), _free_port()
    path = folder / "lowmark.toml"
    path.write_text(
        _CONFIG.format(
            bootstrap=bootstrap, capture_port=capture_port, job_port=job_port, folder=folder, query=QUERY, sql=SQL
        )
    )
    return _Written(path, bootstrap, capture_port, job_port)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _write_traffic(folder: Path, rate: int, length_s: float) -> None:
    spec = TrafficSpec(
        packets=int(rate * length_s), duration_ns=int(length_s * 1e9), groups=2_000, zipf=1.2, jitter_ns=20_000_000
    )
    handshakes = Handshakes(count=int(20 * length_s), skew_ns=_SKEW_NS)
    write_links(folder / "main1.pcap", folder / "main2.pcap", spec, handshakes)


@dataclass(frozen=True, slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_lines(self) -> tuple[str, ...]:
        return tuple(self.log.read_text(errors="replace").splitlines()[-8:])


@contextmanager
def _child(name: str, arguments: list[str], folder: Path) -> Iterator[_Child]:
    """Runs a lowmark command in another process, which gets no signals of the terminal, only ours."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lowmark", *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield _Child(name, process, log)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _check(children: list[_Child]) -> int | None:
    """Number of children; EnvironmentNotReady if one has failed. One that has ended with 0 is no failure."""
    for child in children:
        status = child.process.poll()
        if status not in (None, 0):
            raise EnvironmentNotReady(
                f"the {child.name} process ended with status {status}", "its last lines are above", child.last_lines()
            )
    return len(children)


def _await_ready(port: int, children: list[_Child], tell: Teller, what: str) -> None:
    """Waits until the process says that it is ready."""
    started = time.monotonic()
    while True:
        _check(children)
        with contextlib.suppress(OSError):  # nobody listens yet, or the answer is 503
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
            return
        waited = time.monotonic() - started
        tell.passing(f"{what} ({waited:.0f} s)")
        if waited > _READY_S:
            raise EnvironmentNotReady(
                f"{what}: not ready after {_READY_S} s", "its last lines are above", children[0].last_lines()
            )
        time.sleep(0.2)


def _pointers(config: _Written, folder: Path) -> str:
    topic = Topic(TopicKind.RESULTS, QUERY).name
    return f"""lowmark is running: two links, one query
  query     {QUERY}: {" ".join(SQL.split())}
  metrics   http://127.0.0.1:{config.capture_port}/metrics (capture)  http://127.0.0.1:{config.job_port}/metrics (job)
  broker    {config.bootstrap}, results on topic {topic}
  try       lowmark watch {QUERY} -c {config.path}
            lowmark watch --progress -c {config.path}
            lowmark sources -c {config.path}
  logs      {folder}"""
