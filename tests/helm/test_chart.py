"""The Helm chart: what it renders, refuses and says, with Helm 3 and 4."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from highlevel.rosters.ruling import StreamRules, is_pattern
from ingest.config import RingConfig
from lowlevel.config import LowLevelConfig, QueueConfig
from lowmark.app.config.file import CaptureSource, Config, Query, QueryLimits, Stream, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.kafka.rights import Role, rights_of
from lowmark.query.options import Joins
from lowmark.wire.kafka.topics import Provision
from tests.helm.chart import (
    CASES,
    CHART,
    GOLDEN,
    KUBERNETES,
    ROOT,
    Manifest,
    copies,
    golden,
    helm,
    manifests,
    readme,
    template,
    value_comments,
    values_file,
)  # fmt: skip
from tests.helm.go_tools import obtain_kube_score
from tests.helm.tools import HELM_3, HELM_4, Missing, obtain_helm

DIGEST = "sha256:" + "a" * 64
CUSTOM = (
    "kafka.strimzi.io/",
    "monitoring.coreos.com/",
    "spark.apache.org/",
    "sparkoperator.k8s.io/",
)  # not Kubernetes' own: it has no schema of them


@pytest.fixture(scope="module", params=[HELM_3, HELM_4], ids=["helm3", "helm4"])
def program(request: pytest.FixtureRequest) -> Path:
    try:
        return obtain_helm(request.param)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, str]:
    """By case: Helm 4's render."""
    try:
        program = obtain_helm(HELM_4)
    except Missing as reason:
        pytest.skip(str(reason))
    return {case: template(program, values_file(case)).stdout for case in CASES}


def only(rendered: str, kind: str, ending: str = "") -> Manifest:
    (found,) = (of for of in manifests(rendered) if of["kind"] == kind and of["metadata"]["name"].endswith(ending))
    return found


def pods(rendered: str) -> Iterator[tuple[str, Manifest]]:
    """Name and specification of every pod that some object makes."""
    for manifest in manifests(rendered):
        spec = (
            manifest["spec"] if manifest["kind"] == "Pod" else manifest.get("spec", {}).get("template", {}).get("spec")
        )
        if spec is not None:
            yield manifest["metadata"]["name"], spec


