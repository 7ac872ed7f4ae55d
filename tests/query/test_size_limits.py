"""Each limit on a query's size: what is just within is answered, in a moment; what is beyond is refused where it is, by
the limit's name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import kernel_source
from lowmark.query.compile import compile_query
from lowmark.query.explain.report import render
from lowmark.query.expr.evaluate import evaluate
from lowmark.query.expr.expressions import Call, Expr, Field, Op
from lowmark.query.expr.simplify import LONG, flatter, words
from lowmark.query.parse import size_limits
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.size_limits import LIMITS, Limit
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.rows.schema import Column, Kind, Schema

_MOMENT_S = 4.0
"""On the processor: a second, and what a busy machine and the tools that measure coverage make of it."""


def chained(times: int, first: str, step: str) -> str:
    """Streams s0, s1 … each made of the one before, {}."""
    stages = "".join(f"CREATE STREAM s{n + 1} AS {step.replace('{}', f's{n}')};\n" for n in range(times))
    return f"CREATE STREAM s0 AS {first};\n{stages}SELECT * FROM s{times}"


SELECTED = "SELECT ts, srcIP, len FROM A"
GROUPED = "SELECT srcIP, count(*) AS n [RANGE 1 s] FROM A GROUP BY srcIP"
SELF_JOIN = (
    "SELECT x.ts AS ts, x.srcIP AS srcIP, y.len AS len FROM {} AS x [RANGE 1 s], {} AS y [RANGE 1 s] "
    "WHERE x.srcIP = y.srcIP"
)
AGAIN = "SELECT srcIP, sum(n) AS n [RANGE 1 s, WA window_start] FROM {} GROUP BY srcIP"

TWICE = f"({AGAIN.replace('{}', f'({GROUPED})')})"

SIZES: dict[Limit, tuple[Callable[[int], str], int, int]] = {
    # a text of a size; the greatest that is answered, and one that is not
    size_limits.CHARACTERS: (lambda n: f"SELECT ts FROM A --{'x' * n}", 7_000_000, 8_000_000),
    size_limits.WORDS: (lambda n: f"SELECT {' + '.join(['len'] * n)} AS v FROM A", 4_998, 4_999),
    size_limits.ENTRIES: (
        lambda n: f"SELECT ts FROM A WHERE len IN ({', '.join(map(str, range(n)))})",
        90_000,
        250_001,
    ),
    size_limits.DIGITS: (lambda n: f"SELECT {'0' * (n - 1)}1 AS v FROM A", 100, 101),
    size_limits.NESTING: (lambda n: f"SELECT {'- ' * n}len AS v FROM A", 94, 100),
    size_limits.INPUTS: (
        lambda n: f"SELECT i0.ts FROM {', '.join(f'A AS i{i} [RANGE 1 s]' for i in range(n))} "
        f"WHERE {' AND '.join(f'i{i}.srcIP = i0.srcIP' for i in range(1, n))}",
        32, 33,
    ),
    size_limits.MEMBERS: (lambda n: chained(n, GROUPED, "SELECT * FROM {} UNION {}"), 7, 8),
    size_limits.COLUMNS: (lambda n: f"SELECT {', '.join(f'len + {i} AS c{i}' for i in range(n))} FROM A", 60, 61),
    size_limits.ROW: (
        lambda n: f"SELECT {', '.join(f'variance(len + {i}) AS v{i}' for i in range(n))} [RANGE 1 s] FROM A", 20, 21
    ),
    size_limits.OPERATIONS: (lambda n: chained(n, SELECTED, "SELECT ts, srcIP, len + len AS len FROM {}"), 13, 14),
    size_limits.LEVELS: (lambda n: f"SELECT {' - '.join(['len'] * (n + 1))} AS v FROM A", 150, 151),
    size_limits.STAGES: (lambda n: chained(n - 1, GROUPED, AGAIN), 48, 49),
    size_limits.NODES: (lambda n: f"SELECT ts FROM {' UNION '.join(['A'] * n)}", 64, 65),
    size_limits.STEPS: (lambda n: f"SELECT * FROM {' UNION '.join([TWICE] * n)}", 72, 74),
}  # fmt: skip


def test_every_limit_is_tried() -> None:
    assert set(SIZES) == set(LIMITS)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_what_is_within_a_limit_is_answered_and_what_is_beyond_is_refused_by_its_name(limit: Limit) -> None:
    make, most, beyond = SIZES[limit]
    answered(make(most))
    with pytest.raises(QueryError, match=rf"the limit of {limit.name} is {limit.most:,}\b"):
        answered(make(beyond))


def answered(text: str) -> QueryPlan:
    """In a moment, down to the kernel's text and what `explain` prints."""
    begun = time.process_time()
    try:
        plan = compile_query(text)
    finally:
        assert time.process_time() - begun < _MOMENT_S * (3 if len(text) > 400_000 else 1)
    render(plan)
    kernel_source(plan.stage.nodes)
    return plan


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        (f"SELECT ts FROM A WHERE ttl = 1 AND {' + '.join(['len * 0.5'] * 200)} > 1", "len * 0.5 + len"),
        (
            (f"SELECT A.ts FROM A [RANGE 1 s] JOIN B [RANGE 1 s] ON A.srcIP = B.srcIP AND "
            f"{' OR '.join(f'(A.len = {n} AND A.len < B.len + {n})' for n in range(3000))}"),
            "",
        ),
        (
            (f"CREATE STREAM s AS SELECT x.ts AS ts FROM A AS x [RANGE 1 s], A AS y [RANGE 1 s]; "
            f"SELECT count(*) [RANGE 1 s] FROM s GROUP BY {', '.join(f'ts / {n}' for n in range(1, 80))}"),
            "SELECT count(*)",
        ),
        (f"SELECT ts, len FROM A ORDER BY ts, {', '.join(f'len + {n}' for n in range(70))}", "SELECT ts"),
        (f"SELECT ts FROM A; {chained(50, GROUPED, AGAIN)}".partition("; ")[2], "SELECT srcIP, sum(n)"),
    ],
)  # fmt: skip
def test_a_limit_marks_its_place(text: str, spot: str) -> None:
    with pytest.raises(QueryError, match="the limit of") as caught:
        compile_query(text)
    assert text[caught.value.span.start :].startswith(spot)
    assert "^" in caught.value.render()


