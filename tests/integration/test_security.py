"""A cluster of three brokers that lets nobody do anything: what roles can do with the rights that acls.sh gives them,
over TLS, with passwords and with certificates."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from lowlevel.config import QueueConfig
from lowlevel.sender import Sender
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.kafka.rights import Role, job_group, query_group, rights_of
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.wire.kafka.clients import KafkaProblem, admin, verify_topics
from lowmark.wire.kafka.rights import missing_rights
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.records.record import WireRecord
from tests.fixtures.cluster import IDLE_S, Cluster, cluster
from tests.integration.jobprocess import JobProcess, descendants
from tests.integration.processes import Command, get

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ACLS = Path(__file__).parents[2] / "deploy" / "kafka" / "acls.sh"
PREFIX = "netops."
PACKETS = 20_000
PASSWORD = "open-sesame-{}"
UNTIL = "2024-05-01T12:01:00Z"
QUERIES = {
    "talkers": "SELECT srcIP, count(*) AS packets [RANGE 10 seconds, WA ts] FROM Main GROUP BY srcIP",
    # Its buckets exchange rows.
    "shares": "SELECT srcIP, 100 * count(*) / total(count(*)) AS share [RANGE 10 seconds] FROM Main GROUP BY srcIP",
}

# Stands for kafka-acls.sh: it writes down what it is called with, and the real one is called with that.
RECORDER = """\
#!{python}
import json, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""


@dataclass(frozen=True)
class Place:
    cluster: Cluster
    folder: Path
    users: dict[str, KafkaSettings]  # by principal's name


def grant(on: Cluster, folder: Path, role: str, name: str, *, remove: bool = False) -> None:
    """As an administrator does it: the script, and Kafka's own program behind it."""
    calls, recorder = folder / "calls", folder / "kafka-acls"
    calls.unlink(missing_ok=True)
    recorder.write_text(RECORDER.format(python=sys.executable, calls=str(calls)))
    recorder.chmod(0o755)
    connection = folder / "admin.properties"
    options = on.certified("admin").java()
    del options["bootstrap.servers"]
    connection.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    environment = {"PREFIX": PREFIX, "JOB": "watcher", "KAFKA_ACLS": str(recorder), "REMOVE": "1" if remove else ""}
    subprocess.run(
        [ACLS, role, f"User:{name}", "--bootstrap-server", on.mtls, "--command-config", connection],
        env={**os.environ, **environment}, check=True, timeout=60,
    )  # fmt: skip
    for line in calls.read_text().splitlines():
        on.acls(json.loads(line))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder) as running:
        for role, name in (("capture", "tap"), ("job", "worker"), ("reader", "viewer")):
            grant(running, folder, role, name)
        write_capture(folder / "main.pcap", TrafficSpec(packets=PACKETS, groups=300, duration_ns=60_000_000_000))
        users = {name: running.user(name, PASSWORD.format(name)) for name in ("worker", "viewer", "stranger")}
        users |= {name: running.certified(name) for name in ("tap", "admin")}
        made = Place(running, folder, users)
        with Command("topics", "--create", "-c", str(configure(made, "admin"))) as topics:
            assert topics.wait() == 0, topics.error + topics.out
        yield made


