"""Queries that share a stage, and why others do not."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowmark.app.cli import app
from lowmark.query.compile import compile_query
from lowmark.query.explain.sharing import describe_beside, render_beside, said_of_stages
from lowmark.query.plan.nodes import QueryPlan
from lowmark.query.plan.sharing import CannotShare, share

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
        {"query": name, "shares": True, "can_share": True, "because": ()} for name in ("minutes", "hours")
    ]
    assert "saved: 3 queries take 1 node and one topic, in place of 3 nodes and 3 topics" in render_beside(base, others)


@pytest.mark.parametrize(("sql", "why"), [
    (BASE.replace("SLIDE 1 minute", "SLIDE 15 s"), ("its panes differ",)),
    (BASE.replace("FROM Main", "FROM Other"), ("its streams differ",)),
    (BASE.replace("GROUP BY", "WHERE proto = 6 GROUP BY"), ("its conditions differ",)),
    (BASE.replace("sum(len)", "count(distinct len)"), ("its aggregates split the groups by other values",)),
    (BASE.replace("srcIP", "destIP"), ("its groups differ",)),
    (BASE.replace("GROUP BY srcIP", "GROUP BY srcIP, proto"), ("its groups differ",)),
    (BASE.replace("1 minute", "15 s").replace("srcIP", "destIP"), ("its panes differ", "its groups differ")),
    ("SELECT x.ts FROM A AS x [RANGE 1 s], B AS y [RANGE 1 s] WHERE x.srcIP = y.srcIP",
     ("they have other numbers of nodes",)),
])  # fmt: skip
def test_what_is_told_of_queries_that_do_not(sql: str, why: tuple[str, ...]) -> None:
    (told,) = describe_beside(plan(BASE, "base"), [plan(sql, "other")])
    assert told == {"query": "other", "shares": False, "can_share": False, "because": why}


def test_buckets_are_told() -> None:
    (told,) = describe_beside(plan(BASE, "base"), [plan(BASE, "other", 4)])
    assert told == {"query": "other", "shares": False, "can_share": False, "because": ("it has 4 buckets, not 16",)}


def test_explain_tells_it(tmp_path: Path) -> None:
    files = {
        "like": BASE.replace("10 minutes", "3 minutes"),
        "more": BASE.replace("sum(len)", "avg(len), max(ttl)"),
        "unlike": BASE.replace("srcIP", "destIP"),
    }
    options = []
    for name, sql in files.items():
        (tmp_path / f"{name}.sql").write_text(sql)
        options += ["--beside", str(tmp_path / f"{name}.sql")]
    text = CliRunner().invoke(app, ["explain", BASE, *options]).stdout
    assert text.endswith(
        "beside\n  like: shares the stage\n"
        "  more: a stage of its own, since its aggregates keep other states; shares one if both have the same `share`\n"
        "  unlike: a stage of its own, since its groups differ\n"
        "  saved: 2 queries take 1 node and one topic, in place of 2 nodes and 2 topics\n"
        "  with the same `share`: 3 queries take 1 node and one topic, in place of 2 nodes and 2 topics; each group "
        "sends 8 words in place of 7 + 8\n"
    )
    facts = json.loads(CliRunner().invoke(app, ["explain", BASE, *options, "--json"]).stdout)
    assert [(item["shares"], item["can_share"]) for item in facts["beside"]] == [
        (True, True), (False, True), (False, False),
    ]  # fmt: skip


GROUPS = "SELECT srcIP{}, {} [RANGE {}, SLIDE 1 minute] FROM Main GROUP BY srcIP"
ASKED = (
    ("", "count(*), sum(len)", "10 minutes"),
    (" AS host", "max(len), avg(ttl) AS t", "1 minute"),
    ("", "min(len), stddev(len), first(destPort)", "7 minutes"),
)


def asked(number: int, name: str) -> QueryPlan:
    return plan(GROUPS.format(*ASKED[number]), name)


def test_a_shared_stage_follows_from_the_set_of_states() -> None:
    plans = [asked(number, f"q{number}") for number in range(3)]
    stages = {one.stage for order in permutations(plans) for one in share(order)}
    assert len(stages) == 1
    # Neither names nor queries that keep nothing new decide about it.
    again = [asked(number, f"another{number}") for number in (2, 1, 0, 1)]
    more = plan(GROUPS.format("", "avg(len) AS a, count(*) - 1 AS n", "3 minutes") + " HAVING max(len) > 9", "more")
    assert {one.stage for one in share([*again, more])} == stages
    assert share(plans[:2])[0].stage not in stages


def test_each_query_reads_its_own_columns() -> None:
    plans = [asked(number, f"q{number}") for number in range(3)]
    for own, shared in zip(plans, share(plans), strict=True):
        (node,), (mine,) = shared.stage.nodes, own.stage.nodes
        (view,) = shared.views
        assert view.schema == mine.reduction.schema == shared.rows_of(node.name)
        kinds = [(column.kind, column.nullable) for column in view.schema]
        read = [node.reduction.schema.column(name) for name in view.columns]
        assert [(column.kind, column.nullable) for column in read] == kinds
        assert (shared.steps, shared.output, shared.window) == (own.steps, own.output, own.window)


def test_groups_leave_a_shared_node_at_once_where_nobody_wants_more_of_them() -> None:
    """What had left of a group's folds would be counted again with the rest."""
    distinct = [plan("SELECT DISTINCT ts / 60 AS m, srcIP FROM A", name) for name in ("one", "other")]
    sums = plan("SELECT ts / 60 AS m, srcIP, sum(len) FROM A GROUP BY ts / 60, srcIP", "sums")
    for plans, at_once in ((distinct, True), ([distinct[0], sums], False), ([sums, distinct[0]], False)):
        assert {one.stage.nodes[0].reduction.at_once for one in share(plans)} == {at_once}


