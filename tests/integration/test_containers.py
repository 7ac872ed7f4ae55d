"""The same suite against a broker in a container: an image made here, from this machine's own Java and the pinned jars.

No image is pulled, so a machine without a registry can run it. What is needed is a Docker engine, or `dockerd` and the
right to start one; where neither is there the tests are skipped and say so.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from lowmark.app.capture.process import run_capture
from lowmark.app.capture.sources import CaptureOptions
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.kafka.jars import BROKER, obtain
from lowmark.app.kafka.java import find_java
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import admin, ensure_topics, verify_topics
from lowmark.wire.kafka.settings import consumer_options
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import Registration
from lowmark.wire.records.verdicts import Complete
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.values import FOREVER
from tests.integration.jobprocess import JobProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 60.0
PACKETS = 20_000
BRIDGE = Path("/sys/class/net/docker0")
SQL = "SELECT srcIP, count(*) AS packets [RANGE 10 seconds, WA ts] FROM Main GROUP BY srcIP"

# What testcontainers expects of an image: the layout of Confluent's. Its start script sources `bash-config`, appends a
# line to `configure` that formats the storage, and runs `configure` and `launch`.
BASH_CONFIG = "export PATH=/opt/kafka/bin:$PATH\n"
CONFIGURE = """\
#!/bin/bash
export PATH=/opt/kafka/bin:$PATH
mkdir -p /etc/kafka
env | grep '^KAFKA_' | while IFS='=' read -r name value; do
  echo "$(echo "${name#KAFKA_}" | tr 'A-Z_' 'a-z.')=$value"
done > /etc/kafka/kafka.properties
echo 'transaction.state.log.replication.factor=1' >> /etc/kafka/kafka.properties
echo 'transaction.state.log.min.isr=1' >> /etc/kafka/kafka.properties
echo 'auto.create.topics.enable=false' >> /etc/kafka/kafka.properties
"""
LAUNCH = """\
#!/bin/bash
exec /opt/java/bin/java -Xmx512m -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/libs/*' \\
  kafka.Kafka /etc/kafka/kafka.properties
"""
STORAGE = """\
#!/bin/bash
exec /opt/java/bin/java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool "$@"
"""
LOGGING = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""
FILES = {
    "etc/confluent/docker/bash-config": BASH_CONFIG,
    "etc/confluent/docker/configure": CONFIGURE,
    "etc/confluent/docker/launch": LAUNCH,
    "opt/kafka/bin/kafka-storage": STORAGE,
    "opt/kafka/log4j2.properties": LOGGING,
}
PROGRAMS = (
    "bash", "sh", "sed", "grep", "tr", "env", "mkdir", "sleep", "hostname", "cut", "cat", "uname",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """Where a Docker engine listens: this machine's, else one of our own, ended afterwards."""
    if shutil.which("docker") is None:
        pytest.skip("there is no Docker client: `docker` is not installed")
    running = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if subprocess.run(["docker", "-H", running, "version"], capture_output=True, check=False).returncode == 0:
        yield running
        return
    if shutil.which("dockerd") is None:
        pytest.skip("no Docker engine answers, and there is none to start: `dockerd` is not installed")
    if os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and only root can start one")
    # Not below pytest's folder: the path of a socket is short.
    folder = Path("/tmp") / f"dockerd-{uuid4().hex[:8]}"
    folder.mkdir()
    try:
        yield from _own_engine(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own_engine(folder: Path) -> Iterator[str]:
    address = f"unix://{folder}/docker.sock"
    command = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "-p", folder / "pid"]
    # Ports are published by its proxy, so nothing of this machine's networking needs to be changed.
    command += ["-H", address, "--ip", "127.0.0.1", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    bridge_was_there = BRIDGE.exists()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SECONDS
        while subprocess.run(["docker", "-H", address, "version"], capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text(errors="replace").splitlines()[-1:]
                pytest.skip(f"a Docker engine cannot be started here: {said}")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(SECONDS)
        if BRIDGE.exists() and not bridge_was_there and shutil.which("ip"):
            subprocess.run(["ip", "link", "delete", BRIDGE.name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def image(engine: str) -> Iterator[str]:
    """An image of a Kafka broker in the layout that testcontainers knows."""
    name = f"lowmark-test-kafka-{uuid4().hex[:8]}:8.0.0"
    importing = subprocess.Popen(["docker", "-H", engine, "import", "-", name], stdin=subprocess.PIPE,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    assert importing.stdin is not None
    with tarfile.open(fileobj=importing.stdin, mode="w|", dereference=False) as archive:
        _write_image(archive)
    importing.stdin.close()
    assert importing.stderr is not None
    said = importing.stderr.read().decode()
    assert importing.wait(SECONDS) == 0, said
    yield name
    subprocess.run(["docker", "-H", engine, "image", "rm", "-f", name], capture_output=True, check=True)


def _write_image(archive: tarfile.TarFile) -> None:
    java = find_java().executable.resolve()
    home = java.parents[1]
    programs = {name: Path(found).resolve() for name in PROGRAMS if (found := shutil.which(name)) is not None}
    binaries = [*programs.values(), java, *home.rglob("*.so")]
    for library in sorted(_libraries(binaries)):
        archive.add(library.resolve(), str(library).lstrip("/"))
    for name, path in programs.items():
        archive.add(path, f"usr/bin/{name}")
        archive.add(path, f"bin/{name}")
    # The files behind links are what is wanted: a package may keep parts of a JVM elsewhere.
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.name.endswith((".jsa", "src.zip")):
            archive.add(path.resolve(), f"opt/java/{path.relative_to(home)}")
    for jar in obtain(BROKER):
        archive.add(jar, f"opt/kafka/libs/{jar.name}")
    for name, text in FILES.items():
        _add(archive, name, text)
    _add(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    _add(archive, "tmp/.keep", "")


def _libraries(binaries: list[Path]) -> set[Path]:
    """The shared libraries that these need, under the paths that they are looked for at."""
    found: set[Path] = set()
    for line in subprocess.run(
        ["ldd", *binaries], capture_output=True, text=True, check=False
    ).stdout.splitlines():  # fmt: skip
        path = next((word for word in line.split() if word.startswith("/") and not word.endswith(":")), None)
        if path is not None and "java" not in path:
            found.add(Path(path))
    return found


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o755
    archive.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def contained(engine: str, image: str) -> Iterator[str]:
    """Where clients find the broker in the container."""
    settings = {
        "DOCKER_HOST": engine,
        "TESTCONTAINERS_RYUK_DISABLED": "true",  # its image would have to be pulled
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",  # `localhost` is ::1, too, where nobody listens
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        from testcontainers.community.kafka import KafkaContainer  # reads the environment when it is imported

        with KafkaContainer(image).with_kraft() as kafka:
            address = kafka.get_bootstrap_server()
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), SECONDS):
                yield address


@pytest.fixture(scope="module")
def config(contained: str, tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("contained")
    write_capture(folder / "main.pcap", TrafficSpec(packets=PACKETS, groups=300, duration_ns=60_000_000_000))
    path = folder / "lowmark.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "{contained}"\n'
        f'[topics]\nprefix = "{uuid4().hex[:8]}-"\n'
        '[capture]\nmetrics = "127.0.0.1:0"\n[capture.table]\nslots = 1024\n'
        '[job]\nmetrics = "127.0.0.1:0"\nheap = "512m"\nbuckets = 2\n'
        '[streams.Main]\n[sources.tap]\nstream = "Main"\nfile = "main.pcap"\n'
        f"[queries.talkers]\nsql = '''{SQL}'''\n"
    )
    return load_config(path)


@pytest.fixture(scope="module")
def plan(config: Config) -> QueryPlan:
    return plan_queries(config)[0]


def records(config: Config, topic: Topic, schema: Schema | None = None) -> list[object]:
    """All that a read_committed reader sees, decoded."""
    reader = Consumer(consumer_options(config.kafka, uuid4().hex) | {"enable.partition.eof": True})
    found: list[object] = []
    try:
        waiting = set(reader.list_topics(topic.name, timeout=SECONDS).topics[topic.name].partitions)
        reader.assign([TopicPartition(topic.name, partition, 0) for partition in waiting])
        while waiting:
            message = reader.poll(SECONDS)
            assert message is not None
            if message.error() is not None:
                waiting.discard(message.partition())
                continue

            def schema_of(origin: Origin) -> Schema | None:
                return schema

            found.append(decode(message.headers(), message.value(), schema_of))
    finally:
        reader.close()
    return found


def test_topics_are_created_as_wanted_and_verified(config: Config, plan: QueryPlan) -> None:
    wanted = topics_of(config, [plan])
    client = admin(config.kafka)
    assert ensure_topics(client, wanted) == []
    assert verify_topics(client, wanted) == []
    more = [type(topic)(topic.name, topic.partitions + 1, topic.replication, topic.config) for topic in wanted[2:3]]
    assert [problem.what for problem in verify_topics(client, more)] == ["the number of partitions"]


def test_a_capture_of_a_file_is_there_to_the_last_packet(config: Config, plan: QueryPlan) -> None:
    said: list[str] = []
    assert run_capture(config, CaptureOptions(sources=(), pace=None, rebase=False), said.append) == 0

    registered = records(config, Topic(TopicKind.SOURCES, None, config.prefix))
    assert [record.source for record in registered if isinstance(record, Registration)] == ["tap"]

    sent = records(
        config, Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix), plan.stage.nodes[0].reduction.schema
    )
    batches = [record for record in sent if isinstance(record, PartialBatch)]
    promises = [record for record in sent if isinstance(record, Punctuation)]
    assert len(batches) + len(promises) == len(sent)
    assert sum(sum(batch.tuples.values()) for batch in batches) == PACKETS
    assert sum(record.promise.below("ts") == FOREVER for record in promises) == plan.stage.buckets


def test_the_job_answers_from_it_exactly(config: Config, plan: QueryPlan) -> None:
    """After the capture above, whose partials it reads."""
    with JobProcess(config.path, "--until-last") as job:
        assert job.wait() == 0, job.said
    results = records(config, Topic(TopicKind.RESULTS, "talkers", config.prefix))
    completions = [record for record in results if isinstance(record, Complete)]
    assert sum(record.merged for record in completions) == PACKETS
    assert all(record.verdict.exact for record in completions)
    assert sum(record.rows for record in completions) == len(results) - len(completions)
