"""In which order inputs of a join are probed: by what is expected of them, or as the query asks."""

from __future__ import annotations

import re

import numpy as np
import pytest

from highlevel.join import JoinOperator
from highlevel.state import MemoryState
from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.optimize.join_order import ProbeCosts, choose
from lowmark.query.optimize.stream_statistics import UNKNOWN, Expected, UnknownInput
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.query.windows.join_bands import Bands
from tests.operators.harness import Sink

CHAIN = (
    "SELECT {} a.ts, b.len, c.len FROM M1 AS a [RANGE 3 minutes], M2 AS b [RANGE 2 minutes], M3 AS c [RANGE 1 minute] "
    "WHERE a.srcIP = b.destIP AND b.srcPort = c.destPort"
)


def plan(hint: str = "", expected: Expected = UNKNOWN) -> QueryPlan:
    return compile_query(CHAIN.format(hint), buckets=1, expected=expected)


def orders(of: QueryPlan) -> list[tuple[int, ...]]:
    return [probe.order for probe in join_of(of).probes]


def join_of(of: QueryPlan) -> Join:
    (found,) = [step.plan for step in of.steps if isinstance(step.plan, Join)]
    return found


def test_what_equalities_tie_comes_first_where_nothing_is_known() -> None:
    first, _, last = orders(plan())
    assert (first, last) == ((1, 2), (1, 0))


def test_the_fewer_a_row_finds_the_sooner_they_are_met() -> None:
    few = Expected.of({"a": 1e5, "b": 1e5, "c": 1}, {"b,c": 1e-6})
    assert orders(plan(expected=few))[1] == (2, 0)
    many = Expected.of({"a": 1, "b": 1e5, "c": 1e5}, {"b,c": 0.5})
    assert orders(plan(expected=many))[1] == (0, 2)


def test_of_many_inputs_one_order_is_found_without_weighing_all() -> None:
    count = 9
    costs = ProbeCosts(Bands((10**9,) * count, False), (None,) * count, (frozenset(range(count)),), {})
    assert choose(costs, [])[0].order == tuple(range(1, count))


def test_a_hint_forces_any_order() -> None:
    hinted = plan("/*+ probe(b, c, a) probe(C, A, B) */")
    assert orders(hinted) == [(1, 2), (2, 0), (0, 1)]
    assert [probe.hinted for probe in join_of(hinted).probes] == [False, True, True]


def test_neither_hints_nor_rates_change_a_stage_or_what_state_can_be_carried_on_with() -> None:
    plans = [plan(), plan("/*+ probe(b, c, a) */"), plan(expected=Expected.of({"a": 3}, {}))]
    assert len({(p.stage.fingerprint, repr(p.steps)) for p in plans}) == 1


OUTER = (
    "SELECT {} A.ts FROM A [RANGE 1 s] JOIN B [RANGE 1 s] ON A.srcIP = B.srcIP JOIN C [RANGE 1 s] ON A.srcIP = C.srcIP "
    "LEFT JOIN D [RANGE 1 s] ON A.len = D.len JOIN E [RANGE 1 s] ON A.len = E.len JOIN F [RANGE 1 s] ON E.len = F.len"
)


def test_a_hint_forces_the_order_of_the_inner_join_whose_inputs_it_names() -> None:
    """What has been joined before goes by the name of any of its inputs."""
    made = compile_query(OUTER.format("/*+ probe(F, d, E) probe(A, C, B) probe(B, A, C) */"))
    joins = [step.plan for step in made.steps if isinstance(step.plan, Join)]
    hinted = [[probe.order for probe in join.probes if probe.hinted] for join in joins]
    assert hinted == [
        [(2, 1), (0, 2)],
        [],
        [(0, 1)],
    ]