def configure(place: Place, name: str) -> Path:
    """The configuration of this user."""
    kafka = place.users[name]
    given = {
        "bootstrap": kafka.bootstrap, "security": kafka.security.value, "username": kafka.username,
        "sasl_mechanism": kafka.sasl_mechanism and kafka.sasl_mechanism.value, "ssl_ca": kafka.ssl_ca,
        "ssl_client": kafka.ssl_client,
    }  # fmt: skip
    text = "[kafka]\n" + "".join(f'{key} = "{value}"\n' for key, value in given.items() if value is not None)
    if kafka.password is not None:
        text += f'password = {{ file = "{kafka.password.file}" }}\n'
    text += f'[topics]\nprefix = "{PREFIX}"\nreplication = 3\n'
    text += '[capture]\nmetrics = "127.0.0.1:0"\n[capture.table]\nslots = 1024\n'
    text += '[job]\nname = "watcher"\nmetrics = "127.0.0.1:0"\nheap = "512m"\nbuckets = 2\n'
    text += '[streams.Main]\n[sources.tap]\nstream = "Main"\nfile = "main.pcap"\n'
    text += "".join(f"[queries.{query}]\nsql = '''{sql}'''\n" for query, sql in QUERIES.items())
    path = place.folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_each_role_works_and_shows_no_secret(place: Place) -> None:
    with Command("check", "--for", "capture", "-c", str(configure(place, "tap"))) as check:
        assert check.wait() == 0, check.out
    with Command("capture", "-c", str(configure(place, "tap"))) as capture:
        assert capture.wait() == 0, capture.error
    with Command("check", "--for", "run", "-c", str(configure(place, "worker"))) as check:
        assert check.wait() == 0, check.out
    seen = [capture.out, capture.error]
    with JobProcess(configure(place, "worker"), "--until-last") as job:
        url = job.url()
        seen += [command_line(pid) for pid in (job.pid, *descendants(job.pid))]
        with suppress(OSError):  # it may have ended
            seen += [get(f"{url}/metrics").text, get(f"{url}/readyz").text]
        assert job.wait() == 0, job.said
        seen += [job.said, *(path.read_text(errors="replace") for path in place.folder.glob("checkpoint/**/*.log"))]
    with Command("watch", "talkers", "--from-beginning", "--json", "--until", UNTIL, "-c", viewer(place)) as watch:
        assert watch.wait() == 0, watch.error
        assert sum(int(str(row["packets"])) for row in watch.rows) == PACKETS
    with Command("sources", "-c", viewer(place)) as sources:
        assert sources.wait() == 0, sources.error
        assert [row["source"] for row in sources.rows] == ["tap"]
    with Command("watch", "--progress", "--once", "-c", viewer(place)) as progress:
        assert progress.wait() == 0, progress.error
    # It starts again, too, when the topics of partials, which it may not read, hold records.
    with Command("capture", "-c", str(configure(place, "tap"))) as again:
        assert again.wait() == 0, again.error
    seen += [watch.error, sources.error, progress.out, progress.error, again.out, again.error]
    for name in ("worker", "viewer"):
        assert not [text for text in seen if PASSWORD.format(name) in text]
    assert not [text for text in seen if "PRIVATE KEY" in text]


def viewer(place: Place) -> str:
    return str(configure(place, "viewer"))


