"""The job as a SparkApplication, of Apache's operator and of Kubeflow's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pyspark
import pytest
import yaml

from lowmark.app.config.file import load_config
from tests.helm.chart import KUBERNETES, Manifest, manifests, template, values_file
from tests.helm.go_tools import obtain_kubeflow_crd
from tests.helm.tools import HELM_4, Missing, obtain_helm

OPERATORS = ("apache", "kubeflow")
BY_UPLOAD = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


@pytest.fixture(scope="module")
def rendered() -> Mapping[str, list[Manifest]]:
    """By operator."""
    try:
        program = obtain_helm(HELM_4)
    except Missing as reason:
        pytest.skip(str(reason))
    return {name: manifests(template(program, values_file(f"spark-{name}")).stdout) for name in OPERATORS}


def application(rendered: list[Manifest]) -> Manifest:
    (found,) = (of for of in rendered if of["kind"] == "SparkApplication")
    return found


def pods(application: Manifest) -> dict[str, Manifest]:
    """The templates of driver and executor."""
    spec = application["spec"]
    if "driverSpec" in spec:
        return {role: spec[f"{role}Spec"]["podTemplateSpec"] for role in ("driver", "executor")}
    return {role: spec[role]["template"] for role in ("driver", "executor")}


def closed(schema: Any) -> Any:
    """A definition's schema as a JSON schema that knows no other keys, as strict validation of an API server does."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def test_kubeflows_operator_takes_it(rendered: Mapping[str, list[Manifest]]) -> None:
    """Apache's definition is in no registry of packages."""
    try:
        crd = yaml.safe_load(obtain_kubeflow_crd().read_text())
    except Missing as reason:
        pytest.skip(str(reason))
    made = application(rendered["kubeflow"])
    (version,) = (of for of in crd["spec"]["versions"] if f"{crd['spec']['group']}/{of['name']}" == made["apiVersion"])
    schema = closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.validate(made["spec"], schema)
    with pytest.raises(jsonschema.ValidationError, match="arguements"):
        jsonschema.validate({**made["spec"], "arguements": []}, schema)


@pytest.mark.parametrize("operator", OPERATORS)
def test_kubernetes_takes_the_pods_and_they_may_do_no_more_than_they_must(
    rendered: Mapping[str, list[Manifest]], operator: str
) -> None:
    for role, pod in pods(application(rendered[operator])).items():
        spec = pod["spec"]
        (container,) = spec["containers"]
        whole = {**spec, "containers": [{**container, "image": "from-the-settings"}]}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **pod["metadata"]}, "spec": whole}
        kubernetes_validate.validate(made, KUBERNETES, strict=True)
        assert spec["automountServiceAccountToken"] is (role == "driver"), "it makes the executors"
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
        assert (rights["capabilities"], rights["runAsNonRoot"]) == ({"drop": ["ALL"]}, True)
        assert ("readinessProbe" in container) is (role == "driver")


def test_both_run_the_same(rendered: Mapping[str, list[Manifest]]) -> None:
    """The image by digest, its script, and what was started again whatever had ended it."""
    apache, kubeflow = (application(rendered[name])["spec"] for name in OPERATORS)
    assert apache["pyFiles"] == kubeflow["mainApplicationFile"] == "local:///opt/lowmark/share/lowmark/lowmark-job.py"
    assert apache["driverArgs"] == kubeflow["arguments"] == ["run", "--reload-on-change"]
    assert apache["runtimeVersions"]["sparkVersion"] == kubeflow["sparkVersion"] == pyspark.__version__
    assert "@sha256:" in apache["sparkConf"]["spark.kubernetes.container.image"]
    assert kubeflow["image"] == kubeflow["sparkConf"]["spark.kubernetes.container.image"]
    assert apache["applicationTolerations"]["restartConfig"]["restartPolicy"] == kubeflow["restartPolicy"]["type"]
    assert kubeflow["restartPolicy"]["type"] == "Always"


@pytest.mark.parametrize("operator", OPERATORS)
def test_settings_of_the_user_take_precedence_and_memory_follows_from_the_cores(
    rendered: Mapping[str, list[Manifest]], operator: str
) -> None:
    conf = application(rendered[operator])["spec"]["sparkConf"]
    given = yaml.safe_load(values_file(f"spark-{operator}").read_text())["job"]["sparkApplication"]
    assert given["conf"].items() <= conf.items()
    cores = int(conf["spark.executor.cores"])
    assert cores == given.get("cores", 1)
    assert conf["spark.executor.memoryOverhead"] == f"{512 + 768 * cores}m"


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_checkpoint_is_where_all_reach_it(
    rendered: Mapping[str, list[Manifest]], operator: str, tmp_path: Path
) -> None:
    settings = tmp_path / "lowmark.toml"
    (found,) = (
        of for of in rendered[operator] if of["kind"] == "ConfigMap" and of["metadata"]["name"].endswith("-job")
    )
    settings.write_text(found["data"]["lowmark.toml"])
    assert load_config(settings).job.checkpoint == "s3a://lowmark/checkpoint"
    conf = application(rendered[operator])["spec"]["sparkConf"]
    assert conf["spark.sql.streaming.checkpointFileManagerClass"] == BY_UPLOAD
    assert "PersistentVolumeClaim" not in {of["kind"] for of in rendered[operator]}
