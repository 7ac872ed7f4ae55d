"""A capture and a job at work, and a Prometheus that scrapes them: started once for all that is asked of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lowmark.app.traffic import TrafficSpec, write_capture
from tests.integration.heads import CAPTURE
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules" / "lowmark.yml"

_SECONDS = 240  # of traffic: more than the tests take

_CONFIG = (
    CAPTURE
    + """\
[capture.queue]
spill = "spill"
[job]
metrics = "127.0.0.1:0"
buckets = 2
heap = "512m"
[streams.Paced]
disorder = "measured 99%"
[streams.Wire]
[sources.tap]
stream = "Paced"
file = "paced.pcap"
[sources.lo]
stream = "Wire"
interface = "lo"
fanout = 2
[queries.talkers]
sql = "SELECT srcIP, count(*) AS packets [RANGE 2 s, SLIDE 1 s] FROM Paced GROUP BY srcIP HAVING total(count(*)) > 0"
[queries.wire]
sql = "SELECT proto, count(*) [RANGE 1 s] FROM Wire GROUP BY proto"
names = "ecs"
"""
)

_PROMETHEUS = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
alerting: {{alertmanagers: [{{static_configs: [{{targets: {alertmanagers}}}]}}]}}
scrape_configs:
"""
_TARGET = """\
  - job_name: lowmark-{name}
    static_configs: [{{targets: ["{address}"]}}]
"""


@dataclass(frozen=True)
class Series:
    labels: dict[str, str]
    value: float


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> object:
        page = get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(page.text)
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def query(self, text: str) -> list[Series]:
        data = self.ask("query", query=text)
        assert isinstance(data, dict)
        assert data["resultType"] == "vector", (text, data)
        return [Series(one["metric"], float(one["value"][1])) for one in data["result"]]

    def names(self) -> set[str]:
        names = self.ask("label/__name__/values")
        assert isinstance(names, list)
        return set(names)


@dataclass(frozen=True)
class Observed:
    config: Path
    capture: Command
    job: Command
    pages: dict[str, str]  # address of the metrics, by process
    prometheus: Prometheus


@contextmanager
def observed(folder: Path, broker: str) -> Iterator[Observed]:
    """Until everything that has to be seen once has been: windows of both queries, and some scrapes."""
    write_capture(
        folder / "paced.pcap",
        TrafficSpec(packets=400 * _SECONDS, duration_ns=_SECONDS * 10**9, groups=200, jitter_ns=5_000_000),
    )
    config = folder / "lowmark.toml"
    config.write_text(_CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    with Command("run", "-c", str(config)) as job:
        await_true(lambda: "starting Spark" in job.error or job.process.poll() is not None)
        with Command("capture", "-c", str(config), "--pace", "1", "--rebase") as capture:
            pages = {"capture": f"{capture.url()}/metrics", "job": f"{job.url()}/metrics"}
            targets = {name: urllib.parse.urlsplit(page).netloc for name, page in pages.items()}
            with prometheus_with(folder, targets) as prometheus:
                seen = Observed(config, capture, job, pages, prometheus)
                _await_windows(seen)
                yield seen


def _await_windows(of: Observed) -> None:
    def done() -> bool:
        for process in (of.capture, of.job):
            assert process.process.poll() is None, process.error
        closed = of.prometheus.query('increase(lowmark_windows_completed_total{verdict="exact"}[5s]) > 0')
        return {series.labels["query"] for series in closed} == {"talkers", "wire"}

    await_true(done)


def metric_names(page: str) -> set[str]:
    return {name for name, _ in samples(page) if name.startswith("lowmark_")}


def free_address() -> str:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def prometheus_with(
    folder: Path, targets: Mapping[str, str], rules: Path = RULES, alertmanager: str | None = None
) -> Iterator[Prometheus]:  # fmt: skip
    """A Prometheus that scrapes these addresses, each as the job `lowmark-NAME`."""
    config, address = folder / "prometheus.yml", free_address()
    text = _PROMETHEUS.format(rules=rules, alertmanagers=json.dumps([alertmanager] if alertmanager else []))
    config.write_text(text + "".join(_TARGET.format(name=name, address=at) for name, at in targets.items()))
    program = shutil.which("prometheus")
    assert program is not None, "the caller has asked before"
    server = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
         f"--web.listen-address={address}", "--log.level=warn"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(folder / "prometheus.log").open("wb"),
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    try:
        url = f"http://{address}"

        def ready() -> bool:
            assert server.poll() is None, (folder / "prometheus.log").read_text()
            return _answers(lambda: get(f"{url}/-/ready").status == 200)

        await_true(ready)
        yield Prometheus(url)
    finally:
        server.terminate()
        server.wait(20)


def _answers(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except OSError:
        return False
