"""A real Prometheus over a capture and a job at work: rules and dashboards ask for what is there."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ingest.config import RingConfig
from ingest.live.interfaces import InterfaceError, interface
from ingest.live.ring import Ring
from tests.deploy.observed import RULES, Observed, Prometheus, metric_names, observed
from tests.docs.pages import ROOT
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: make tools")
    try:
        Ring(interface("lo"), RingConfig()).close()
    except InterfaceError as error:
        pytest.skip(f"this machine captures from no interface: {error}")
    with observed(tmp_path_factory.mktemp("observed"), broker) as seen:
        yield seen


def page(of: Observed, process: str) -> str:
    return get(of.pages[process]).text


@pytest.mark.parametrize("process", ["capture", "job"])
def test_metrics_follow_the_conventions(running: Observed, process: str) -> None:
    """Of names, units and help texts, as promtool knows them."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(running, process), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("process", ["capture", "job"])
def test_metrics_are_openmetrics_for_who_asks_for_them(running: Observed, process: str) -> None:
    asked = urllib.request.Request(
        running.pages[process], headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = list(text_string_to_metric_families(answer.read().decode()))
    kinds = {family.name: family.type for family in families}
    assert kinds["lowmark_build"] == "info"
    assert {kind for name, kind in kinds.items() if name.startswith("lowmark_")} <= {
        "counter",
        "gauge",
        "histogram",
        "info",
    }


def test_every_metric_of_rules_and_dashboards_is_served(running: Observed) -> None:
    served = metric_names(page(running, "capture")) | metric_names(page(running, "job"))
    for path in (RULES, *BOARDS):
        asked = set(re.findall(r"\blowmark_\w+", path.read_text(encoding="utf-8")))
        assert asked <= served, path.name


def test_rules_are_evaluated(running: Observed) -> None:
    """Their expressions match series as they are; the alerts that fire while all is well are a false alarm each."""
    prometheus = running.prometheus

    def rules() -> list[dict[str, Any]]:
        answer = prometheus.ask("rules")
        assert isinstance(answer, dict)
        return [rule for group in answer["groups"] for rule in group["rules"]]

    await_true(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert {rule["name"]: rule.get("lastError") for rule in rules() if rule["health"] != "ok"} == {}
    assert {rule["name"] for rule in rules()} == set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    assert [rule["name"] for rule in rules() if rule["state"] == "firing"] == []


def queries() -> list[tuple[str, str, str]]:
    return [
        (path.stem, panel["title"], target["expr"])
        for path in BOARDS
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]


def filled_in(of: Prometheus, board: str, text: str) -> str:
    """As Grafana sends it, with all values of each variable chosen."""
    written = json.loads((ROOT / "deploy" / "grafana" / f"{board}.json").read_text(encoding="utf-8"))
    for variable in written["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert found is not None
            values = sorted({series.labels[found[2]] for series in of.query(found[1])})
            assert values, variable["name"]
            text = text.replace(f"${variable['name']}", f"({'|'.join(map(re.escape, values))})".replace("\\", "\\\\"))
    return text.replace("$__rate_interval", "8s")


@pytest.mark.parametrize(("board", "title", "expr"), queries())
def test_no_panel_is_without_data(running: Observed, board: str, title: str, expr: str) -> None:
    """Those of faults show zeros: what cannot be seen before it happens cannot be trusted when it does."""
    asked = filled_in(running.prometheus, board, expr)
    assert "$" not in asked

    def values() -> list[float]:
        return [series.value for series in running.prometheus.query(asked)]

    await_true(lambda: any(math.isfinite(value) for value in values()))


def test_rows_on_a_result_topic_have_the_names_that_were_asked_for(running: Observed) -> None:
    with Command("watch", "wire", "-c", str(running.config), "--json", "--windows", "1") as watch:
        assert watch.wait() == 0, watch.error
    assert watch.rows
    for row in watch.rows:
        assert list(row) == ["event.start", "event.end", "network.iana_number", "network.packets"]


def test_a_capture_that_dies_is_an_alert(running: Observed) -> None:
    """The last test: nothing lives after it."""
    running.capture.process.send_signal(signal.SIGKILL)

    def alerts() -> dict[str, str]:
        answer = running.prometheus.ask("alerts")
        assert isinstance(answer, dict)
        return {alert["labels"]["alertname"]: alert["labels"].get("job", "") for alert in answer["alerts"]}

    await_true(lambda: alerts().get("LowmarkDown") == "lowmark-capture")
