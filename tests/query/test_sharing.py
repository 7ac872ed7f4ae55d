"""Queries that share a stage, and why others do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowmark.app.cli import app
from lowmark.query.compile import compile_query
from lowmark.query.plan import QueryPlan
from lowmark.query.sharing import describe_beside, render_beside

BASE = "SELECT srcIP, count(*), sum(len) [RANGE 10 minutes, SLIDE 1 minute] FROM Main GROUP BY srcIP"


def plan(sql: str, name: str, buckets: int = 16) -> QueryPlan:
    return compile_query(sql, name=name, buckets=buckets)


def test_windows_of_like_panes_share_a_stage() -> None:
    base = plan(BASE, "base")
    others = [
        plan("SELECT srcIP, count(*), sum(len) [RANGE 1 minute] FROM Main GROUP BY srcIP", "minutes"),
        plan(BASE.replace("10 minutes, SLIDE 1", "60 minutes, SLIDE 7") + " HAVING sum(len) > 9", "hours"),
    ]
    assert describe_beside(base, others) == [
        {"query": name, "shares": True, "because": ()} for name in ("minutes", "hours")
    ]
    assert "saved: 3 queries take 1 node and one topic, in place of 3 nodes and 3 topics" in render_beside(base, others)


@pytest.mark.parametrize(("sql", "why"), [
    (BASE.replace("SLIDE 1 minute", "SLIDE 15 s"), ("its panes differ",)),
    (BASE.replace("FROM Main", "FROM Other"), ("its streams differ",)),
    (BASE.replace("GROUP BY", "WHERE proto = 6 GROUP BY"), ("its conditions differ",)),
    (BASE.replace("sum(len)", "max(len)"), ("its aggregates keep other states",)),
    (BASE.replace("srcIP", "destIP"), ("its groups differ",)),
    (BASE.replace("1 minute", "15 s").replace("srcIP", "destIP"), ("its panes differ", "its groups differ")),
    ("SELECT x.ts FROM A AS x [RANGE 1 s], B AS y [RANGE 1 s] WHERE x.srcIP = y.srcIP",
     ("they have other numbers of nodes",)),
])  # fmt: skip
def test_what_is_told_of_queries_that_do_not(sql: str, why: tuple[str, ...]) -> None:
    (told,) = describe_beside(plan(BASE, "base"), [plan(sql, "other")])
    assert told == {"query": "other", "shares": False, "because": why}


def test_buckets_are_told() -> None:
    (told,) = describe_beside(plan(BASE, "base"), [plan(BASE, "other", 4)])
    assert told == {"query": "other", "shares": False, "because": ("it has 4 buckets, not 16",)}


def test_explain_tells_it(tmp_path: Path) -> None:
    files = {"like": BASE.replace("10 minutes", "3 minutes"), "unlike": BASE.replace("srcIP", "destIP")}
    options = []
    for name, sql in files.items():
        (tmp_path / f"{name}.sql").write_text(sql)
        options += ["--beside", str(tmp_path / f"{name}.sql")]
    text = CliRunner().invoke(app, ["explain", BASE, *options]).stdout
    assert text.endswith(
        "beside\n  like: shares the stage\n  unlike: a stage of its own, since its groups differ\n"
        "  saved: 2 queries take 1 node and one topic, in place of 2 nodes and 2 topics\n"
    )
    facts = json.loads(CliRunner().invoke(app, ["explain", BASE, *options, "--json"]).stdout)
    assert [item["shares"] for item in facts["beside"]] == [True, False]