def command_line(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


RIGHT = re.compile(r"(capture|job|reader) +(\S+) +(literal|prefixed) +(\S+) +(.*)")


def rights(role: str) -> list[tuple[str, str, str, str]]:
    """Kind of resource, pattern, name and operation of each right of a role."""
    found = []
    for line in ACLS.read_text().splitlines():
        if (match := RIGHT.fullmatch(line)) is not None and match[1] == role:
            name = match[4].replace("JOB", "watcher")
            name = name.removeprefix("=") if name.startswith("=") else f"{PREFIX}lowmark.v1.{name}"
            found += [(match[2], match[3], name, operation) for operation in match[5].split()]
    return found


@contextmanager
def without(client: AdminClient, name: str, right: tuple[str, str, str, str]) -> Iterator[None]:
    """In the block, this user has all rights of its role but one."""
    kind, pattern, resource, operation = right
    rule = (
        {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}.get(kind, ResourceType.TRANSACTIONAL_ID), resource,
        ResourcePatternType[pattern.upper()], f"User:{name}", "*",
        AclOperation[kafka_name(operation)], AclPermissionType.ALLOW,
    )  # fmt: skip
    for answer in client.delete_acls([AclBindingFilter(*rule)]).values():
        assert len(answer.result(30)) == 1, right
    try:
        yield
    finally:
        for answer in client.create_acls([AclBinding(*rule)]).values():
            answer.result(30)


def lacking(path: Path, role: Role) -> list[str]:
    """What `lowmark check` says of this role's topics and rights."""
    config = load_config(path)
    plans = plan_queries(config)
    client = admin(config.kafka)
    try:
        problems = [str(problem) for problem in verify_topics(client, topics_of(config, plans, (role,)))]
    except KafkaProblem as problem:
        return [str(problem)]
    groups = [f"{job_group(config, config.job.name)}.", query_group(config, "")] if role is Role.RUN else []
    return problems + missing_rights(client, rights_of(config, plans, role), groups)


@pytest.mark.parametrize(("role", "name"), [(Role.CAPTURE, "tap"), (Role.RUN, "worker")])
def test_each_right_that_is_taken_away_is_named(place: Place, role: Role, name: str) -> None:
    path = configure(place, name)
    config = load_config(path)
    needed = rights_of(config, plan_queries(config), role)
    client = place.cluster.admin()
    soon(lambda: lacking(path, role) == [])
    given = rights("capture" if role is Role.CAPTURE else "job")
    for right in given:
        kind, pattern, resource, operation = right
        expected = kafka_name(operation)
        topics = {topic: of for topic, of in needed.items() if topic_is(topic, pattern, resource)}
        if kind == "group" and expected == "READ":
            topics = {resource: frozenset({expected})}
        if not any(expected in of for of in topics.values()):
            continue  # late rows, which no query here has; what is not of a topic or the job has tests of its own
        with without(client, name, right):
            soon(lambda: lacking(path, role) != [])
            said = lacking(path, role)[0]
            # Without its last right a topic is not there for this user.
            visible = any(other[:3] == right[:3] and other[3] in ("Read", "Write") for other in given if other != right)
            assert any(topic in said for topic in topics), (right, said)
            assert (f"this user may not {expected}" in said) is (visible or kind == "group"), (right, said)
            assert visible or kind == "group" or "missing" in said, (right, said)
        soon(lambda: lacking(path, role) == [])


def test_a_job_has_the_rights_of_jobs_of_some_of_its_queries_and_of_no_other_job(place: Place) -> None:
    config = load_config(configure(place, "worker"))
    topics, client = rights_of(config, plan_queries(config), Role.RUN), admin(config.kafka)
    for job, said in (
        ("watcher", []),
        ("watcher.talkers", []),
        ("watcher2", [f"consumer groups {PREFIX}lowmark.v1.job.watcher2.…: this user may not READ"]),
    ):
        assert missing_rights(client, topics, [f"{job_group(config, job)}."]) == said


def topic_is(topic: str, pattern: str, resource: str) -> bool:
    return topic.startswith(resource) if pattern == "prefixed" else topic == resource


def kafka_name(operation: str) -> str:
    """As Kafka's protocol has it: DESCRIBE_CONFIGS."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()


def soon(condition: Callable[[], bool]) -> None:
    """Brokers learn of a change of rights one after another."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def test_a_job_without_its_transactional_id_ends_with_the_reason(place: Place) -> None:
    (right,) = [right for right in rights("job") if right[0] == "transactional-id" and "job." in right[2]]
    with without(place.cluster.admin(), "worker", right), Command("run", "-c", str(configure(place, "worker"))) as run:
        assert run.wait() == 1
    assert "may not WRITE with the job's transactional ids, which begin with lowmark.v1.job.NAME." in run.error


def test_a_reader_without_its_groups_is_told_so(place: Place) -> None:
    (right,) = [right for right in rights("reader") if right[0] == "group"]
    with without(place.cluster.admin(), "viewer", right), Command("sources", "-c", viewer(place)) as sources:
        assert sources.wait() == 1
    assert "everybody DESCRIBE on those that begin with lowmark-" in sources.error


def test_who_has_no_rights_is_told_so(place: Place) -> None:
    path = str(configure(place, "stranger"))
    with Command("capture", "-c", path) as capture:
        assert capture.wait() == 1
    assert "authorization failed" in capture.error.lower()
    with Command("watch", "talkers", "--from-beginning", "-c", path) as watch:
        assert watch.wait() != 0
    assert "Traceback" not in capture.error + watch.error
    secret = place.users["stranger"].password
    assert secret is not None
    assert secret.file is not None
    secret.file.write_text("wrong-sesame")
    with Command("sources", "-c", path) as sources:
        assert sources.wait() == 1
    assert "Check user, password, certificates" in sources.error
    assert "wrong-sesame" not in sources.error


def test_certificates_and_passwords_that_rotate(place: Place) -> None:
    """The broker closes connections that are idle, and takes no new one with what has expired or was replaced. The
    records arrive when the files are there, without a restart of the process."""
    running = place.cluster
    topic = f"{PREFIX}lowmark.v1.partials.rotation"
    client = running.admin()
    (made,) = client.create_topics([NewTopic(topic, 1, 3)]).values()
    made.result(30)
    grant(running, place.folder, "capture", "rotating")
    by_password = running.user("rotating", "first-sesame")
    certificate = running.authority.issue("rotating", timedelta(seconds=10))
    by_certificate = replace(running.certified("tap"), ssl_client=certificate)
    with sending(topic, by_password) as first, sending(topic, by_certificate) as second:
        for sender in (first, second):
            sender.put(0, RECORD)
            assert sender.drained(60)
        running.change_password("rotating", "second-sesame")
        soon(lambda: cut_off(first) and cut_off(second))
        assert by_password.password is not None
        assert by_password.password.file is not None
        by_password.password.file.write_text("second-sesame")
        running.authority.issue("rotating")
        assert first.drained(60)
        assert second.drained(60)
        assert "sesame" not in str(first.state())


def cut_off(sender: Sender) -> bool:
    """Whether a record does not arrive any more. If it does, the connection has its time to become idle."""
    sender.put(0, RECORD)
    if not sender.drained(3):
        return True
    time.sleep(IDLE_S)
    return False


RECORD = WireRecord(None, b"value", (("k", b"v"),))


@contextmanager
def sending(topic: str, kafka: KafkaSettings) -> Iterator[Sender]:
    sender = Sender(topic, kafka, QueueConfig(), None)
    sender.start()
    try:
        yield sender
    finally:
        sender.stop()
