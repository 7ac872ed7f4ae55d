"""The compose file: what it mounts is there, what it configures can run, and it shows final windows of an interface."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Complete
from tests.deploy.images import Images
from tests.deploy.observed import Prometheus
from tests.fixtures import docker
from tests.fixtures.network import Network, ip, packet
from tests.integration.jobprocess import await_true
from tests.integration.processes import get
from tests.integration.readings import committed

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"
NOBODY = 65534
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


def test_captures_and_job_begin_after_the_broker_and_end_before_it() -> None:
    """One whose broker has gone waits for it to take the last records, and loses them in the end."""
    services = yaml.safe_load(FILE.read_text())["services"]
    for name in ("job", "capture", "watch"):
        assert services[name]["depends_on"] == {"broker": {"condition": "service_healthy"}}
    assert (
        services.keys()
        >= {"job", "capture", "broker"}
        == {name for name, service in services.items() if "healthcheck" in service}
    )


def test_its_query_can_be_planned(config: Config) -> None:
    assert [plan.name for plan in plan_queries(config)] == ["talkers"]


@pytest.fixture
def wire() -> Iterator[tuple[str, str]]:
    far, near = (f"lm{uuid4().hex[:8]}{end}" for end in "ab")
    Network().pair(far, near)
    yield far, near
    ip("link", "delete", far)


@pytest.fixture(scope="module")
def watchers(both_images: Images) -> Iterator[dict[str, str]]:
    """Images of Prometheus and Alertmanager, laid out as those that the file names, of Debian's programs."""
    made = {}
    for name, program in (("prometheus", "prometheus"), ("alertmanager", "prometheus-alertmanager")):
        found = shutil.which(program)
        if found is None:
            pytest.skip(f"{program} is not installed: make tools")
        made[f"{name.upper()}_IMAGE"] = image = f"lowmark-test-{name}:{both_images.tag}"
        docker.import_image(
            both_images.engine, image, partial(write_watcher, name, Path(found)),
            f'ENTRYPOINT ["/bin/{name}"]', f"USER {NOBODY}", f"WORKDIR /{name}",
        )  # fmt: skip
    yield made
    for image in made.values():
        both_images.docker("image", "rm", "--force", image)


def write_watcher(name: str, program: Path, archive: tarfile.TarFile) -> None:
    docker.add_programs(archive, [program])
    archive.add(program, f"bin/{name}")
    if (templates := Path("/usr/share/prometheus") / name).exists():
        archive.add(templates)  # the official programs hold theirs
    state = tarfile.TarInfo(name)
    state.type, state.mode, state.uid, state.gid = tarfile.DIRTYPE, 0o755, NOBODY, NOBODY
    archive.addfile(state)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_up_shows_final_windows_of_an_interface_and_watches_over_them(
    both_images: Images, watchers: dict[str, str], wire: tuple[str, str], config: Config
) -> None:
    """Grafana's image would have to be pulled: its service stays away."""
    far, near = wire
    environment = watchers | {
        "INTERFACE": near, "LOWMARK_JOB_IMAGE": both_images.job, "LOWMARK_CAPTURE_IMAGE": both_images.capture,
        "DOCKER_HOST": both_images.engine, "COMPOSE_PROJECT_NAME": f"lowmark{uuid4().hex[:8]}",
    }  # fmt: skip
    services = yaml.safe_load(FILE.read_text())["services"].keys() - {"grafana"}
    prometheus = Prometheus("http://127.0.0.1:9090")
    topic = Topic(TopicKind.RESULTS, "talkers", config.prefix)

    def answers(url: str) -> bool:
        try:
            return get(url).status == 200
        except OSError:
            return False

    def sent_are_counted(number: int) -> bool:
        results = committed(config, topic)
        assert all(each.verdict.exact for each in results if isinstance(each, Complete))
        rows = [json.loads(each.row) for each in results if isinstance(each, ResultRow)]
        return sum(row["packets"] for row in rows if row["srcIP"] == "10.0.0.1") == number

    def containers(form: str) -> dict[str, str]:
        """Of each service's container: what Docker says of it in this form."""
        mine = f"label=com.docker.compose.project={environment['COMPOSE_PROJECT_NAME']}"
        found = both_images.docker("ps", "--all", "--quiet", "--filter", mine).split()
        named = '{{index .Config.Labels "com.docker.compose.service"}}'
        said = both_images.docker("inspect", "--format", f"{named} {form}", *found)
        return {name: rest for name, _, rest in (line.partition(" ") for line in said.splitlines())}

    def asked(path: str, part: str) -> list[Any]:
        answer = prometheus.ask(path)
        assert isinstance(answer, dict)
        found: list[Any] = answer[part]
        return found

    try:
        up = compose("up", "--detach", *services, **environment)
        assert up.returncode == 0, up.stderr
        for page in (config.capture.metrics, config.job.metrics):
            await_true(lambda page=page: answers(f"http://{page}/readyz"))  # type: ignore[misc]  # mypy cannot infer it
        for burst in range(1, 4):
            Network().send(far, [packet(1, port=port) for port in range(1, 101)])
            await_true(lambda burst=burst: sent_are_counted(100 * burst))  # type: ignore[misc]  # mypy cannot infer it
        await_true(lambda: "exact" in compose("logs", "--no-color", "watch", **environment).stdout)
        assert set(containers("{{.RestartCount}}").values()) == {"0"}
        await_true(lambda: set(containers("{{with .State.Health}}{{.Status}}{{end}}").values()) == {"", "healthy"})

        await_true(lambda: [each["health"] for each in asked("targets", "activeTargets")] == ["up", "up"])
        await_true(lambda: {rule["health"] for group in asked("rules", "groups") for rule in group["rules"]} == {"ok"})
        assert compose("stop", "capture", **environment).returncode == 0

        def alerts() -> set[str]:
            return {each["labels"]["alertname"] for each in json.loads(get("http://127.0.0.1:9093/api/v2/alerts").text)}

        await_true(lambda: "LowmarkDown" in alerts())
        assert compose("stop", **environment).returncode == 0
        codes = containers("{{.State.ExitCode}}")
        assert (codes["capture"], codes["job"]) == ("0", "0")
    finally:
        told = compose("logs", "--no-color", **environment).stdout
        compose("down", "--volumes", **environment)
        print(told)
