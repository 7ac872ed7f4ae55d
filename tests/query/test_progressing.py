"""The laws of progress: what is said of an expression holds of its values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op
from lowmark.query.windows.progressing import Progress, progress
from lowmark.wire.rows.schema import Kind

steps = st.one_of(
    st.tuples(st.just(Op.ADD), st.integers(-1000, 1000)),
    st.tuples(st.just(Op.SUB), st.integers(-1000, 1000)),
    st.tuples(st.just(Op.MUL), st.integers(1, 12)),
    st.tuples(st.just(Op.FLOOR_DIV), st.integers(1, 60)),
    st.tuples(st.just(Op.SHIFT_RIGHT), st.integers(0, 5)),
)


def expression(chain: list[tuple[Op, int]]) -> Expr:
    expr: Expr = Field("ts", Kind.TIME)
    for op, constant in chain:
        expr = Call(op, (expr, Literal(constant, Kind.INT)), Kind.INT, False)
    return expr


def value(chain: list[tuple[Op, int]], at: int) -> int:
    for op, constant in chain:
        at = {
            Op.ADD: at + constant, Op.SUB: at - constant, Op.MUL: at * constant,
            Op.FLOOR_DIV: at // constant if constant else 0, Op.SHIFT_RIGHT: at >> max(0, constant),
        }[op]  # fmt: skip
    return at


def found(chain: list[tuple[Op, int]]) -> Progress:
    way = progress(expression(chain), ("ts",))
    assert way is not None
    return way


@given(st.lists(steps, max_size=5), st.integers(-(10**6), 10**6))
def test_value(chain: list[tuple[Op, int]], at: int) -> None:
    assert found(chain).value(at) == value(chain, at)


@given(st.lists(steps, max_size=5), st.integers(1, 100), st.integers(-(10**6), 10**6))
def test_a_pane_is_a_length_of_the_expression(chain: list[tuple[Op, int]], length: int, at: int) -> None:
    assert found(chain).pane(length).index(at) == value(chain, at) // length


@given(st.lists(steps, max_size=5), st.integers(1, 100), st.integers(-(10**6), 10**6))
def test_a_pane_starts_where_the_expression_reaches_it(chain: list[tuple[Op, int]], length: int, index: int) -> None:
    start = found(chain).pane(length).start(index)
    assert value(chain, start - 1) // length < index <= value(chain, start) // length


@given(st.lists(steps, max_size=5), st.integers(1, 100), st.integers(-(10**6), 10**6))
def test_panes_are_no_nearer_than_their_gap(chain: list[tuple[Op, int]], length: int, at: int) -> None:
    pane = found(chain).pane(length)
    assert pane.index(pane.start(pane.index(at) + 1)) >= pane.index(at) + pane.gap


@given(st.lists(steps, max_size=5))
def test_the_step_has_panes_of_one_width(chain: list[tuple[Op, int]]) -> None:
    way = found(chain)
    assert not way.pane(way.step).steps


def test_what_does_not_progress() -> None:
    ts, length, two = Field("ts", Kind.TIME), Field("len", Kind.INT), Literal(2, Kind.INT)
    minus = Literal(-2, Kind.INT)
    calls = (
        (Op.MOD, ts, two), (Op.MUL, ts, minus), (Op.SUB, two, ts), (Op.NEG, ts), (Op.FLOOR_DIV, ts, minus),
        (Op.ADD, ts, ts), (Op.FLOOR_DIV, ts, length), (Op.ADD, length, two), (Op.FLOOR_DIV, two, ts),
    )  # fmt: skip
    for op, *args in calls:
        assert progress(Call(op, tuple(args), Kind.INT, False), ("ts",)) is None