def test_there_are_cases_and_each_has_a_golden_render() -> None:
    assert len(CASES) >= 10
    assert sorted(path.stem for path in GOLDEN.glob("*.yaml")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_golden(program: Path, case: str) -> None:
    """`make chart` writes the golden renders anew: read their difference."""
    done = template(program, values_file(case))
    assert done.returncode == 0, done.stderr
    assert golden(done.stdout) == (GOLDEN / f"{case}.yaml").read_text()


@pytest.mark.parametrize("page", ["docs/deploy.md", "helm/lowmark/README.md"])
def test_values_of_the_pages_can_be_used(program: Path, page: str, tmp_path: Path) -> None:
    """The first ones alone; each that follows is added to them."""
    text = (ROOT / page).read_text()
    blocks = [
        textwrap.dedent(block) for block in re.findall(r"^ *```yaml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    ]
    blocks = [block.replace("sha256:…", DIGEST) for block in blocks]
    assert len(blocks) > 1
    files = [tmp_path / f"{number}.yaml" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    for file in files[1:]:
        done = template(program, files[0], "--values", str(file))
        assert done.returncode == 0, done.stderr
    assert "kind: DaemonSet" in template(program, files[0]).stdout


def test_lint(program: Path) -> None:
    options = [option for case in CASES for option in ("--values", str(values_file(case)))]
    done = helm(program, "lint", "--strict", str(CHART), *options[:2])
    assert done.returncode == 0, done.stdout + done.stderr


def test_package(program: Path, tmp_path: Path) -> None:
    """The archive holds the copies, and renders the same."""
    done = helm(program, "package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tgz")
    done = helm(
        program, "template", "lowmark", str(archive), "--namespace", "lowmark", "--kube-version", f"{KUBERNETES}.0",
        "--values", str(values_file("scram")),
    )  # fmt: skip
    assert golden(done.stdout) == (GOLDEN / "scram.yaml").read_text()


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_takes_it(rendered: Mapping[str, str], case: str) -> None:
    for manifest in manifests(rendered[case]):
        if not manifest["apiVersion"].startswith(CUSTOM):
            kubernetes_validate.validate(dict(manifest), KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("image.job.digest=", "image.job.digest is missing: give sha256:…"),
        ("image.job.digest=latest", "digest"),
        ("image.capture.tag=latest", "image.capture.tag is latest"),
        ("image.capture.repository=", "image.capture.repository is missing"),
        ("kafka.bootstrap=", "kafka.bootstrap is missing"),
        ("kafka.password=x", "password"),
        ("kafka.capture.password=x", "password"),
        ("kafka.security=SASL_SSL", "kafka.job.username is missing: SASL_SSL needs one"),
        ("kafka.ca.existingSecret=ca", "do not go with kafka.security PLAINTEXT"),
        ("kafka.job.existingSecret=user", "nothing of it is used"),
        ("job.kind=SparkApplication", "job.sparkApplication.checkpoint is missing: give a URL"),
        ("job.sparkApplication.checkpoint=/var/lib", "checkpoint"),
        ("job.sparkApplication.conf.heap=1g", "heap"),
        ("job.replicas=2", "replicas"),
        ("job.repeatRows=true", "job.repeatRows works only with job.newGeneration"),
        ("namespaces.capture=lowmark", "namespaces.capture is the release's namespace"),
        ("capture.affinity.nodeAffinity.a=b", "capture.nodes and capture.affinity.nodeAffinity"),
        ("sources.tap.stream=Other", 'there is no stream "Other" (Main)'),
        ("streams.Other.disorder=ordered", "streams.Other: no source feeds it"),
        ("streams.Main.stall=exclude after 60", "stall"),
        ("queries=null", "queries is empty"),
        ("queries.talkers.slots=1", "slots"),
        ("acls.create=true", "kafka.security PLAINTEXT names no users"),
        ("strimzi.users=true", "strimzi.namespace is missing"),
        ("nmaespaces.create=true", "nmaespaces"),
    ],
)
def test_refused(program: Path, given: str, said: str) -> None:
    done = template(program, values_file("minimal"), "--set", given)
    assert done.returncode != 0
    assert said in done.stderr


def test_no_value_hides() -> None:
    """Each has a comment, from which the README's table is made, and its place in the closed schema."""
    comments = value_comments()
    schema = json.loads((CHART / "values.schema.json").read_text())

    def look(values: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...]) -> None:
        if "$ref" in schema:
            schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
        assert schema.get("additionalProperties") is False, path
        for key, value in values.items():
            at = (*path, key)
            described = [".".join(at[:length]) for length in range(1, len(at) + 1)]
            of = schema["properties"][key]
            if isinstance(value, Mapping) and value and ("properties" in of or "$ref" in of):
                look(value, of, at)
            else:
                assert any(key in comments for key in described), at

    whole = schema
    look(yaml.safe_load((CHART / "values.yaml").read_text()), schema, ())


@pytest.mark.parametrize(
    ("path", "kind", "own"),
    [
        ("streams.*", Stream, set()),
        ("sources.*", CaptureSource, set()),
        ("queries.*", Query, set()),
        ("queries.*.limits", QueryLimits, set()),
        ("queries.*.join", Joins, set()),
        ("topics", Provision, {"prefix", "create"}),
        ("capture.table", LowLevelConfig, set()),
        ("capture.queue", QueueConfig, set()),
        ("capture.ring", RingConfig, set()),
    ],
)
def test_tables_have_the_keys_of_the_configuration(path: str, kind: type, own: set[str]) -> None:
    at: Any = json.loads((CHART / "values.schema.json").read_text())
    for part in path.split("."):
        at = at["additionalProperties"] if part == "*" else at["properties"][part]
    assert set(at["properties"]) - own <= {field.name for field in dataclasses.fields(kind)}


def config(rendered: str, ending: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of a ConfigMap, as lowmark reads it on node-1."""
    monkeypatch.setenv("LOWMARK_NODE", "node-1")
    monkeypatch.setenv("LOWMARK_ADDRESS", "192.0.2.1")
    path.write_text(only(rendered, "ConfigMap", ending)["data"]["lowmark.toml"])
    return load_config(path)


@pytest.mark.parametrize("case", [case for case in CASES if not case.endswith("-only")])
def test_lowmark_takes_the_settings(
    rendered: Mapping[str, str], case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captures and job plan the same stages, and the sources of each node are in the roster of the job, by name or as
    the job matches them when they register."""
    capture = config(rendered[case], "-capture", tmp_path / "capture.toml", monkeypatch)
    job = config(rendered[case], "-job", tmp_path / "job.toml", monkeypatch)
    plans, planned = plan_queries(capture), plan_queries(job)
    assert [plan.stage.fingerprint for plan in plans] == [plan.stage.fingerprint for plan in planned]
    assert capture.topics == job.topics
    assert capture.prefix == job.prefix
    values = yaml.safe_load(values_file(case).read_text())
    for stream, given in values["streams"].items():
        assert job.roster(stream) == capture.roster(stream)
        if "roster" not in given:
            mine = [name for source in job_sources(capture, stream) for name in capture.members(source)]
            assert mine
            rules = StreamRules(stream, job.roster(stream), job.streams[stream].stall_ns)
            if nodes := values.get("capture", {}).get("nodes"):
                assert set(mine) <= set(rules.configured)
                assert len(rules.configured) == len(mine) * len(nodes)
            else:
                assert all(map(is_pattern, rules.configured))
                assert all(map(rules.matches, mine))


def job_sources(config: Config, stream: str) -> list[str]:
    return [name for name, source in config.sources.items() if source.stream == stream]


def test_nodes_come_and_go_by_the_rule_of_the_job(
    rendered: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern takes names of sources, threads of theirs too, of this stream; the rule is the job's alone."""
    job = config(rendered["every-node"], "-job", tmp_path / "job.toml", monkeypatch)
    capture = config(rendered["every-node"], "-capture", tmp_path / "capture.toml", monkeypatch)
    assert job.roster("Main") == ("tap-*", "tap-mgmt-*")
    assert job.roster("Edge") == ("wan-*",)
    assert capture.members("tap-node-1") == ("tap-node-1-0", "tap-node-1-1")
    assert {name: stream.stall_ns for name, stream in job.streams.items()} == {"Main": 60 * 10**9, "Edge": None}
    assert {stream.stall for stream in capture.streams.values()} == {"wait"}, "a change of it restarts captures"
    assert job.job.limits.open_panes == 20_000
    spec = only(rendered["every-node"], "DaemonSet")["spec"]["template"]["spec"]
    assert "affinity" not in spec


@pytest.mark.parametrize(
    "stall",
    ["wait", "exclude after 60 s", "exclude  after 1.5min", "exclude after 2 HOURS", "exclude after 5000ms"],
)
def test_the_schema_takes_each_stall_that_lowmark_takes(stall: str) -> None:
    assert Stream(stall=stall).stall == stall
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["streams"]["additionalProperties"]
    assert re.search(schema["properties"]["stall"]["pattern"], stall)


def test_numbers_and_texts_stay_what_they_are(
    rendered: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm makes floats of all numbers."""
    found = config(rendered["queries"], "-job", tmp_path / "job.toml", monkeypatch).queries
    values = yaml.safe_load(values_file("queries").read_text())["queries"]
    assert {name: query.sql for name, query in found.items()} == {name: of["sql"] for name, of in values.items()}
    assert found["joined"].rates == {"Inside": 100_000.0, "Outside": 2.5}
    assert found["joined"].selectivities == {"Inside,Outside": 1e-5}
    assert found["both"].limits.groups == 1000
    fanout = config(rendered["fanout"], "-capture", tmp_path / "capture.toml", monkeypatch)
    assert fanout.capture.queue.spill_bytes == 10 << 30
    assert fanout.sources["tap-node-1"].cpus == (2, 3, 4, 5)


def test_text_of_any_query_survives(program: Path, tmp_path: Path) -> None:
    """Quotes, backslashes, braces and TOML's own marks."""
    texts = {
        "q1": "SELECT '\"' \\ {{ .Values }} FROM Main\n",
        "q2": "a '''b''' c\nd \\u00e9 é",
        "q3": "# [x]\r\n = \t${HOME}\n\n",
        "q4": "'",
    }
    values = yaml.safe_load(values_file("minimal").read_text())
    values["queries"] = {name: {"sql": text} for name, text in texts.items()}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = template(program, path)
    assert done.returncode == 0, done.stderr
    found = tomllib.loads(only(done.stdout, "ConfigMap", "-job")["data"]["lowmark.toml"])
    assert {name: query["sql"] for name, query in found["queries"].items()} == texts


@pytest.mark.parametrize("case", CASES)
def test_pods_may_do_no_more_than_they_must(rendered: Mapping[str, str], case: str) -> None:
    for name, spec in pods(rendered[case]):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        capture = name.endswith("-capture")
        assert spec.get("hostNetwork", False) is capture
        if capture:
            assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
        for container in spec["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]} | ({"add": ["NET_RAW"]} if capture else {})
            # Root needs no more privileges; the image's user gets its one from the file.
            assert rights["allowPrivilegeEscalation"] is (capture and rights["runAsUser"] == 10001)
            assert capture or rights["runAsNonRoot"] is True
            assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"])
            assert set(container["resources"]["limits"]) >= {"memory", "ephemeral-storage"}


@pytest.mark.parametrize("case", CASES)
def test_nothing_secret_is_in_the_manifests(rendered: Mapping[str, str], case: str) -> None:
    """Secrets are mounted, never made, and no environment variable or argument takes one."""
    for manifest in manifests(rendered[case]):
        assert manifest["kind"] != "Secret"
    assert "secretKeyRef" not in rendered[case]
    assert not re.search(r"password *= *\"", rendered[case])


def test_the_probes_follow_the_work(rendered: Mapping[str, str]) -> None:
    """An outage of Kafka makes pods not ready and restarts none."""
    for kind in ("DaemonSet", "Deployment"):
        (container,) = only(rendered["minimal"], kind)["spec"]["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_pages_with_tls_and_a_token(
    rendered: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are mounted where the settings name them, and whoever reads the pages knows."""
    for kind, ending in (("DaemonSet", "-capture"), ("Deployment", "-job")):
        pages = config(rendered["observed"], ending, tmp_path / "lowmark.toml", monkeypatch).metrics
        assert pages.certificate is not None
        assert pages.token is not None
        assert pages.token.file is not None
        (container,) = only(rendered["observed"], kind)["spec"]["template"]["spec"]["containers"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {str(pages.certificate.parent), str(pages.token.file.parent)} <= mounts
        assert {container[f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("startup", "liveness", "readiness")} == {
            "HTTPS"
        }
    for monitor in manifests(rendered["observed"]):
        if monitor["kind"] == "PodMonitor":
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            assert endpoint["scheme"] == "https"
            assert endpoint["authorization"] == {"credentials": {"name": "lowmark-token", "key": "token"}}


def test_memory_follows_from_the_tables(program: Path) -> None:
    def memory(*given: str) -> int:
        options = [option for text in given for option in ("--set", text)]
        done = template(program, values_file("minimal"), *options)
        (container,) = only(done.stdout, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        limits = container["resources"]
        assert limits["limits"]["memory"] == limits["requests"]["memory"]
        return int(limits["limits"]["memory"].removesuffix("Mi"))

    least, more = memory(), "queries.more.sql=SELECT ts FROM Main"
    assert memory("capture.table.memory=1G") == least + 2 * (1024 - 64)
    assert memory("sources.tap.fanout=3") == least + 2 * (2 * 64 + 33)
    assert memory(more) == least + 64
    assert memory("sources.tap.fanout=2", "capture.table.memory=128M", more) == least - 2 * 64 + 2 * 3 * 128 + 33
    assert memory("capture.resources.tables=5") == memory("capture.resources.tables=5", more) == least + 3 * 64


@pytest.mark.parametrize("case", ["minimal", "spark-apache", "spark-kubeflow"])
@pytest.mark.parametrize(
    ("given", "restarts"),
    [
        ({"queries": {"talkers": {"sql": "SELECT destIP, count(*) [RANGE 1 s] FROM Main GROUP BY destIP"}}}, set()),
        ({"queries": {"more": {"sql": "SELECT ts FROM Main"}}, "capture": {"resources": {"tables": 4}}}, set()),
        ({"queries": {"more": {"sql": "SELECT ts FROM Main"}}}, {"DaemonSet"}),
        ({"streams": {"Main": {"stall": "exclude after 90 s"}}}, set()),
        ({"capture": {"nodes": ["node-1"]}}, {"DaemonSet"}),
        ({"job": {"limits": {"groups": 9}}}, {"Deployment", "SparkApplication"}),
        ({"kafka": {"bootstrap": "other:9092"}}, {"DaemonSet", "Deployment", "SparkApplication"}),
    ],
)
def test_only_what_a_running_process_cannot_take_restarts_it(
    program: Path, case: str, given: dict[str, Any], restarts: set[str], tmp_path: Path
) -> None:
    """Kubernetes restarts pods whose template has changed; the configuration changes with each of these values."""

    def parts(values: dict[str, Any]) -> tuple[dict[str, object], object]:
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        done = template(program, values_file(case), "--values", str(path))
        assert done.returncode == 0, done.stderr
        found = manifests(done.stdout)
        owners = {
            of["kind"]: of["spec"] for of in found if of["kind"] in ("DaemonSet", "Deployment", "SparkApplication")
        }
        settings = [of["data"] for of in found if of["kind"] == "ConfigMap" and "lowmark.toml" in of.get("data", {})]
        return owners, settings

    tables = {"capture": {"resources": {"tables": 4}}} if "resources" in given.get("capture", {}) else {}
    before, after = parts(tables), parts(given)
    assert before[1] != after[1]
    assert {kind for kind in before[0] if before[0][kind] != after[0][kind]} == restarts & before[0].keys()


def test_users_of_strimzi_have_the_rights_that_lowmark_names(
    rendered: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {of["metadata"]["name"]: of for of in manifests(rendered["strimzi"]) if of["kind"] == "KafkaUser"}
    for role, name in ((Role.CAPTURE, "capture"), (Role.RUN, "job")):
        acls = users[f"lowmark-{name}"]["spec"]["authorization"]["acls"]
        settings = config(rendered["strimzi"], f"-{name}", tmp_path / f"{name}.toml", monkeypatch)
        for topic, wanted in rights_of(settings, plan_queries(settings), role).items():
            given = [
                re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
                for acl in acls
                if acl["resource"]["type"] == "topic"
                and (topic.startswith if acl["resource"]["patternType"] == "prefix" else topic.__eq__)(
                    acl["resource"]["name"]
                )
                for operation in acl["operations"]
            ]
            assert wanted <= set(given), topic


def test_notes() -> None:
    """What somebody has to know and to do next. Helm 3 shows it with a cluster only."""
    try:
        program = obtain_helm(HELM_4)
    except Missing as reason:
        pytest.skip(str(reason))

    def notes_of(case: str) -> str:
        options = ["--namespace", "netmon", "--values", str(values_file(case))]
        done = helm(program, "install", "taps", str(CHART), "--dry-run=client", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("\nNOTES:\n")[2]

    notes = notes_of("scram")
    assert "takes nodes as they come" not in notes
    for said in (
        "DaemonSet taps-lowmark-capture in namespace netmon-capture",
        "They wait for the Secret kafka-tap in that namespace.",
        "kubectl label namespace netmon pod-security.kubernetes.io/enforce=restricted",
        "helm test taps -n netmon --logs",
        "lowmark watch talkers",
    ):
        assert said in notes
    notes = notes_of("every-node")
    assert "They run on every node that" in notes
    assert "Stream Edge takes nodes as they come, but waits for each that goes" in notes
    assert "Stream Main" not in notes


def test_copies_are_equal() -> None:
    """`make chart` copies them."""
    pairs = list(copies())
    assert pairs
    for source, copy in pairs:
        assert copy.read_bytes() == source.read_bytes(), copy
    kept = {path for path in (CHART / "files").rglob("*") if path.is_file()}
    assert kept == {copy for _, copy in pairs}


def test_the_table_of_values_is_new() -> None:
    """`make chart` writes it."""
    assert readme() == (CHART / "README.md").read_text()


def test_every_upgrade_is_described() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert f"## {version}" in (CHART / "UPGRADING.md").read_text()


ALLOWED = {
    "ImagePullPolicy is not set to Always": "images are named by digest",
    "CPU limit is not set": "a throttled capture drops packets, and a throttled job falls behind",
    "The pod does not have a matching NetworkPolicy": "none holds for the node's network",
    "running with a low user ID": "root with one capability needs no privilege escalation",
    "running with a low group ID": "the same",
}
SELECT_NOTHING = ("does not match any pods", "doesn't match any pods")
"""What it says of services and policies for pods that an operator makes."""


@pytest.fixture(scope="module")
def kube_score() -> Path:
    try:
        return obtain_kube_score()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kube_score_finds_nothing_else(
    kube_score: Path, rendered: Mapping[str, str], case: str, tmp_path: Path
) -> None:
    path = tmp_path / "rendered.yaml"
    path.write_text(rendered[case])
    done = subprocess.run([kube_score, "score", "-o", "ci", str(path)], capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("[CRITICAL]")]
    assert done.stdout
    allowed = [*ALLOWED, *(SELECT_NOTHING if "kind: SparkApplication" in rendered[case] else ())]
    assert not [line for line in found if not any(text in line for text in allowed)]