@pytest.mark.parametrize(
    ("hint", "message", "valid"),
    [
        ("probe(A, C)", "probe names every input of one inner join once", ("probe(A, B, C)", "probe(A, E, F)")),
        ("probe(A, B, F)", "probe names every input of one inner join once", ("probe(A, B, C)", "probe(A, E, F)")),
        ("probe(A, C, G)", "there is no input called G", tuple("ABCDEF")),
        ("probe(A.ts, B, C)", "probe names inputs, not fields", tuple("ABCDEF")),
    ],
)
def test_a_hint_that_fits_no_inner_join_is_told_which_there_are(hint: str, message: str, valid: tuple[str]) -> None:
    with pytest.raises(QueryError) as error:
        compile_query(OUTER.format(f"/*+ {hint} */"))
    assert (error.value.message, error.value.expected) == (message, valid)


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("/*+ prob(a, b, c) */", "there is no hint called prob"),
        ("/*+ probe(a, b, d) */", "there is no input called d"),
        ("/*+ probe(a, b) */", "probe names every input once"),
        ("/*+ probe(a, b, b) */", "probe names every input once"),
        ("/*+ probe(a, b, c) probe(a, c, b) */", "probe has already given the order for rows of a"),
        ("/*+ */", "*/ cannot stand here"),
        ("/*+ probe(a, b, c)", ". cannot stand here"),
    ],
)
def test_what_is_wrong_of_a_hint_is_said(hint: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        plan(hint)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT /*+ probe(A) */ ts FROM A", "probe has no effect here: FROM has one input"),
        (
            "SELECT /*+ probe(A, B) */ A.ts FROM A [RANGE 1 s] LEFT JOIN B [RANGE 1 s] ON A.len = B.len",
            "probe has no effect here: an outer, semi or anti join has two inputs, which meet in one order",
        ),
        (
            OUTER.format("/*+ probe(A, D, B) */").partition(" JOIN E")[0],
            "D is in no inner join; other joins have two inputs, which meet in one order",
        ),
        (
            "SELECT /*+ probe(A, B) */ ts FROM A [RANGE 1 s] WHERE EXISTS (SELECT ts FROM B [RANGE 1 s])",
            "probe has no effect here: EXISTS tests run in their order in WHERE",
        ),
        ("SELECT ts FROM /*+ probe(A) */ A", "a hint cannot stand here"),
        ("/*+ probe(A) */ SELECT ts FROM A", "a hint cannot stand here"),
        (
            "SELECT ts FROM A [RANGE 1 s] WHERE EXISTS (SELECT /*+ probe(B) */ ts FROM B [RANGE 1 s])",
            "a hint cannot stand in EXISTS",
        ),
    ],
)
def test_where_a_hint_has_no_place(sql: str, message: str) -> None:
    with pytest.raises(QueryError, match=re.escape(message)):
        compile_query(sql)


def test_what_is_expected_must_be_of_an_input() -> None:
    with pytest.raises(UnknownInput, match="no input or stream called X in this query; there are a, M1, b, M2, c, M3"):
        plan(expected=Expected.of({"X": 1}, {}))
    for rates, shares, message in (
        ({"a": 0.0}, {}, "the rate of a is 0"),
        ({"a": float("inf")}, {}, "the rate of a is inf"),
        ({"a": float("nan")}, {}, "the rate of a is nan"),
        ({}, {"a": 0.1}, "'a' is no pair of inputs"),
        ({}, {"a,b": 2.0}, "the selectivity of a,b is 2"),
    ):
        with pytest.raises(ValueError, match=message):
            Expected.of(rates, shares)


def test_explain_tells_the_choice_and_the_memory() -> None:
    text = render(plan("/*+ probe(b, c, a) */", Expected.of({"a": 1e5, "M2": 100, "M3": 50}, {})))
    assert "a row of b meets c then a (" in text
    assert "; the query asks for this order)" in text
    assert "up to " in text
    assert "a 100,000 rows/s" in text
    assert re.search(r"about [\d.]+ GiB for the rows of a \(18,100,000 of them\)", text)
    assert "in all buckets together" in text
    assert "unknown without rates: give `--rate` of each input" in render(plan())
    for rate in (1e-12, 1e12):
        assert "for the rows of a (" in render(plan(expected=Expected.of({"a": rate}, {})))


