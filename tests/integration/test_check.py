"""`lowmark check` against a broker that does not let its user do everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lowmark.app.config.checks import run_checks
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.kafka.jars import SPARK_KAFKA, obtain
from lowmark.app.kafka.rights import Role
from lowmark.wire.kafka.clients import admin, ensure_topics
from tests.acceptance.command import lowmark
from tests.integration.jobfeed import BUSY, SOURCES, write_config

pytestmark = pytest.mark.slow


@contextmanager
def denied(client: AdminClient, kind: ResourceType, prefix: str, operation: AclOperation) -> Iterator[None]:
    """Nobody may do this with what begins with `prefix`, for a while; everything else is allowed."""
    pattern = ResourcePatternType.LITERAL if kind is ResourceType.BROKER else ResourcePatternType.PREFIXED
    rule = (kind, prefix, pattern, "User:*", "*", operation, AclPermissionType.DENY)
    allow = (kind, prefix, pattern, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    rules = [AclBinding(*rule), AclBinding(*allow)]
    for answer in client.create_acls(rules).values():
        answer.result(30)
    try:
        yield
    finally:
        for answer in client.delete_acls([AclBindingFilter(*rule), AclBindingFilter(*allow)]).values():
            answer.result(30)


def check(path: Path, *options: str) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of each thing that failed."""
    outcome = lowmark("check", "-c", str(path), *options)
    failed: dict[str, str] = {}
    for line in outcome.out.splitlines():
        if line.startswith("fail"):
            failed[what := line.removeprefix("fail ").strip()] = ""
        elif line.startswith(" ") and failed:
            failed[what] += line.strip() + "\n"
    return outcome.code, failed


def prefix_of(config: Config) -> str:
    return f"{config.prefix}lowmark.v1."


@pytest.fixture
def path(broker: str, tmp_path: Path) -> Path:
    obtain(SPARK_KAFKA)
    path = write_config(tmp_path, broker, busy=BUSY)
    for source in chain.from_iterable(SOURCES.values()):
        (tmp_path / f"{source}.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    return path


def test_rights(path: Path) -> None:
    """What is missing is said for the role that misses it, with the topic, and the operation as Kafka calls it."""
    config = load_config(path)
    client = admin(config.kafka)
    assert check(path) == (0, {})
    assert ensure_topics(client, topics_of(config, plan_queries(config))) == []
    assert check(path) == (0, {})

    results = f"{prefix_of(config)}results."
    with denied(client, ResourceType.TOPIC, results, AclOperation.WRITE):
        code, failed = check(path)
        assert (code, list(failed)) == (1, ["rights for lowmark run"])
        assert failed["rights for lowmark run"].startswith(f"topic {results}busy: this user may not WRITE\n")
        assert check(path, "--for", "capture") == (0, {})
        assert check(path, "--for", "run")[0] == 1

    dead = f"{prefix_of(config)}dead"
    with denied(client, ResourceType.TOPIC, dead, AclOperation.WRITE):
        code, failed = check(path)
        assert (code, list(failed)) == (1, ["rights for lowmark run"])
        assert failed["rights for lowmark run"].startswith(f"topic {dead}: this user may not WRITE\n")

    for groups in ("job.lowmark.", "query."):  # where it stands how far buckets have come, and whose the queries are
        with denied(client, ResourceType.GROUP, f"{prefix_of(config)}{groups}", AclOperation.READ):
            code, failed = check(path)
            assert (code, list(failed)) == (1, ["rights for lowmark run"])
            said = f"consumer groups {prefix_of(config)}{groups}…: this user may not READ"
            assert said in failed["rights for lowmark run"]


def test_a_capture_host_needs_neither_java_nor_jars(path: Path) -> None:
    looked_at = [result.what.split()[0] for result in run_checks(path, (Role.CAPTURE,), lambda text: None)]
    assert "Kafka" in looked_at
    assert not {"Java", "jars", "checkpoint"} & set(looked_at)


def test_topics_that_may_not_be_created(path: Path) -> None:
    """Nothing is created by asking."""
    config = load_config(path)
    client = admin(config.kafka)
    ours = prefix_of(config)
    with (  # the right to one of them is enough
        denied(client, ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
        denied(client, ResourceType.TOPIC, ours, AclOperation.CREATE),
    ):
        code, failed = check(path)
    assert (code, list(failed)) == (1, ["topics: 4 are created at the start"])
    (said,) = failed.values()
    assert f"topic {ours}dead is missing and cannot be created" in said
    assert "lowmark topics --create" in said
    assert not [name for name in client.list_topics(timeout=30).topics if name.startswith(ours)]
