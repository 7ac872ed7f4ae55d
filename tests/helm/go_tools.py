"""Programs that are built from Go modules, by name and version, and kept in the user's cache. Go checks the modules.

What cannot be had is a reason to skip, never to fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.helm.tools import Missing, cached

__all__ = ["obtain_api_server", "obtain_kube_score", "obtain_kubeflow_crd"]

_KUBE_SCORE = "1.20.0"
_ETCD = "3.6.4"
_SPARK_OPERATOR = "2.3.0"
_STAGED = (
    "api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go", "cloud-provider",
    "cluster-bootstrap", "code-generator", "component-base", "component-helpers", "controller-manager", "cri-api",
    "cri-client", "cri-streaming", "csi-translation-lib", "dynamic-resource-allocation", "endpointslice", "externaljwt",
    "kms", "kube-aggregator", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
    "metrics", "mount-utils", "pod-security-admission", "sample-apiserver", "sample-cli-plugin", "sample-controller",
)  # fmt: skip
"""The modules that Kubernetes' own names without a version, because they lie beside it."""


def obtain_kube_score() -> Path:
    program = cached(f"kube-score-{_KUBE_SCORE}")
    if not program.exists():
        with tempfile.TemporaryDirectory() as folder:
            _go(folder, 300, "install", f"github.com/zegl/kube-score/cmd/kube-score@v{_KUBE_SCORE}", GOBIN=folder)
            _keep(Path(folder) / "kube-score", program)
    return program


def obtain_kubeflow_crd() -> Path:
    """Kubeflow's definition of a SparkApplication."""
    crd = cached(f"kubeflow-spark-operator-{_SPARK_OPERATOR}.yaml")
    if not crd.exists():
        with tempfile.TemporaryDirectory() as folder:
            module = f"github.com/kubeflow/spark-operator/v2@v{_SPARK_OPERATOR}"
            found = json.loads(_go(folder, 300, "mod", "download", "-json", module))
            _keep(Path(found["Dir"]) / "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml", crd)
    return crd


def obtain_api_server(version: str) -> tuple[Path, Path]:
    """kube-apiserver and etcd, which keeps what the server is told."""
    server, store = cached(f"kube-apiserver-{version}"), cached(f"etcd-{_ETCD}")
    if not (server.exists() and store.exists()) and not os.environ.get("LOWMARK_TEST_API_SERVER"):
        raise Missing("building an API server takes five minutes: LOWMARK_TEST_API_SERVER=1 has it built, once")
    if not server.exists():
        staged = version.replace("1.", "0.", 1)
        replaced = [f"-replace=k8s.io/{name}=k8s.io/{name}@v{staged}" for name in _STAGED]
        _build(server, "k8s.io/kubernetes/cmd/kube-apiserver", f"k8s.io/kubernetes@v{version}", *replaced)
    if not store.exists():
        _build(store, "go.etcd.io/etcd/server/v3", f"go.etcd.io/etcd/server/v3@v{_ETCD}")
    return server, store


def _build(program: Path, package: str, module: str, *replaced: str) -> None:
    """A program of a module that cannot be installed by name, because it replaces others."""
    with tempfile.TemporaryDirectory() as folder:
        _go(folder, 60, "mod", "init", "lowmark.test")
        _go(folder, 60, "mod", "edit", f"-require={module}", *replaced)
        _go(folder, 1200, "build", "-mod=mod", "-ldflags=-s -w", "-o", str(Path(folder) / "built"), package)
        _keep(Path(folder) / "built", program)


def _go(folder: str, within_s: float, *arguments: str, **environment: str) -> str:
    """What it prints."""
    if (go := shutil.which("go")) is None:
        raise Missing("Go, which builds it, is not installed")
    try:
        done = subprocess.run(
            [go, *arguments], cwd=folder, capture_output=True, text=True, timeout=within_s, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing(f"go {arguments[0]} was not done within {within_s:.0f} s") from None
    if done.returncode:
        raise Missing(f"go {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _keep(built: Path, program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=program.parent)
    os.close(handle)
    shutil.copy(built, name)
    os.replace(name, program)
