"""The compose file: what it mounts is there, what it configures can run, and it shows final windows of an interface."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from tests.deploy.images import Images
from tests.fixtures.network import Network, ip, packet
from tests.integration.jobprocess import await_true

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"
_WITHIN_S = 300


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("INTERFACE", "lo")
    return load_config(FOLDER / "lowmark.toml")


def program() -> list[str]:
    """`docker compose`, or `docker-compose`, whichever is here."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker"):
        known = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if known.returncode == 0:
            return ["docker", "compose"]
    pytest.skip("neither `docker compose` nor docker-compose is installed")


def compose(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program(), "--file", str(FILE), *arguments], capture_output=True, text=True, timeout=_WITHIN_S,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_the_memory_of_each_container_is_bounded_by_what_it_needs(config: Config) -> None:
    """That of job and capture as the chart computes it, from the configuration that stands beside the file."""
    services = yaml.safe_load(FILE.read_text())["services"]
    limits = {name: service["mem_limit"] for name, service in services.items()}
    assert limits.keys() == services.keys()
    values = yaml.safe_load((DEPLOY.parent / "helm" / "lowmark" / "values.yaml").read_text())
    assert (config.job.heap, values["job"]["resources"]["worker"]) == ("1g", "768Mi")
    assert limits["job"] == f"{1024 + 512 + (config.job.shuffle_partitions + 1) * 768}m"
    assert values["capture"]["resources"]["process"] == "512Mi"
    queue = 2 * config.capture.queue.max_bytes
    ring = config.capture.ring.ring_bytes
    assert int(limits["capture"].removesuffix("m")) << 20 >= (512 << 20) + queue + ring + (128 << 20)


def test_it_can_be_read_and_asks_for_the_interface() -> None:
    done = compose("config", INTERFACE="eth0")
    assert done.returncode == 0, done.stderr
    environment = {name: value for name, value in os.environ.items() if name != "INTERFACE"}
    asked = subprocess.run(
        [*program(), "--file", str(FILE), "config"], capture_output=True, text=True, env=environment, check=False
    )
    assert asked.returncode != 0
    assert "name the interface to capture from" in asked.stderr


def test_everything_that_it_mounts_is_there_and_images_have_versions() -> None:
    text = FILE.read_text()
    mounted = re.findall(r"^ +- (\.[^:]*):", text, re.MULTILINE)
    assert {path for path in mounted if not (FOLDER / path).exists()} == set()
    assert len(mounted) > 6
    images = re.findall(r'image: "\$\{\w+:-([^}]+)\}"', text)
    assert len(images) == text.count("image:")
    assert all(re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", image) for image in images)


def test_nothing_listens_beyond_loopback(config: Config) -> None:
    """All services are on the host's network."""
    text = FILE.read_text()
    assert "ports:" not in text
    listening = re.findall(r"(?:listen-address|HTTP_ADDR)[=:] ?\"?([^\",\]\s]*)", text)
    assert {address.partition(":")[0] for address in listening} == {"127.0.0.1", ""}  # "": not at all
    assert {address.rpartition(":")[0] for address in (config.capture.metrics, config.job.metrics)} == {"127.0.0.1"}
    assert config.kafka.bootstrap == "127.0.0.1:9092"


def test_prometheus_asks_where_the_processes_answer(config: Config) -> None:
    targets = set(re.findall(r'"(127\.0\.0\.1:\d+)"', (DEPLOY / "prometheus" / "prometheus.yml").read_text()))
    assert targets == {config.capture.metrics, config.job.metrics, "127.0.0.1:9093"}


def test_its_query_can_be_planned(config: Config) -> None:
    assert [plan.name for plan in plan_queries(config)] == ["talkers"]


@pytest.fixture
def wire() -> Iterator[tuple[str, str]]:
    far, near = (f"lm{uuid4().hex[:8]}{end}" for end in "ab")
    Network().pair(far, near)
    yield far, near
    ip("link", "delete", far)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_up_shows_final_windows_of_an_interface(both_images: Images, wire: tuple[str, str]) -> None:
    """The images of Prometheus, Alertmanager and Grafana would have to be pulled: their services stay away."""
    far, near = wire
    environment = {
        "INTERFACE": near, "LOWMARK_JOB_IMAGE": both_images.job, "LOWMARK_CAPTURE_IMAGE": both_images.capture,
        "DOCKER_HOST": both_images.engine, "COMPOSE_PROJECT_NAME": f"lowmark{uuid4().hex[:8]}",
    }  # fmt: skip

    def shown() -> str:
        return compose("logs", "--no-color", "watch", **environment).stdout

    try:
        up = compose("up", "--detach", "broker", "job", "capture", "watch", **environment)
        assert up.returncode == 0, up.stderr

        def final() -> bool:
            Network().send(far, [packet(1, port=port) for port in range(1, 11)])
            return bool(re.search(r"10\.0\.0\.1.*10\.1\.0\.1", shown())) and "exact" in shown()

        await_true(final)
    finally:
        told = compose("logs", "--no-color", **environment).stdout
        compose("down", "--volumes", **environment)
        print(told)
