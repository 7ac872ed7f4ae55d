"""The same suite against a broker in a container: an image made here, from this machine's own Java and the pinned jars.

No image is pulled, so a machine without a registry can run it. What is needed is a Docker engine, or `dockerd` and the
right to start one; where neither is there the tests are skipped and say so.
"""

from __future__ import annotations

import socket
import subprocess
import tarfile
from collections.abc import Iterator
from uuid import uuid4

import pytest

from lowmark.app.capture.process import run_capture
from lowmark.app.capture.sources import CaptureOptions
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.kafka.jars import BROKER, obtain
from lowmark.app.kafka.java import find_java
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import admin, ensure_topics, verify_topics
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import Registration
from lowmark.wire.records.verdicts import Complete
from lowmark.wire.rows.values import FOREVER
from tests.fixtures import docker
from tests.integration.jobprocess import JobProcess
from tests.integration.readings import committed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 60.0
PACKETS = 20_000
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


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with docker.engine() as address:
        yield address


@pytest.fixture(scope="module")
def image(engine: str) -> Iterator[str]:
    """An image of a Kafka broker in the layout that testcontainers knows."""
    name = f"lowmark-test-kafka-{uuid4().hex[:8]}:8.0.0"
    docker.import_image(engine, name, _write_image)
    yield name
    subprocess.run(["docker", "-H", engine, "image", "rm", "-f", name], capture_output=True, check=True)


def _write_image(archive: tarfile.TarFile) -> None:
    java = find_java().executable.resolve()
    home = java.parents[1]
    docker.add_programs(archive, [java, *home.rglob("*.so")])
    # The files behind links are what is wanted: a package may keep parts of a JVM elsewhere.
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.name.endswith((".jsa", "src.zip")):
            archive.add(path.resolve(), f"opt/java/{path.relative_to(home)}")
    for jar in obtain(BROKER):
        archive.add(jar, f"opt/kafka/libs/{jar.name}")
    for name, text in FILES.items():
        docker.add_text(archive, name, text)
    docker.add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    docker.add_text(archive, "tmp/.keep", "")


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

    registered = committed(config, Topic(TopicKind.SOURCES, None, config.prefix))
    assert [record.source for record in registered if isinstance(record, Registration)] == ["tap"]

    sent = committed(
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
    results = committed(config, Topic(TopicKind.RESULTS, "talkers", config.prefix))
    completions = [record for record in results if isinstance(record, Complete)]
    assert sum(record.merged for record in completions) == PACKETS
    assert all(record.verdict.exact for record in completions)
    assert sum(record.rows for record in completions) == len(results) - len(completions)
