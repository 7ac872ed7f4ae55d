"""The chart: its renders, and its parts that are made from others. `make chart` writes them anew.

A golden render is what Helm makes of `ci/NAME-values.yaml`. Long texts in it, copies of files, are shortened to their
hash.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.helm.tools import HELM_4, obtain_helm

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "lowmark"
GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
KUBERNETES = "1.34"

COPIES = {
    "deploy/kafka/acls.sh": "files/acls.sh",
    "deploy/prometheus/rules/*.yml": "files/rules",
    "deploy/grafana/*.json": "files/dashboards",
}
"""By file or pattern in the repository: the file or folder of the chart that holds its copy. Copies, because
`helm package` follows links with a warning only."""

Manifest = Mapping[str, Any]

_LONG = 8192
_SECTION = re.compile(r"(<!-- made: values -->\n).*(<!-- end of values -->)", re.DOTALL)


def values_file(case: str) -> Path:
    return CHART / "ci" / f"{case}-values.yaml"


def helm(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def template(program: Path, values: Path, *options: str) -> subprocess.CompletedProcess[str]:
    common = ["--namespace", "lowmark", "--kube-version", f"{KUBERNETES}.0", "--values", str(values)]
    return helm(program, "template", "lowmark", str(CHART), *common, *options)


def manifests(rendered: str) -> list[Manifest]:
    """Sorted by kind and name."""
    found = [document for document in yaml.safe_load_all(rendered) if document is not None]
    return sorted(found, key=lambda of: (of["kind"], of["metadata"]["name"]))


def golden(rendered: str) -> str:
    """The manifests as a golden file has them."""
    return yaml.dump_all(map(_shortened, manifests(rendered)), sort_keys=True, width=120, allow_unicode=True)


def _shortened(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_shortened(item) for item in value]
    if isinstance(value, str) and len(value) > _LONG:
        return f"{len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    return value


def copies() -> Iterator[tuple[Path, Path]]:
    """The files, and where the chart has copies of them."""
    for pattern, place in COPIES.items():
        for source in sorted(ROOT.glob(pattern)):
            yield source, CHART / place / source.name if "*" in pattern else CHART / place


def readme() -> str:
    """The chart's README with its table of values made anew."""
    text = (CHART / "README.md").read_text()
    return _SECTION.sub(lambda match: match[1] + "\n".join(_table()) + "\n" + match[2], text)


def value_comments() -> dict[str, str]:
    """By key, such as `image.job.tag`: its comment in values.yaml."""
    found: dict[str, str] = {}
    path: list[str] = []
    comment = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if (match := re.fullmatch(r" *# -- (.*)", line)) is not None:
            comment = match[1]
        elif (match := re.match(r"( *)([A-Za-z_]+):", line)) is not None:
            path = [*path[: len(match[1]) // 2], match[2]]
            if comment:
                found[".".join(path)] = comment
            comment = ""
    return found


def _table() -> Iterator[str]:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    yield "| value | default | meaning |"
    yield "|---|---|---|"
    for key, comment in value_comments().items():
        at = values
        for part in key.split("."):
            at = at[part]
        shown = yaml.safe_dump(at, default_flow_style=True, width=1000).strip().removesuffix("...").strip()
        yield f"| `{key}` | `{shown}` | {comment} |"


def main() -> None:
    for source, copy in copies():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    program = obtain_helm(HELM_4)
    for case in CASES:
        done = template(program, values_file(case))
        if done.returncode:
            raise SystemExit(f"{case}: {done.stderr}")
        (GOLDEN / f"{case}.yaml").write_text(golden(done.stdout))
    (CHART / "README.md").write_text(readme())


if __name__ == "__main__":
    main()