def test_the_rate_of_what_was_joined_before_follows_from_its_inputs() -> None:
    sql = "SELECT A.ts FROM A [RANGE 1 s] JOIN B [RANGE 2 s] ON A.len = B.len LEFT JOIN D [RANGE 1 s] ON D.len = A.len"
    text = render(compile_query(sql, expected=Expected.of({"A": 1e3, "B": 500, "D": 10}, {"A,B": 0.01})))
    assert "(A, B) 15,000 rows/s, estimated from its inputs" in text
    assert re.search(r"about [\d.]+ MiB for the rows of \(A, B\) \(30,000 of them\)", text)
    assert text.count("in all buckets together") == 2
    lacking = render(compile_query(sql, expected=Expected.of({"A": 1000, "D": 10}, {})))
    assert lacking.count("the total depends on the rates of B, which are unknown") == 2


def test_many_joins_behind_one_another_are_estimated_at_once() -> None:
    joins = "".join(f" LEFT JOIN S{n} [RANGE 1 s] ON A.len = S{n}.len" for n in range(25))
    text = render(compile_query(f"SELECT A.ts FROM A [RANGE 1 s]{joins}", expected=Expected.of({"A": 1}, {})))
    assert "depends on the rates of S0, S1, S2" in text


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("tumbling", [False, True])
def test_the_rate_of_a_join_of_two_is_that_of_its_rows(kind: JoinKind, tumbling: bool) -> None:
    """Of inputs that come evenly and agree by chance, counted by the definitions."""
    random = np.random.default_rng(3)
    seconds, rates, keys, sizes = 100, (40.0, 25.0), 100, (10**9, 10**9 if tumbling else 3 * 10**9)
    left, right = (np.sort(random.integers(0, seconds * 10**9, int(rate * seconds))) for rate in rates)
    same = random.integers(0, keys, len(left))[:, None] == random.integers(0, keys, len(right))[None, :]
    apart = right[None, :] - left[:, None]
    near = left[:, None] // 10**9 == right[None, :] // 10**9 if tumbling else (apart >= -sizes[1]) & (apart < sizes[0])
    met = same & near
    alone = [int((~met.any(axis=axis)).sum()) for axis in (1, 0)]
    rows = {
        JoinKind.INNER: met.sum(),
        JoinKind.LEFT: met.sum() + alone[0],
        JoinKind.RIGHT: met.sum() + alone[1],
        JoinKind.FULL: met.sum() + sum(alone),
        JoinKind.SEMI: len(left) - alone[0],
        JoinKind.ANTI: alone[0],
    }[kind]
    costs = ProbeCosts(Bands(sizes, tumbling), rates, (frozenset((0, 1)),), {(0, 1): 1 / keys})
    assert costs.rate(kind) == pytest.approx(rows / seconds, rel=0.1)


def test_the_expected_memory_is_that_of_the_operator() -> None:
    """Of two seconds of 20,000 rows each, within a factor of two."""
    sql = "SELECT a.ts, b.ts FROM A AS a [RANGE 1 s], B AS b [RANGE 1 s] WHERE a.srcIP = b.destIP"
    rate = 20_000
    made = compile_query(sql, buckets=1, expected=Expected.of({"a": rate, "b": rate}, {}))
    join, state = join_of(made), MemoryState()
    operator = JoinOperator(join)
    for half in (0, 1):
        for port, of in enumerate(join.inputs):
            rows = np.zeros((rate, of.schema.words), np.uint64)
            rows[:, of.schema.offset(of.attribute)] = half * 10**9 + np.arange(rate) * 10**9 // rate
            (key,) = join.keys(port)
            rows[:, of.schema.offset(key)] = np.arange(rate) + port * rate
            operator.on_batch(port, rows, state, Sink())
    told = re.findall(r"about ([\d.]+) MiB for the rows of [ab]", render(made))
    assert len(told) == 2
    for port, expected in enumerate(map(float, told)):
        space = operator.rows_of(port)
        kept = sum(piece.held for key in state.keys(space) if (piece := state.get(space, key)) is not None) / 2**20
        assert kept / 2 < expected < kept * 2
