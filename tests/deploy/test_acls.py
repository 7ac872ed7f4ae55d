"""deploy/kafka/acls.sh as a command. tests/integration/test_security.py runs it against brokers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lowmark.app.kafka.rights import Role, kinds_of
from lowmark.wire.kafka.topics import TopicKind

SCRIPT = Path(__file__).parents[2] / "deploy" / "kafka" / "acls.sh"


def acls(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script with `echo` for Kafka's command, unless the environment names another."""
    return subprocess.run(
        [SCRIPT, *arguments], env={**os.environ, "KAFKA_ACLS": "echo", **environment}, capture_output=True, text=True,
        timeout=20, check=False,
    )  # fmt: skip


def test_help() -> None:
    done = acls("--help")
    assert done.returncode == 0
    assert "acls.sh capture User:tap --bootstrap-server" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Usage: acls.sh ROLE PRINCIPAL"),
        (("captures", "User:tap", "--x"), "Usage: acls.sh ROLE PRINCIPAL"),
        (("capture", "tap", "--x"), "'tap' is no principal: write User:NAME"),
        (("capture", "User:", "--x"), "'User:' is no principal"),
        (("capture", "User:tap"), "the options of kafka-acls.sh are missing: --bootstrap-server"),
    ],
)
def test_refused(arguments: tuple[str, ...], said: str) -> None:
    done = acls(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_failure_of_kafka_is_the_scripts() -> None:
    assert acls("capture", "User:tap", "--x", KAFKA_ACLS="false").returncode != 0


def test_names_and_options() -> None:
    """Prefix and name of the job become part of the names; a principal may hold spaces."""
    done = acls("job", "User:CN=the job", "--bootstrap-server", "h:1", PREFIX="netops.", JOB="watcher", REMOVE="1")
    lines = done.stdout.splitlines()
    assert all(line.startswith("--bootstrap-server h:1 --remove --force") for line in lines)
    assert all("--allow-principal User:CN=the job --operation" in line for line in lines)
    for kind in ("group", "transactional-id"):
        names = [line.split(f"--{kind} ")[1].split() for line in lines if f"--{kind} netops." in line]
        assert [(name, pattern) for name, _, pattern in names] == [
            ("netops.lowmark.v1.job.watcher.", "prefixed"),  # its buckets, jobs of some of its queries, no job watcher2
            ("netops.lowmark.v1.query.", "prefixed"),
        ]


@pytest.mark.parametrize(("role", "name"), [(Role.CAPTURE, "capture"), (Role.RUN, "job")])
def test_every_kind_of_topic_of_a_role_is_there_and_no_other(role: Role, name: str) -> None:
    lines = acls(name, "User:x", "--x").stdout.splitlines()
    topics = {line.split("--topic ")[1].split()[0] for line in lines if "--topic" in line}
    assert {TopicKind(topic.removeprefix("lowmark.v1.").removesuffix(".")) for topic in topics} == kinds_of([role])
