"""From a process that is gone, through Prometheus and Alertmanager, to who is on duty."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.observed import RULES, free_address, prometheus_with
from tests.integration.jobprocess import await_true
from tests.integration.processes import get

pytestmark = pytest.mark.slow

_ALERTMANAGER = """\
route: {{receiver: duty, group_by: [alertname], group_wait: 100ms, group_interval: 1s}}
receivers:
  - name: duty
    webhook_configs: [{{url: "{duty}", send_resolved: false}}]
"""


@pytest.fixture(autouse=True)
def tools() -> None:
    for program in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: make tools")


@contextmanager
def duty() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where alerts are sent, and those that have come."""
    heard: list[dict[str, Any]] = []

    class Hears(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Hears) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", heard
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def alertmanager(folder: Path, to: str) -> Iterator[str]:
    """Its address."""
    config, address = folder / "alertmanager.yml", free_address()
    config.write_text(_ALERTMANAGER.format(duty=to))
    server = subprocess.Popen(
        ["prometheus-alertmanager", f"--config.file={config}", f"--storage.path={folder / 'alerts'}",
         f"--web.listen-address={address}", "--cluster.listen-address="],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(folder / "alertmanager.log").open("wb"),
    )  # fmt: skip
    try:

        def ready() -> bool:
            assert server.poll() is None, (folder / "alertmanager.log").read_text()
            try:
                return get(f"http://{address}/-/ready").status == 200
            except OSError:
                return False

        await_true(ready)
        yield address
    finally:
        server.terminate()
        server.wait(20)


def test_an_alert_reaches_who_is_on_duty_with_the_way_to_its_runbook(tmp_path: Path) -> None:
    """Without the patience of the rules, which the tests of rules try."""
    rules = tmp_path / "rules.yml"
    rules.write_text(re.sub(r"^ +for: .*\n", "", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE))
    with socket.socket() as bound:  # an address that nobody listens on
        bound.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{bound.getsockname()[1]}"
        with (
            duty() as (to, heard),
            alertmanager(tmp_path, to) as address,
            prometheus_with(tmp_path, {"capture": gone}, rules, address),
        ):
            await_true(lambda: bool(heard))
    (alert,) = {alert["labels"]["alertname"]: alert for alert in heard}.values()
    assert alert["labels"] == {
        "alertname": "LowmarkDown", "severity": "critical", "job": "lowmark-capture", "instance": gone
    }  # fmt: skip
    assert alert["annotations"]["summary"] == f"lowmark-capture on {gone} does not answer"
    assert alert["annotations"]["runbook_url"] == "docs/alerts.md#lowmarkdown"
