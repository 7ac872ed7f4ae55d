"""Every value of the chart does something: a change of it changes what is rendered."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, Manifest, manifests, template, values_file
from tests.helm.tools import HELM_4, Missing, obtain_helm

Values = Mapping[str, Any]

DIGEST = "sha256:" + "d" * 64
SCRAM = {
    "kafka": {
        "security": "SASL_SSL",
        "ca": {"existingSecret": "ca"},
        "capture": {"username": "tap", "existingSecret": "tap"},
        "job": {"username": "job", "existingSecret": "job"},
        "admin": {"username": "admin", "existingSecret": "admin"},
    }
}
MTLS = {
    "kafka": {
        "security": "SSL",
        "ca": {"existingSecret": "ca"},
        "capture": {"existingSecret": "tap", "certificateKey": "own.pem"},
        "job": {"existingSecret": "job", "certificateKey": "own.pem"},
        "admin": {"existingSecret": "admin", "certificateKey": "own.pem"},
    }
}
ACLS = {
    **SCRAM,
    "acls": {
        "create": True,
        "image": {"repository": "registry.example/kafka", "digest": DIGEST},
        "existingSecret": "admin",
    },
}
USERS = {**SCRAM, "strimzi": {"users": True, "cluster": "kafka", "namespace": "kafka"}}
PAGES = {
    "metrics": {"certificate": {"existingSecret": "pages"}, "token": {"existingSecret": "token"}},
    "podMonitor": {"enabled": True},
}
SPARK = {"job": {"kind": "SparkApplication", "sparkApplication": {"checkpoint": "s3a://lowmark/checkpoint"}}}
AFFINITY = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
TOLERATIONS = [{"operator": "Exists"}]

CHANGED: dict[str, tuple[Any, Values]] = {
    "nameOverride": ("watch", {}),
    "fullnameOverride": ("watch", {}),
    "labels": ({"team": "net"}, {}),
    "image.pullPolicy": ("Always", {}),
    "image.pullSecrets": (["registry"], {}),
    **{
        f"image.{role}.{key}": value
        for role in ("capture", "job")
        for key, value in {
            "repository": ("registry.example/other", {}),
            "digest": (DIGEST, {}),
            "tag": ("1.2.4", {}),
        }.items()
    },
    "namespaces.capture": ("taps", {}),
    "namespaces.create": (False, {"namespaces": {"capture": "taps"}}),
    "kafka.bootstrap": ("other:9092", {}),
    "kafka.security": ("SASL_PLAINTEXT", {"kafka": {**SCRAM["kafka"], "ca": {"existingSecret": ""}}}),
    "kafka.sasl_mechanism": ("SCRAM-SHA-256", SCRAM),
    "kafka.ssl_verify_hostname": (False, SCRAM),
    "kafka.ports": ([9095], {}),
    "kafka.ca.existingSecret": ("other", SCRAM),
    "kafka.ca.key": ("other.crt", SCRAM),
    **{
        f"kafka.{role}.{key}": value
        for role in ("capture", "job", "admin")
        for key, value in {
            "username": ("other", ACLS),
            "existingSecret": ("other", ACLS),
            "passwordKey": ("other", ACLS),
            "certificateKey": ("tls", MTLS),
        }.items()
    },
    "topics.prefix": ("net.", {}),
    "topics.replication": (1, {}),
    "topics.retention_ms": (3_600_000, {}),
    "topics.results_retention_ms": (7_200_000, {}),
    "topics.create": (False, {}),
    "acls.create": (True, {**ACLS, "acls": {**ACLS["acls"], "create": False}}),
    "acls.image.repository": ("registry.example/other", ACLS),
    "acls.image.digest": ("sha256:" + "c" * 64, ACLS),
    "acls.image.tag": ("1.2.4", ACLS),
    "acls.command": ("/bin/kafka-acls", ACLS),
    "acls.existingSecret": ("other", ACLS),
    "acls.readers": (["User:viewer"], ACLS),
    "strimzi.users": (True, {**USERS, "strimzi": {**USERS["strimzi"], "users": False}}),
    "strimzi.apiVersion": ("kafka.strimzi.io/v1beta2", USERS),
    "strimzi.cluster": ("other", USERS),
    "strimzi.namespace": ("other", USERS),
    "strimzi.authentication": ("tls", {**MTLS, "strimzi": USERS["strimzi"]}),
    "metrics.certificate.existingSecret": ("other", PAGES),
    "metrics.certificate.key": ("other.pem", PAGES),
    "metrics.token.existingSecret": ("other", PAGES),
    "metrics.token.key": ("other", PAGES),
    "streams": ({"Main": {"stall": "exclude after 60 s"}}, {}),
    "sources": ({"tap": {"stream": "Main", "interface": "eth7"}}, {}),
    "queries": ({"more": {"sql": "SELECT ts FROM Main"}}, {}),
    "capture.enabled": (False, {}),
    "capture.user": (10001, {}),
    "capture.nodes": (["node-1"], {}),
    "capture.nodeSelector": ({"net": "edge"}, {}),
    "capture.tolerations": (TOLERATIONS, {}),
    "capture.affinity": (AFFINITY, {}),
    "capture.priorityClassName": ("high", {}),
    "capture.maxUnavailable": (3, {}),
    "capture.metrics.address": ("192.0.2.1", {}),
    "capture.metrics.port": (9999, {}),
    "capture.table.memory": ("128M", {}),
    "capture.queue.max_bytes": (1 << 27, {}),
    "capture.queue.spill_bytes": (1 << 30, {}),
    "capture.queue.compression": ("zstd", {}),
    "capture.ring.ring_bytes": (1 << 26, {}),
    "capture.ring.snaplen": (256, {}),
    "capture.resources.cpu": ("2", {}),
    "capture.resources.memory": ("4Gi", {}),
    "capture.resources.tables": (8, {}),
    "capture.resources.process": ("768Mi", {}),
    "job.enabled": (False, {}),
    "job.kind": ("Deployment", SPARK),
    "job.sparkApplication.operator": ("kubeflow", SPARK),
    "job.sparkApplication.checkpoint": ("s3a://lowmark/other", SPARK),
    "job.sparkApplication.existingSecret": ("store", SPARK),
    "job.sparkApplication.serviceAccount": ("other", SPARK),
    "job.sparkApplication.executors": (3, SPARK),
    "job.sparkApplication.cores": (4, SPARK),
    "job.sparkApplication.heap": ("3g", SPARK),
    "job.sparkApplication.conf": ({"spark.task.maxFailures": "8"}, SPARK),
    "job.name": ("watcher", {}),
    "job.buckets": (8, {}),
    "job.shuffle_partitions": (4, {}),
    "job.max_offsets_per_trigger": (1000, {}),
    "job.transaction_timeout": ("30 s", {}),
    "job.overlap": ("1 minute", {}),
    "job.heap": ("2g", {}),
    "job.limits.groups": (1000, {}),
    "job.limits.open_panes": (1000, {}),
    "job.newGeneration": (True, {}),
    "job.repeatRows": (True, {"job": {"newGeneration": True}}),
    "job.port": (9999, {}),
    "job.userNamespace": (False, {}),
    "job.persistence.existingClaim": ("claim", {}),
    "job.persistence.size": ("20Gi", {}),
    "job.persistence.storageClass": ("fast", {}),
    "job.persistence.accessMode": ("ReadWriteOncePod", {}),
    "job.podDisruptionBudget.enabled": (False, {}),
    "job.podDisruptionBudget.maxUnavailable": (0, {}),
    "job.nodeSelector": ({"net": "core"}, {}),
    "job.tolerations": (TOLERATIONS, {}),
    "job.affinity": (AFFINITY, {}),
    "job.priorityClassName": ("high", {}),
    "job.resources.cpu": ("3", {}),
    "job.resources.memory": ("8Gi", {}),
    "job.resources.worker": ("1Gi", {}),
    "networkPolicy.enabled": (False, {}),
    "networkPolicy.ports": ([443, 9000], SPARK),
    "networkPolicy.from": ([{"podSelector": {}}], {}),
    "podMonitor.enabled": (True, {}),
    "podMonitor.labels": ({"release": "other"}, PAGES),
    "podMonitor.interval": ("30s", PAGES),
    "podMonitor.tlsConfig": ({"insecureSkipVerify": True}, PAGES),
    "prometheusRule.enabled": (True, {}),
    "prometheusRule.labels": ({"release": "other"}, {"prometheusRule": {"enabled": True}}),
    "dashboards.enabled": (True, {}),
    "dashboards.labels": ({"boards": "yes"}, {"dashboards": {"enabled": True}}),
}
"""By value: another one than the default, and the other values that it takes to be used."""


def leaves(values: Values, schema: Values, whole: Values, path: str = "") -> Iterator[str]:
    """The values that have a comment of their own: tables with closed keys are gone through."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for key, value in values.items():
        of = schema["properties"][key]
        if isinstance(value, Mapping) and value and ("properties" in of or "$ref" in of):
            yield from leaves(value, of, whole, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def test_each_value_is_here() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert {*leaves(yaml.safe_load((CHART / "values.yaml").read_text()), schema, schema)} == CHANGED.keys()


def merged(below: Values, above: Values) -> Values:
    """Tables key by key, as Helm merges files of values."""
    return {
        **below,
        **{
            key: merged(below[key], value) if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
            else value
            for key, value in above.items()
        },
    }  # fmt: skip


@functools.cache
def rendered(values: str) -> list[Manifest]:
    """What Helm makes of values, in JSON, beside those of the least case."""
    path = Path(values)
    done = template(obtain_helm(HELM_4), values_file("minimal"), "--values", str(path))
    assert done.returncode == 0, done.stderr
    return manifests(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        obtain_helm(HELM_4)
    except Missing as reason:
        pytest.skip(str(reason))
    return tmp_path_factory.mktemp("values")


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_it_changes_the_render(name: str, folder: Path) -> None:
    value, needed = CHANGED[name]
    for key in reversed(name.split(".")):
        value = {key: value}

    def made(values: Values) -> list[Manifest]:
        text = json.dumps(values, sort_keys=True)
        path = folder / f"{abs(hash(text))}.json"
        path.write_text(text)
        return rendered(str(path))

    assert made(needed) != made(merged(needed, value))