def test_it_is_said_what_takes_the_columns() -> None:
    with pytest.raises(QueryError, match="73 columns of a group: 70 of keys, 1 of aggregates, 2 of the window"):
        compile_query(f"SELECT count(*) [RANGE 1 s] FROM A GROUP BY {', '.join(f'len + {n}' for n in range(70))}")
    with pytest.raises(QueryError, match="65 columns of a group: 63 of aggregates' states, 2 of the pane") as caught:
        compile_query(f"SELECT {', '.join(f'stddev(len + {n}) AS s{n}' for n in range(21))} [RANGE 1 s] FROM A")
    assert caught.value.hint is not None
    assert "stddev_len_0 alone takes 3" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        chained(47, SELECTED, SELF_JOIN),
        chained(47, GROUPED, AGAIN),
        chained(30, GROUPED, AGAIN.replace("FROM {}", "FROM {} UNION {}")),
        chained(700, SELECTED, "SELECT ts, srcIP, len FROM {}"),
        f"SELECT {'prefix(' * 90}srcIP{', 24)' * 90} AS p FROM A",
        f"SELECT count(*) + {' + '.join(['len / 2'] * 1000)} AS v [RANGE 1 s] FROM A GROUP BY len / 2",
    ],
    ids=lambda text: text[:60],
)
def test_planning_takes_a_moment_however_often_one_thing_is_read(text: str) -> None:
    answered(text)


@pytest.mark.parametrize(
    "text",
    [
        chained(60, SELECTED, "SELECT * FROM {} UNION {}"),
        chained(90, SELECTED, "SELECT ts, srcIP, len * len AS len FROM {}"),
        chained(90, SELECTED, SELF_JOIN),
        f"SELECT ts FROM A WHERE {'(' * 90}len BETWEEN 1 AND 5{') BETWEEN false AND true' * 90}",
    ],
    ids=lambda text: text[:60],
)
def test_what_grows_by_itself_is_refused_in_a_moment(text: str) -> None:
    with pytest.raises(QueryError, match="the limit of"):
        answered(text)


def test_an_expression_is_the_same_in_another_process() -> None:
    """There it has another hash: one that is kept must not go along."""
    expr = words(
        Op.ADD, Kind.INT, words(Op.MUL, Kind.INT, Field("a", Kind.INT), Field("b", Kind.INT)), Field("c", Kind.INT)
    )
    script = (
        "import pickle, sys; expr = pickle.load(sys.stdin.buffer); "
        "print(hash(expr) == hash(type(expr)(expr.op, expr.args, expr.kind, expr.nullable)))"
    )
    found = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(expr), capture_output=True, check=True)
    assert found.stdout == b"True\n"


# Long sums

SCHEMA = Schema(tuple(Column(name, Kind.INT) for name in "abc"))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from((Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR)),
    st.lists(st.sampled_from("abc"), min_size=2, max_size=300),
    st.integers(0, 2**32),
)
def test_a_flatter_sum_is_the_same(op: Op, names: list[str], seed: int) -> None:
    rows = np.random.default_rng(seed).integers(-(2**63), 2**63, (5, 4), np.int64).view(np.uint64)
    rows[:, 0] = 0
    expr: Expr = Field(names[0], Kind.INT)
    value = evaluate(expr, rows, SCHEMA).data
    for number, name in enumerate(names[1:], 1):
        term = Field(name, Kind.INT)
        made = words(op, Kind.INT, expr, term)
        expr = made if number % LONG else flatter(made)
        value = evaluate(
            Call(op, (Field("a", Kind.INT), Field("b", Kind.INT)), Kind.INT, False), beside(value, term, rows), SCHEMA
        ).data
    assert np.array_equal(evaluate(expr, rows, SCHEMA).data, value)
    assert isinstance(expr, Call)
    assert expr.levels < LONG + LONG // 2 + 10


def beside(
    value: np.typing.NDArray[np.int64], term: Field, rows: np.typing.NDArray[np.uint64]
) -> np.typing.NDArray[np.uint64]:
    """Rows with a value as a, and a term as b."""
    pairs = np.zeros_like(rows)
    pairs[:, 1] = value.view(np.uint64)
    pairs[:, 2] = evaluate(term, rows, SCHEMA).data.view(np.uint64)
    return pairs


def test_what_a_long_sum_is_called_does_not_change_below_a_certain_length() -> None:
    """Stages are named after their expressions."""
    short = compile_query(f"SELECT sum({' + '.join(['len'] * LONG)}) [RANGE 1 s] FROM A")
    (fold,) = short.stage.nodes[0].reduction.folds
    (expr,) = {lift for lift in fold.lift if isinstance(lift, Call) and lift.op is Op.ADD} or {fold.lift[0]}
    for _ in range(LONG - 1):
        assert isinstance(expr, Call)
        expr, term = expr.args
        assert isinstance(term, Field)
    assert isinstance(expr, Field)
