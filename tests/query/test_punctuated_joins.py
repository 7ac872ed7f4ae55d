"""algorithm(punctuated): where a hint may ask for it, and what explain says of it."""

from __future__ import annotations

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.fingerprint import share_names, step_digests
from lowmark.query.plan.nodes import Join, QueryPlan

PAIR = "A [RANGE 3 s], B [RANGE 5 s] WHERE A.srcIP = B.destIP"
TEXT = "SELECT {} A.ts, B.len FROM " + PAIR


def join_of(plan: QueryPlan) -> Join:
    (found,) = [step.plan for step in plan.steps if isinstance(step.plan, Join)]
    return found


def test_a_hint_asks_for_it() -> None:
    usual, asked = (compile_query(TEXT.format(hint)) for hint in ("", "/*+ algorithm(punctuated) */"))
    assert join_of(usual).punctuated is None
    choice = join_of(asked).punctuated
    assert choice is not None
    assert choice.asked
    assert usual.stage.fingerprint == asked.stage.fingerprint
    assert step_digests(usual)[0] != step_digests(asked)[0]  # its state has another form
    assert share_names(asked)[0] is None


def test_explain_says_so_and_how_long_rows_are_kept() -> None:
    said = " ".join(render(compile_query(TEXT.format("/*+ algorithm(punctuated) */"))).split())
    assert "PWJoin" in said
    assert "the query asks for it, and no capture promises values (PUNCTUATE ON)" in said
    assert "a row of A until the others are 3 s past it, or B promises that its values do not come again" in said


def test_explain_says_why_another_one_runs() -> None:
    text = "SELECT {} A.len, B.len FROM A [RANGE 3 s], B [RANGE 3 s] WHERE A.conn = B.conn PUNCTUATE ON conn"
    said = [" ".join(render(compile_query(text.format(hint))).split()) for hint in ("", "/*+ algorithm(oa) */")]
    assert "A and B promise values of what must be equal" in said[0]
    assert "OA-Join: a row meets the rows that came before it; the query asks for it" in said[1]
    assert "no promises of values that must be equal" in render(compile_query(TEXT.format("")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A [RANGE 3 s], B [RANGE 3 s], C [RANGE 3 s] WHERE A.srcIP = B.srcIP", "inner joins of two inputs"),
        ("A LEFT JOIN B ON A.ts = B.ts", "outer, semi and anti joins have one algorithm"),
        ("A, B WHERE A.ts = B.ts", "inner joins of two inputs with windows"),
        ("A [RANGE 3 s], B [RANGE 3 s] WHERE A.len < B.len", "an equality"),
        (f"{PAIR} ORDER BY ts", "emits its rows in order of time"),
        ("A", "it applies to inner joins"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        compile_query(f"SELECT /*+ algorithm(punctuated) */ A.len FROM {text}")


def test_it_shares_nothing() -> None:
    with pytest.raises(QueryError, match="are not shared"):
        compile_query(TEXT.format("/*+ algorithm(punctuated) schedule(mqt) */"))
