"""The HTTP endpoint: what each path answers, over a real socket."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, Counter

from lowmark import __version__
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.health import Health, HealthServer, parse_listen
from lowmark.app.process_metrics import process_registry


@dataclass
class Process:
    """What the checks say, to be changed while the server runs."""

    ready: Health = field(default_factory=lambda: Health(True, {"sources": "2 of 2"}))
    alive: Health = field(default_factory=lambda: Health(True, {}))

    def server(self, listen: str = "127.0.0.1:0") -> HealthServer:
        registry = CollectorRegistry()
        Counter("lowmark_tests", "For this test.", registry=registry).inc(3)
        return HealthServer(listen, "capture.metrics", registry, lambda: self.ready, lambda: self.alive)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_in_the_text_format() -> None:
    with Process().server() as server:
        status, body = get(f"{server.url}/metrics")
    assert status == 200
    assert "lowmark_tests_total 3.0" in body.splitlines()


def test_every_process_tells_its_version_and_its_own_needs() -> None:
    ready = Health(True, {})
    with HealthServer("127.0.0.1:0", "job.metrics", process_registry(), lambda: ready, lambda: ready) as server:
        page = get(f"{server.url}/metrics")[1]
    assert f'lowmark_build_info{{version="{__version__}"}} 1.0' in page.splitlines()
    assert "process_cpu_seconds_total " in page
    assert "python_gc_collections_total{" in page


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_ipv6_address() -> None:
    with Process().server("[::1]:0") as server:
        assert server.url.startswith("http://[::1]:")
        assert get(f"{server.url}/healthz")[0] == 200


def test_health_follows_the_process() -> None:
    process = Process()
    with process.server() as server:
        assert get(f"{server.url}/readyz")[0] == 200
        assert json.loads(get(f"{server.url}/readyz")[1]) == {"status": "ok", "sources": "2 of 2"}
        process.ready = Health(False, {"kafka": "no broker answers"})
        status, body = get(f"{server.url}/readyz")
        assert (status, json.loads(body)) == (503, {"status": "not ready", "kafka": "no broker answers"})
        assert get(f"{server.url}/healthz") == (200, '{"status": "ok"}\n')


def test_another_path_lists_those_there_are() -> None:
    with Process().server() as server:
        status, body = get(f"{server.url}/")
    assert status == 404
    assert json.loads(body) == {"paths": "/metrics /healthz /readyz"}


def test_nothing_listens_once_it_has_stopped() -> None:
    server = Process().server()
    server.start()
    url = server.url
    server.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)


def test_stopping_what_never_started_does_nothing() -> None:
    Process().server().stop()


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EnvironmentNotReady) as caught:
            Process().server(listen).start()
    assert listen in caught.value.message
    assert "capture.metrics in the configuration" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0)), ("host.example:65535", ("host.example", 65535))],
)
def test_an_address_to_listen_on(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", "9464", ":9464", "host", "host:", "host:x", "host:-1", "host:65536"])
def test_no_address_to_listen_on(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        parse_listen(text)
