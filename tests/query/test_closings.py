"""PUNCTUATE ON: which nodes promise what, how far, and where it is refused."""

from __future__ import annotations

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.options import Strategy
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.closings import CONNECTION, TUPLE
from lowmark.query.plan.nodes import Aggregate, Join
from lowmark.query.plan.sharing import share

NS = 10**9
GROUPED = "SELECT conn, count(*) AS n [RANGE 10 minutes, SLIDE 10 minutes, WA ts] FROM Main GROUP BY conn "


def test_sources_promise_and_groups_leave() -> None:
    plan = compile_query(f"{GROUPED} HAVING count(*) > 1 PUNCTUATE ON conn")
    (node,) = plan.stage.nodes
    assert node.closing is not None
    assert (node.closing.columns, node.closing.fields, node.closing.linger_ns) == (CONNECTION, CONNECTION, 2 * NS)
    assert [node.closing.until(at * NS) // NS for at in (0, 599, 600)] == [600, 600, 1200]
    first = plan.steps[0].plan
    assert isinstance(first, Aggregate)
    assert first.closes == CONNECTION
    assert plan.stage.fingerprint != compile_query(f"{GROUPED} HAVING count(*) > 1").stage.fingerprint
    text = render(plan)
    assert "promises     a connection is over, 2 s after RST, or FIN from both ends" in text
    assert "leaves       each group when all sources have promised that its connection is over" in text


def test_one_direction_among_other_keys_and_under_other_names() -> None:
    plan = compile_query(
        "SELECT src AS a, dst AS b, srcPort, destPort, proto, tos, count(*) [RANGE 1 m, SLIDE 1 m, WA ts] "
        "FROM A UNION B GROUP BY srcIP, destIP, srcPort, destPort, proto, tos "
        "PUNCTUATE ON proto, src, sport, dst, dport LINGER 500 ms"
    )
    for node in plan.stage.nodes:
        assert node.closing is not None
        assert (node.closing.fields, node.closing.linger_ns) == (TUPLE, NS // 2)
    assert "its own FIN or RST" in render(plan)


def test_a_join_is_told_of_what_its_windows_hold() -> None:
    plan = compile_query(
        "SELECT A.ts, B.ts AS b FROM A [RANGE 30 s, WA ts], B [RANGE 1 minute, WA ts] WHERE A.conn = B.conn "
        "PUNCTUATE ON conn"
    )
    join = plan.steps[0].plan
    assert isinstance(join, Join)
    assert join.punctuated is not None
    assert (join.punctuated.promising, join.punctuated.asked) == ((0, 1), False)
    assert "PWJoin: a row is kept until its window has passed" in render(plan)
    for node in plan.stage.nodes:
        assert node.closing is not None
        assert node.closing.until(7 * NS) == 69 * NS, "its windows, and the time until the promise"


def test_other_columns_may_have_to_be_equal_too() -> None:
    text = "SELECT A.ts, B.ts AS b FROM A [RANGE 9 s], B [RANGE 9 s] WHERE A.len = B.len AND A.conn = B.conn"
    join = compile_query(f"{text} PUNCTUATE ON conn").steps[0].plan
    assert isinstance(join, Join)
    assert join.punctuated is not None
    assert join.punctuated.promising == (0, 1)
    for port in (0, 1):
        assert {*join.keys(port)} - {*join.promised_keys[port]} == {"len"}


def test_explain_says_why_sliding_windows_are_put_together_from_panes() -> None:
    text = GROUPED.replace("SLIDE 10", "SLIDE 1")
    said = {clause: render(compile_query(text + clause)) for clause in ("", "PUNCTUATE ON conn")}
    assert "merges (eq. 6.1), wid" in said["PUNCTUATE ON conn"]
    assert "as only panes let groups leave before their window ends" in said["PUNCTUATE ON conn"]
    assert "merges (eq. 6.2), wid" in said[""]


def test_a_hint_has_the_last_word() -> None:
    text = "SELECT /*+ algorithm(oa) */ A.ts, B.ts AS b FROM A [RANGE 9 s], B [RANGE 9 s] WHERE A.conn = B.conn"
    join = compile_query(f"{text} PUNCTUATE ON conn").steps[0].plan
    assert isinstance(join, Join)
    assert join.punctuated is None


def test_shared_nodes_promise_under_their_own_names() -> None:
    asked = "SELECT conn, {} [RANGE 1 m, SLIDE 1 m, WA ts] FROM Main GROUP BY conn PUNCTUATE ON conn"
    plans = [compile_query(asked.format(what), name=what[:3]) for what in ("count(*)", "max(len)")]
    one, other = share(plans)
    assert one.stage == other.stage
    (node,) = one.stage.nodes
    assert node.closing is not None
    assert {*node.closing.columns} <= {key.name for key in node.reduction.keys}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{GROUPED} PUNCTUATE ON srcIP", "all five fields"),
        (f"{GROUPED} PUNCTUATE ON conn, srcIP", "all five fields"),
        (f"{GROUPED} PUNCTUATE ON len", "names a connection, or one direction of it"),
        (f"{GROUPED} PUNCTUATE ON Main.conn", "names a connection, or one direction of it"),
        (f"{GROUPED} PUNCTUATE ON src, dst, sport, dport, proto", "nothing here is grouped by srcIP, srcPort, destIP"),
        ("SELECT srcIP, count(*) [RANGE 1 m, WA ts] FROM M GROUP BY srcIP PUNCTUATE ON conn", "grouped by conn"),
        ("SELECT conn, count(*) [RANGE 1 m, SLIDE 2 m, WA ts] FROM M GROUP BY conn PUNCTUATE ON conn", "RANGE is at"),
        (
            "SELECT conn, count(*) AS n [RANGE 1 m, WA ts] FROM M GROUP BY conn ORDER BY n LIMIT 3 PUNCTUATE ON conn",
            "without ORDER BY",
        ),
        ("SELECT DISTINCT conn.aIP, count(*) [RANGE 1 m, WA ts] FROM M GROUP BY conn PUNCTUATE ON conn", "DISTINCT"),
        ("SELECT conn, count(*) [RANGE 9 rows, WA row_num] FROM M GROUP BY conn PUNCTUATE ON conn", "in windows of ts"),
        (f"CREATE STREAM s AS {GROUPED} PUNCTUATE ON conn; SELECT * FROM s", "ends a query"),
        (f"SELECT n FROM ({GROUPED} PUNCTUATE ON conn) x", "ends a query"),
        (
            "SELECT A.conn FROM A [RANGE 1 m], B [RANGE 1 m] WHERE A.srcIP = B.srcIP PUNCTUATE ON conn",
            "these fields must be equal",
        ),
        (f"{GROUPED} PUNCTUATE ON conn LIMIT 3", "LIMIT cannot stand here"),
        (f"{GROUPED} PUNCTUATE conn", "conn cannot stand here"),
        (f"{GROUPED} PUNCTUAT ON conn", "did you mean PUNCTUATE"),
    ],
)
def test_it_is_refused_where_nobody_could_use_it(text: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(text)
    assert said in str(caught.value) or said in caught.value.render()


def test_its_words_are_names_elsewhere() -> None:
    plan = compile_query("SELECT len AS punctuate, ts AS linger FROM Main AS punctuate")
    assert plan.output.names == ("punctuate", "linger")


@pytest.mark.parametrize("strategy", [Strategy.WID, Strategy.ADAPT])
def test_a_strategy_that_holds_groups_until_their_window_ends_is_refused(strategy: Strategy) -> None:
    asked = f"{GROUPED} PUNCTUATE ON conn"
    for text, option in ((asked, strategy), (f"SELECT /*+ strategy({strategy.value}) */ {asked[7:]}", Strategy.AUTO)):
        with pytest.raises(QueryError, match="PUNCTUATE ON emits them earlier"):
            compile_query(text, strategy=option)
    first = compile_query(asked, strategy=Strategy.PANED).steps[0].plan
    assert isinstance(first, Aggregate)
    assert first.strategy is Strategy.PANED