def test_texts_come_from_the_one_that_has_some() -> None:
    """With several sources `first` goes by their streams' names, too."""
    plans = [
        compile_query(f"SELECT proto, {call} [RANGE 1 s] FROM A UNION B GROUP BY proto", streams={"A": 2, "B": 1})
        for call in ("count(*)", "first(len)")
    ]
    assert [one.stage.nodes[0].reduction.strings for one in plans] == [(), ("A", "B")]
    for order in (plans, plans[::-1]):
        assert share(order)[0].stage.nodes[0].reduction.strings == ("A", "B")


def test_joins_share_both_their_nodes() -> None:
    text = (
        "SELECT {} [RANGE 4 s, WA x.ts] FROM A AS x [RANGE 1 s], B AS y [RANGE 1 s] WHERE x.srcIP = y.destIP "
        "GROUP BY x.srcIP"
    )
    plans = [plan(text.format(what), what) for what in ("count(*)", "count(*) AS n")]
    assert len(share(plans)[0].stage.nodes) == 2
    other = plan(text.format("sum(x.len)"), "other")  # what joins read of a packet are the groups of their nodes
    with pytest.raises(CannotShare, match="its groups differ"):
        share([*plans, other])


def test_what_cannot_share_says_which_and_why() -> None:
    with pytest.raises(CannotShare, match="its conditions differ") as caught:
        share([asked(0, "a"), plan(BASE.replace("GROUP BY", "WHERE proto = 6 GROUP BY"), "b")])
    assert caught.value.query == "b"
    many = [
        plan(BASE.replace("sum(len)", ", ".join(f"sum(len + {n}) AS a{n}" for n in range(at, at + 25))), f"q{at}")
        for at in (1, 26, 51)
    ]
    with pytest.raises(CannotShare, match="the states of all of them take 78 columns, and 64 is the most"):
        share(many)


def test_exchanges_are_of_the_shared_stage() -> None:
    base = plan(BASE, "base")
    top = plan(BASE.replace("sum(len)", "max(len) AS m") + " ORDER BY m DESC LIMIT 3", "top")
    shared = share([base, top])[1]
    assert top.exchanges is not None
    assert shared.exchanges is not None
    assert shared.exchanges.each == top.exchanges.each
    assert shared.exchanges.fingerprint != top.exchanges.fingerprint


def test_check_tells_which_do_and_which_could() -> None:
    apart = plan(BASE.replace("srcIP", "destIP"), "apart")
    a, b, c = share([asked(number, "abc"[number]) for number in range(3)])
    assert list(said_of_stages([a, apart, b, c])) == ["queries a, b, c share a stage"]
    assert list(said_of_stages([asked(0, "a"), apart, asked(1, "b")])) == [
        "queries a, b could share a stage: give them the same `share`"
    ]
