"""The alerts: each fires for its fault and for nothing else, names metrics that exist, and leads to what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, section, text
from tests.docs.test_docs import anchors, load_sections

FOLDER = ROOT / "deploy" / "prometheus"
RULES = (FOLDER / "rules" / "lowmark.yml").read_text(encoding="utf-8")
ALERTS = re.findall(r"- alert: (\w+)", RULES)
PAGE = "docs/alerts.md"

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: make tools")


def run(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@promtool
def test_the_rules_are_valid_and_so_is_the_example() -> None:
    assert f"{len(ALERTS)} rules found" in run("check", "rules", "rules/lowmark.yml")
    assert "rules/lowmark.yml" in run("check", "config", "prometheus.yml")


@promtool
def test_each_fires_for_its_fault_and_is_silent_without() -> None:
    assert "SUCCESS" in run("test", "rules", "tests.yml")


def test_each_is_tested_silent_and_firing() -> None:
    tests = (FOLDER / "tests.yml").read_text(encoding="utf-8")
    tried = re.findall(r"alertname: (\w+)\n    exp_alerts:( \[\])?", tests)
    assert sorted(tried) == sorted([(alert, silent) for alert in ALERTS for silent in ("", " []")])


def test_each_leads_to_its_section_of_the_runbook() -> None:
    links = re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*?\s+runbook_url: (\S+)", RULES)
    assert [alert for alert, _ in links] == ALERTS
    assert {link for _, link in links} == {f"{PAGE}#{alert.lower()}" for alert in ALERTS}
    assert {link.partition("#")[2] for _, link in links} <= anchors(ROOT / PAGE)
    assert re.findall(r"^### (Lowmark\w+)$", text(PAGE), re.MULTILINE) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_the_runbook_says_what_to_look_at_and_what_to_do(alert: str) -> None:
    written = section(PAGE, alert)
    assert "- **Look at**" in written
    assert "- **Do**" in written


def exported() -> set[str]:
    """The names of all metrics, as Prometheus has them."""
    names = set()
    for name, kind in re.findall(
        r"^\| `(lowmark_\w+)` *\| \w+ *\| (\w+)", load_sections().made()["metrics"], re.MULTILINE
    ):
        names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")} if kind == "histogram" else {name}
    return names


@pytest.mark.parametrize(
    "path",
    [FOLDER / "rules" / "lowmark.yml", FOLDER / "tests.yml", *sorted((ROOT / "deploy" / "grafana").glob("*.json"))],
    ids=lambda path: path.name,
)
def test_every_metric_that_is_asked_for_exists(path: Path) -> None:
    asked = set(re.findall(r"\blowmark_\w+", path.read_text(encoding="utf-8")))
    assert asked
    assert asked <= exported()
