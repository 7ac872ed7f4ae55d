"""A real API server takes what the chart renders: its schemas, defaults, and the rules of Pod Security of both
namespaces. Nothing is made but the namespaces: there are no nodes."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import yaml

from tests.helm.chart import CASES, KUBERNETES, Manifest, manifests, template, values_file
from tests.helm.go_tools import obtain_api_server
from tests.helm.tools import HELM_4, Missing, obtain_helm
from tests.integration.jobprocess import await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CUSTOM = (
    "kafka.strimzi.io/",
    "monitoring.coreos.com/",
    "spark.apache.org/",
    "sparkoperator.k8s.io/",
)  # made by operators, which are not here
_ENFORCED = "pod-security.kubernetes.io/enforce"

Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Calls kubectl."""
    try:
        server, store = obtain_api_server(f"{KUBERNETES}.1")
    except Missing as reason:
        pytest.skip(str(reason))
    if shutil.which("kubectl") is None or shutil.which("openssl") is None:
        pytest.skip("kubectl or openssl is not installed")
    folder = tmp_path_factory.mktemp("api")
    key, tokens = folder / "key", folder / "tokens"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text("admin,admin,1,system:masters\n")
    clients, peers, port = _free_ports(3)
    kept = [
        store, f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{clients}",
        f"--advertise-client-urls=http://127.0.0.1:{clients}", f"--listen-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}", f"--initial-cluster=default=http://127.0.0.1:{peers}",
    ]  # fmt: skip
    serving = [
        server, f"--etcd-servers=http://127.0.0.1:{clients}", "--bind-address=127.0.0.1", f"--secure-port={port}",
        f"--cert-dir={folder}/certificates", f"--service-account-key-file={key}", f"--token-auth-file={tokens}",
        f"--service-account-signing-key-file={key}", "--service-account-issuer=https://lowmark.test",
        "--service-cluster-ip-range=10.99.0.0/24", "--authorization-mode=RBAC", "--allow-privileged",
        "--disable-admission-plugins=ServiceAccount",  # nothing makes the accounts of a namespace
    ]  # fmt: skip
    kubectl = ["kubectl", f"--server=https://127.0.0.1:{port}", "--insecure-skip-tls-verify", "--token=admin"]

    def ask(*arguments: str, given: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        text = None if given is None else yaml.safe_dump(dict(given))
        return subprocess.run([*kubectl, *arguments], input=text, capture_output=True, text=True, timeout=60)

    with ExitStack() as stack, (folder / "log").open("w") as log:
        for command in (kept, serving):
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(process.terminate)
        await_true(lambda: process.poll() is not None or ask("get", "--raw", "/readyz").returncode == 0)
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        yield ask


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def applied(ask: Ask, given: Manifest, *options: str) -> str:
    """What the server says of a manifest that it takes."""
    done = ask("apply", "--filename=-", *options, given=given)
    assert done.returncode == 0, f"{given['kind']} {given['metadata']['name']}: {done.stderr}"
    return done.stderr


@pytest.mark.parametrize("case", CASES)
def test_it_takes_each_render(ask: Ask, case: str) -> None:
    """Also each pod by itself, as a controller would make it: Pod Security refuses pods, not what makes them."""
    rendered = manifests(template(obtain_helm(HELM_4), values_file(case)).stdout)
    for name, level in namespaces(rendered).items():
        labels = {_ENFORCED: level}
        applied(ask, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    for manifest in rendered:
        if manifest["apiVersion"].startswith(CUSTOM):
            continue
        said = applied(ask, manifest, "--dry-run=server", "--validate=strict")
        assert not said or "ignored for headless services" in said, said
        made = manifest.get("spec", {}).get("template")
        if made is not None:
            about = {"name": "pod", "namespace": manifest["metadata"]["namespace"], **made["metadata"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": made["spec"]}
            if not (priority := made["spec"].get("priorityClassName", "system-")).startswith("system-"):
                kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
                applied(ask, {**kind, "metadata": {"name": priority}})
            applied(ask, pod, "--dry-run=server", "--validate=strict")


def test_a_capture_is_refused_where_pods_are_restricted(ask: Ask) -> None:
    """Why captures have a namespace of their own: the rules hold here, and say so."""
    rendered = manifests(template(obtain_helm(HELM_4), values_file("minimal")).stdout)
    labels = {_ENFORCED: "restricted"}
    applied(ask, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tight", "labels": labels}})
    (capture,) = (manifest for manifest in rendered if manifest["kind"] == "DaemonSet")
    spec = capture["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "tight"}, "spec": spec}
    done = ask("apply", "--filename=-", "--dry-run=server", given=pod)
    assert done.returncode != 0
    assert "host namespaces (hostNetwork=true)" in done.stderr


def namespaces(rendered: list[Manifest]) -> dict[str, str]:
    """The namespaces of these manifests, and what Pod Security enforces there."""
    captures = {manifest["metadata"]["namespace"] for manifest in rendered if manifest["kind"] == "DaemonSet"}
    every = {manifest["metadata"].get("namespace") for manifest in rendered} - {None}
    return {str(name): "privileged" if name in captures else "restricted" for name in every}
