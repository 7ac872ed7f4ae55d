"""The dashboards are those that their code makes, and Grafana can read them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.deploy.test_alerts import promtool, run
from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def dashboards() -> ModuleType:
    pytest.importorskip("grafana_foundation_sdk", reason="it is in the lockfile: install that anew")
    spec = importlib.util.spec_from_file_location("dashboards", FOLDER / "dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dashboards"] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_what_is_made_from_the_code_is_current(dashboards: ModuleType) -> None:
    made = {f"{board.name}.json": dashboards.made(board) for board in dashboards.BOARDS}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in FILES}, (
        "run: python deploy/grafana/dashboards.py"
    )


def graphs(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_grafana_can_tell_its_parts_apart(path: Path) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    assert board["uid"] == f"lowmark-{path.stem}"
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    places = set()
    for panel in graphs(board):
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0, panel["title"]
        assert panel["description"], panel["title"]
        place = panel["gridPos"]
        places.add((place["x"], place["y"]))
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "$datasource"}
            used = {name for name in ("instance", "source", "query") if f"${name}" in target["expr"]}
            assert used, target["expr"]
            assert used <= variables, target["expr"]
    assert len(places) == len(graphs(board))


@promtool
def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    exprs = [
        target["expr"].replace("$__rate_interval", "5m")
        for path in FILES
        for panel in graphs(json.loads(path.read_text(encoding="utf-8")))
        for target in panel["targets"]
    ]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in run("check", "rules", str(tmp_path / "rules.json"))
