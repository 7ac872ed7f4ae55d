"""Which strategy a plan takes, and that its costs are the merges that the operators make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.windows.strategy_costs import WINDOWS
from highlevel.groups import group_table as groups
from highlevel.interface import Words
from highlevel.strategies import window_block
from lowmark.jit.native_code import Laid
from lowmark.query.compile import compile_query
from lowmark.query.expr.evaluate import Ints
from lowmark.query.optimize.stream_statistics import Expected
from lowmark.query.optimize.window_strategy import cheapest, panes_pay, weigh
from lowmark.query.options import Rates, Strategy
from lowmark.query.parse.errors import QueryError
from lowmark.query.plan.nodes import Aggregate, QueryPlan
from lowmark.query.windows.window import Window, WindowKind
from tests.operators.harness import AskedCall, Live, axis, plans
from tests.operators.test_strategies import COUNT, Stream


def aggregates(plan: QueryPlan) -> list[Aggregate]:
    return [step.plan for step in plan.steps if isinstance(step.plan, Aggregate)]


def taken(window: str, rate: float | None, groups: int | None) -> Strategy:
    sql = f"SELECT srcIP, max(len) [{window}] FROM Main GROUP BY srcIP"
    expected = Expected.of({} if rate is None else {"Main": rate}, {}, groups)
    (plan,) = aggregates(compile_query(sql, expected=expected))
    return plan.strategy


@pytest.mark.parametrize(
    ("window", "rate", "groups", "strategy"),
    [
        ("RANGE 1 minute", None, None, Strategy.PANED),
        ("RANGE 10 minutes, SLIDE 1 minute", None, None, Strategy.PANED),
        ("RANGE 9 minutes, SLIDE 6 minutes", None, None, Strategy.PANED),
        ("RANGE 3 s, SLIDE 10 s", None, None, Strategy.PANED),
        ("RANGE 10 minutes, SLIDE 10 s", 1e6, 10**6, Strategy.ADAPT),
        ("RANGE 10 minutes, SLIDE 10 s", 1e6, 100, Strategy.PANED),
        ("RANGE 10 minutes, SLIDE 10 s", 1, 10**6, Strategy.PANED),
        ("RANGE ALL, SLIDE 10 s", 1e6, 10**6, Strategy.PANED),
    ],
)  # fmt: skip
def test_the_planner_takes_what_costs_least(
    window: str, rate: float | None, groups: int | None, strategy: Strategy
) -> None:
    assert taken(window, rate, groups) is strategy


@pytest.mark.parametrize("asked", [Strategy.WID, Strategy.PANED, Strategy.ADAPT])
def test_what_is_asked_for_is_taken_and_is_no_part_of_the_stage(asked: Strategy) -> None:
    sql = "SELECT srcIP, max(len) [RANGE 5 s, SLIDE 1 s] FROM Main GROUP BY srcIP"
    plan, plain = compile_query(sql, strategy=asked), compile_query(sql)
    assert [step.strategy for step in aggregates(plan)] == [asked]
    assert plan.stage == plain.stage
    assert plan.output == plain.output


@pytest.mark.parametrize("sql", [
    "SELECT count(*) [RANGE ALL, SLIDE 1 s] FROM Main",
    "SELECT ts, len FROM Main",
    "SELECT count(*) FROM Main GROUP BY ts/60 AS minute",
])  # fmt: skip
def test_a_strategy_is_refused_where_there_is_no_choice(sql: str) -> None:
    with pytest.raises(QueryError, match='strategy = "wid" is for sliding and tumbling windows'):
        compile_query(sql, strategy=Strategy.WID)


@pytest.mark.parametrize(("tuples", "groups"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_rates_that_cannot_be(tuples: float, groups: int) -> None:
    with pytest.raises(ValueError, match="not"):
        Rates(tuples=tuples, groups=groups)


GROUPS = 7


@pytest.mark.parametrize(("size", "slide", "call", "against"), [
    (3, 1, "count", "6.4"), (60, 1, "count", "6.4"), (12, 5, "count", "6.4"), (3, 2, "count", "6.3"),
    (2, 1, "max", "6.3"), (5, 1, "max", "6.3"), (12, 5, "max", "6.3"),
])  # fmt: skip
def test_panes_pay_from_where_they_cost_what_tuples_do(size: int, slide: int, call: str, against: str) -> None:
    """Li's comparison of 6.1 with 6.3 and of 6.2 with 6.4: the number of tuples a group and pane where both sides meet,
    whatever groups there are, and more tuples than that make panes the cheaper side."""
    window = Window(WindowKind.SLIDING, size, slide, axis(10**9))
    folds = plans((AskedCall(call, ("len",) if call == "max" else ()),), ("host",), window).aggregate.folds
    found = [panes_pay(window, folds, Rates(tuples=1e9, groups=groups)) for groups in (1, 1000)]
    (least, equation), (of_more, _) = (one or pytest.fail("panes pay nothing") for one in found)
    assert equation == against
    assert least == pytest.approx(of_more)
    merged = weigh(window, folds, Rates(tuples=1e9, groups=100))[0].cost  # of partials, one of each group a pane
    for more in (0.9, 1.0, 1.1):
        tuples = least * more * 100  # a pane
        with_panes = tuples * slide + merged
        over = tuples * size  # T
        without = over if against == "6.3" else 2 * slide * over / size
        assert (with_panes < without) == (more > 1) or with_panes == pytest.approx(without)


def test_panes_pay_nothing_where_a_tuple_is_in_one_window() -> None:
    for size, slide in ((1, 1), (1, 3)):
        assert panes_pay(Window(WindowKind.SLIDING, size, slide, axis(1)), (), Rates()) is None


@pytest.mark.parametrize(("size", "slide"), [*WINDOWS, (400, 1), (11, 10)])
def test_panes_cost_less_than_windows_wherever_it_was_measured(size: int, slide: int) -> None:
    """And WID costs the more where state is stored: what windows overlap in is written once a window."""
    window = Window(WindowKind.SLIDING, size, slide, axis(1))
    for call in (AskedCall("count"), AskedCall("max", ("len",))):
        plan = replace(plans((call,), ("host",), window).aggregate, window=window)
        assert cheapest(plan, Rates(stored=False)) is cheapest(plan, Rates()) is Strategy.PANED
        in_memory, stored = (weigh(window, plan.folds, Rates(stored=kept))[1].cost for kept in (False, True))
        assert in_memory < stored


@pytest.mark.parametrize("window", [
    Window(WindowKind.SLIDING, 6, 1, axis(1)),
    Window(WindowKind.SLIDING, 9, 3, axis(1)),
    Window(WindowKind.SLIDING, 8, 2, axis(1)),
    Window(WindowKind.SLIDING, 16, 5, axis(1)),  # in cells: 7 every 2
])  # fmt: skip
@pytest.mark.parametrize("strategy", [Strategy.WID, Strategy.PANED])
def test_costs_are_the_merges_that_are_made(
    window: Window, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eqs. 6.2 (with the panes of a slide) and 6.3: rows that are merged or taken out, a window, all groups in all
    panes."""
    merged = 0
    merge, spread = groups.merge_rows, window_block.spread_rows

    def counting(rows: Words, start: int, shift: int, subtract: bool, positions: Ints, used: int, laid: Laid,
                 merging: Laid) -> tuple[int, int, int]:  # fmt: skip
        nonlocal merged
        end, used, events = merge(rows, start, shift, subtract, positions, used, laid, merging)
        _, _, _, _, program, *_ = merging.arguments
        merged += end - start if len(program) else 0  # without folds a group is looked for, and nothing merged
        return end, used, events

    def counting_windows(rows: Words, start: int, shift: int, places: Ints, firsts: Ints, stops: Ints, base: int,
                         laid: Laid, merging: Laid) -> tuple[int, int]:  # fmt: skip
        nonlocal merged
        end, events = spread(rows, start, shift, places, firsts, stops, base, laid, merging)
        _, width = laid.arguments
        merged += int((np.minimum(stops - base, width) - np.maximum(firsts - base, 0))[start:end].sum())
        return end, events

    stream = Stream(strategy, window)
    stream.state = Live()  # stored parts of a pane are merged when they are read: that is no cost of a strategy
    hosts = range(1, GROUPS + 1)
    for _ in range(4 * window.size):
        stream.pane(hosts)
    monkeypatch.setattr(groups, "merge_rows", counting)
    monkeypatch.setattr(window_block, "spread_rows", counting_windows)
    windows = 5
    for _ in range(windows * window.slide):
        stream.pane(hosts)
    folds = plans(COUNT, ("host",), window).aggregate.folds
    costs = {item.strategy: item for item in weigh(window, folds, Rates(groups=GROUPS))}
    assert merged == windows * costs[strategy].merges


def test_aggregates_that_are_not_differential_share_blocks() -> None:
    window = Window(WindowKind.SLIDING, 60, 1, axis(1))
    rates = Rates()
    maximum = weigh(window, plans((AskedCall("max", ("len",)),), ("host",), window).aggregate.folds, rates)[0]
    count = weigh(window, plans((AskedCall("count"),), ("host",), window).aggregate.folds, rates)[0]
    assert (count.equation, maximum.equation) == ("6.2", "6.1, in blocks")
    assert count.cost < maximum.cost
