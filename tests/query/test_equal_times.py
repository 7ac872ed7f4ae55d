"""Joins without windows: which equalities of times take their place, and what the planner makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.bind.join.equal_times import equal_times
from lowmark.query.bind.relations import packets
from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.expr.expressions import Call, Expr, Field, Literal
from lowmark.query.optimize.stream_statistics import Expected, UnknownInput
from lowmark.query.options import Buffering, Joins, Memory
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.parser import parse
from lowmark.query.plan.joins import Join, Oblivious
from lowmark.query.plan.shared_joins import shares

NS = 10**9


def joins(text: str) -> list[Join]:
    return [step.plan for step in compile_query(text).steps if isinstance(step.plan, Join)]


def shown(expr: Expr) -> tuple[str, int]:
    """A column, and by how much it is moved."""
    if isinstance(expr, Field):
        return expr.name, 0
    assert isinstance(expr, Call)
    column, by = expr.args
    assert isinstance(column, Field)
    assert isinstance(by, Literal)
    assert isinstance(by.value, int)
    return column.name, by.value


@pytest.mark.parametrize(
    ("where", "size", "moved"),
    [
        ("A.ts = B.ts", 1, (0, 0)),
        ("B.ts = A.ts AND A.len > 3", 1, (0, 0)),
        ("A.ts = B.ts - 5 seconds", 1, (0, -5 * NS)),
        ("A.ts/60 = B.ts/60", 60 * NS, (0, 0)),
        ("(A.ts + 3 seconds)/60 = B.ts/60", 60 * NS, (3 * NS, 0)),
        ("A.ts/60 + 2 = B.ts/60", 60 * NS, (120 * NS, 0)),
        ("A.ts/60 * 60 = B.ts/60 * 60", 60 * NS, (0, 0)),
        ("A.ts/1 >> 3 = B.ts/8", 8 * NS, (0, 0)),
        ("A.ts/10 ms = B.ts/10 ms", 10**7, (0, 0)),
        ("(A.ts/1 * 3 + 1)/6 = B.ts/2", 2 * NS, (0, 0)),
        ("A.ts/60 = B.ts/60 AND A.ts = B.ts", 1, (0, 0)),
    ],
)
def test_an_equality_of_times_is_a_tumbling_window(where: str, size: int, moved: tuple[int, ...]) -> None:
    (join,) = joins(f"SELECT A.len, B.len FROM A, B WHERE {where}")
    assert join.windowless
    assert join.oblivious is not None
    assert join.tumbling
    assert [port.size for port in join.inputs] == [size, size]
    select = parse(f"SELECT A.len FROM A, B WHERE {where}").statements[0]
    assert isinstance(select, s.Select)
    assert select.where is not None
    found = equal_times(("A", "B"), [packets(("A",), 1), packets(("B",), 1)], [(select.where, None)], where, ())
    assert found is not None
    assert tuple(map(shown, found.times)) == tuple(("ts", by) for by in moved)


@pytest.mark.parametrize(
    "source",
    [
        "A, B, C WHERE A.ts = B.ts AND B.ts = C.ts",
        "A, B, C WHERE A.ts = C.ts AND C.ts = B.ts AND A.len = B.len",
        "A JOIN B ON A.ts = B.ts JOIN C ON A.ts/60 = C.ts/60",
        "A LEFT JOIN B ON A.ts = B.ts LEFT JOIN C ON A.ts = C.ts",
        "A LEFT JOIN B ON A.ts = B.ts, C WHERE B.ts = C.ts",
        "A FULL JOIN B ON A.ts = B.ts FULL JOIN C ON B.ts = C.ts",
        "A JOIN B ON A.srcIP = B.srcIP LEFT JOIN C ON B.len = C.len WHERE A.ts = C.ts AND B.ts = C.ts",
        "(SELECT A.ts AS t, B.len AS len FROM A, B WHERE A.ts = B.ts) AS A, C AS B, D WHERE A.t = B.ts AND B.ts = D.ts",
    ],
)
def test_one_equality_ties_all_inputs(source: str) -> None:
    assert all(join.windowless for join in joins(f"SELECT A.len, B.len FROM {source}"))


@pytest.mark.parametrize(
    "source",
    [
        "A, B WHERE A.len = B.len",
        "A, B WHERE A.ts < B.ts",
        "A, B WHERE A.ts = B.ts OR A.len = 3",
        "A, B WHERE A.ts % 60 = B.ts % 60",
        "A, B WHERE A.ts/60 = B.ts/30",
        "A, B WHERE A.ts/1 * 2 = B.ts/1 * 2 + 1",
        "A, B, C WHERE A.ts = B.ts",
        "A [RANGE 1 s], B WHERE A.ts = B.ts",
        # Rows of A and B of different times meet: they have no match in C.
        "A JOIN B ON A.len = B.len LEFT JOIN C ON A.ts = C.ts AND B.ts = C.ts",
        "A JOIN B ON A.len = B.len LEFT JOIN C ON A.ts = C.ts AND A.ts = B.ts",
    ],
)
def test_without_one_a_join_would_wait_for_ever(source: str) -> None:
    with pytest.raises(QueryError, match="this join would wait for ever"):
        joins(f"SELECT A.len, B.len FROM {source}")


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("+"), st.integers(-90, 90)),
        st.tuples(st.just("*"), st.integers(1, 6)),
        st.tuples(st.just("/"), st.integers(1, 6)),
    ),
    max_size=3,
)


def value(seconds: int, steps: list[tuple[str, int]]) -> int:
    for op, by in steps:
        seconds = seconds + by if op == "+" else seconds * by if op == "*" else seconds // by
    return seconds


def written(name: str, steps: list[tuple[str, int]]) -> str:
    text = f"{name}.ts/1"
    for op, by in steps:
        text = f"({text} {op} ({by}))"
    return text


@given(_STEPS, _STEPS, st.lists(st.tuples(st.integers(-200, 200), st.integers(-200, 200)), min_size=30))
def test_times_are_equal_only_inside_one_window(
    one: list[tuple[str, int]], other: list[tuple[str, int]], pairs: list[tuple[int, int]]
) -> None:  # fmt: skip
    """Also the other way round: whoever lies in one window has equal times."""
    text = f"{written('A', one)} = {written('B', other)}"
    select = parse(f"SELECT A.len FROM A, B WHERE {text}").statements[0]
    assert isinstance(select, s.Select)
    assert select.where is not None
    found = equal_times(("A", "B"), [packets(("A",), 1), packets(("B",), 1)], [(select.where, None)], text, ())
    if found is None:
        return
    (_, mine), (_, theirs) = map(shown, found.times)
    for a, b in [*pairs, *((at, at) for at in range(-40, 40))]:
        together = (a * NS + mine) // found.size == (b * NS + theirs) // found.size
        assert together == (value(a, one) == value(b, other))


def test_a_hint_chooses_the_algorithm() -> None:
    text = "SELECT {} A.len, B.len FROM A {}, B {} WHERE A.ts = B.ts AND A.srcIP = B.srcIP"
    window = "[RANGE 3 s]"
    (chosen,) = joins(text.format("", "", ""))
    assert chosen.oblivious is not None
    assert not chosen.oblivious.asked
    (forbidden,) = joins(text.format("/*+ algorithm(oa) */", "", ""))
    assert forbidden.windowless
    assert forbidden.oblivious is None
    (usual,) = joins(text.format("", window, window))
    assert not usual.windowless
    assert usual.oblivious is None
    (forced,) = joins(text.format("/*+ algorithm(oblivious) */", window, window))
    assert forced.oblivious is not None
    assert forced.oblivious.asked
    assert [port.size for port in forced.inputs] == [1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A [RANGE 3 s], B [RANGE 3 s] WHERE A.srcIP = B.srcIP", "needs an equality of the times"),
        ("A [RANGE 3 s], B [RANGE 3 s] WHERE A.ts/60 = B.ts/60", "needs an equality of the times"),
        ("A [RANGE 3 s], B [RANGE 3 s] WHERE A.ts + 1 second = B.ts", "needs an equality of the times"),
        ("A LEFT JOIN B ON A.ts = B.ts", "outer, semi and anti joins have one algorithm"),
        ("A", "it applies to inner joins"),
        ("A, B WHERE A.ts = B.ts ORDER BY ts", "a join with ORDER BY ts"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        compile_query(f"SELECT /*+ algorithm(oblivious) */ A.len FROM {text}")


def test_an_unknown_algorithm_is_refused_with_those_there_are() -> None:
    with pytest.raises(QueryError) as refused:
        compile_query("SELECT /*+ algorithm(hash) */ A.len FROM A, B WHERE A.ts = B.ts")
    assert {"oa", "oblivious"} <= {*refused.value.expected}


def test_explain_says_what_runs_and_why() -> None:
    text = "SELECT {} A.len, B.len FROM A, B WHERE A.ts = B.ts"
    said = render(compile_query(text.format("")))
    assert "window-oblivious join" in said
    assert "no input has a window" in said
    assert "none: A.ts = B.ts" in said
    assert "a row of A until the others have passed its time" in said
    assert "the query asks for it" in render(compile_query(text.format("/*+ algorithm(oblivious) */")))
    oa = "OA-Join: a row meets the rows that came before it; "
    assert f"{oa}the query asks for it" in render(compile_query(text.format("/*+ algorithm(oa) */")))
    windows = "SELECT A.len, B.len FROM A [RANGE 3 s], B [RANGE 3 s] WHERE A.ts = B.ts"
    assert f"{oa}the query needs no order of time, and its inputs have windows" in render(compile_query(windows))
    outer = "SELECT A.len, B.len FROM A LEFT JOIN B ON A.ts = B.ts"
    assert f"{oa}other algorithms are for inner joins" in render(compile_query(outer))
    model = render(compile_query(text.format("/*+ memory(model) */")))
    assert "a row of A until it is not among the last rows that the model predicts, at the latest until" in model


def test_the_time_also_chooses_the_bucket() -> None:
    plan = compile_query("SELECT A.len, B.len FROM A, B WHERE A.ts = B.ts", buckets=8)
    assert plan.stage.buckets == 8
    assert [node.bucket_by for node in plan.stage.nodes] == [("ts",)] * len(plan.stage.nodes)


def test_joins_without_windows_share_nothing() -> None:
    text = "SELECT A.len, B.len FROM A, B WHERE A.ts{0} = B.ts{0}"
    plans = [compile_query(text.format(size), name=f"q{size}") for size in ("/60", "/10")]
    assert shares(plans) == ()
    with pytest.raises(QueryError, match="schedule has no effect here"):
        compile_query("SELECT /*+ schedule(lwo) */ A.len FROM A, B WHERE A.ts = B.ts")


def test_options_say_how_memory_is_used_and_a_hint_goes_before_them() -> None:
    options = Joins(memory=Memory.MODEL, buffer=Buffering.SORT, limit_mib=2, disk_mib=3, scrambling={"b": 40})
    text = "SELECT {} A.len, B.len FROM A, B WHERE A.ts = B.ts"

    def chosen(hints: str) -> Oblivious | None:
        plans = [step.plan for step in compile_query(text.format(hints), joins=options).steps]
        return next(plan.oblivious for plan in plans if isinstance(plan, Join))

    plain, hinted = chosen(""), chosen("/*+ memory(frontier) buffer(disk) */")
    assert plain == Oblivious(Memory.MODEL, (None, 40), Buffering.SORT, bound=2 << 20, disk=3 << 20)
    assert hinted is not None
    assert (hinted.memory, hinted.buffer) == (Memory.FRONTIER, Buffering.DISK)
    compile_query(text.format("/*+ memory(model) */"), joins=Joins(memory=Memory.MODEL))  # both say the same


def test_options_for_joins_that_are_not_there_are_refused() -> None:
    with pytest.raises(QueryError, match="memory, limit_mib of `join` is for inner joins without windows"):
        compile_query("SELECT len FROM A", joins=Joins(memory=Memory.MODEL, limit_mib=1))
    with pytest.raises(QueryError, match="memory has no effect here"):
        compile_query("SELECT /*+ memory(model) */ A.len FROM A [RANGE 1 s], B [RANGE 1 s] WHERE A.len = B.len")
    with pytest.raises(UnknownInput, match="no input or stream called"):
        compile_query("SELECT A.len, B.len FROM A, B WHERE A.ts = B.ts", joins=Joins(scrambling={"C": 4}))
    with pytest.raises(ValueError, match="limit_mib is 0"):
        Joins(limit_mib=0)


def test_rows_are_expected_to_meet_some_of_their_granule() -> None:
    """Half a second of 1000 rows/s, of which the equality holds for a thousandth."""
    plan = compile_query("SELECT A.len FROM A, B WHERE A.ts = B.ts", expected=Expected.of({"A": 1000, "B": 1000}, {}))
    (join,) = (step.plan for step in plan.steps if isinstance(step.plan, Join))
    assert [probe.meets for probe in join.probes] == [(0.5,), (0.5,)]


def test_explain_predicts_the_rows() -> None:
    """Equation 6: k of the input, and what comes of it while a row of the other is late."""
    text = "SELECT A.len, B.len FROM A, B WHERE A.ts = B.ts"
    expected = Expected.of({"A": 1000, "B": 500}, {})
    said = render(compile_query(text, expected=expected, joins=Joins(scrambling={"A": 50, "B": 20})))
    assert "90 rows of A" in said  # 50 + 1000 · 20 / 500
    assert "45 rows of B" in said  # 20 + 500 · 50 / 1000
    assert "--scrambling" in render(compile_query(text))
    model = render(compile_query(text.replace("SELECT", "SELECT /*+ memory(model) buffer(hybrid) */")))
    assert "a row dropped too early makes windows lossy" in model
    assert "then on disk" in model


def test_rates_that_are_far_apart_give_estimates() -> None:
    text, options = "SELECT A.len FROM A, B WHERE A.ts = B.ts", Joins(scrambling={"A": 9, "B": 9})
    said = render(compile_query(text, expected=Expected.of({"A": 1e-12, "B": 1e12}, {}), joins=options))
    assert "predicted" in said
    with pytest.raises(ValueError, match="the rate of A is 1e-300 rows a second; it is from 1e-12 to 1e"):
        Expected.of({"A": 1e-300, "B": 1e12}, {})


def test_what_is_predicted_of_a_join_over_a_join_follows_from_its_inputs() -> None:
    """Theorem 3.1: rates add up, and scrambling. Then r_J k_C / r_C = 2000 · 5 / 10, r_C k_J / r_J = 10 · 30 / 2000."""
    text = "SELECT J.x FROM (SELECT A.ts AS t, A.len AS x FROM A, B WHERE A.ts = B.ts) AS J, C WHERE J.t = C.ts"
    expected = Expected.of({"A": 1000, "B": 1000, "C": 10}, {})
    given = {"A": 10, "B": 20, "C": 5}
    said = render(compile_query(text, expected=expected, joins=Joins(scrambling=given)))
    assert "30 rows of A, 30 rows of B" in said
    assert f"{30 + 1000:,} rows of J, {5 + 1} rows of C" in said
    unknown = render(compile_query(text, expected=expected, joins=Joins(scrambling={"A": 10, "C": 5})))
    assert unknown.count("give `--scrambling` and `--rate` of each input") == 2
