"""The measurements of the strategies at a tiny size: answers agree, and files are left."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from bench.baselines.buffering import BufferingOperator
from bench.shared import measure_shared
from bench.windows.disorder import BAND, BLOCKS, Case, measure_disorder
from bench.windows.execution import contenders, measure_execution
from bench.windows.panes import measure_panes
from bench.windows.skew import measure_skew
from bench.windows.strategy_costs import measure_costs
from bench.windows.strategy_states import measure_states
from bench.windows.unions import Q8_2, Q8_5, Union, measure_unions
from highlevel.limits import GroupLimit
from highlevel.operators.aggregate import AggregateOperator
from highlevel.operators.crowded_aggregate import CrowdedAggregateOperator
from highlevel.strategies.holding import PanedHolding
from highlevel.strategies.wid import WidHolding
from lowmark.query.plan.nodes import Aggregate


def columns(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    return {name: list(values) for name, values in zip(head, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize(
    ("slide", "chosen"), [(1, CrowdedAggregateOperator), (1000, CrowdedAggregateOperator), (4000, PanedHolding)]
)
def test_fig_6_10_measures_what_its_labels_say(slide: int, chosen: type) -> None:
    found = {}
    for label, (plan, builder) in contenders(slide).items():
        (step,) = (step.plan for step in plan.steps if isinstance(step.plan, Aggregate))
        operator = builder(step, GroupLimit(plan.name, plan.limits.groups))
        # The strategy of an operator that has several is that of what it holds.
        found[label] = type(operator._holding if isinstance(operator, AggregateOperator) else operator)
    del found["scan"]
    assert found == {"WID": WidHolding, "auto": chosen, "buffering": BufferingOperator}


def test_fig_6_10(tmp_path: Path) -> None:
    """The answers are compared in the run."""
    measure_execution(tmp_path, tuples=4_500, repeat=1, slides=(500, 4000))
    found = columns(tmp_path / "fig_6_10.csv")
    assert found["slide_rows"] == ["500", "4000"]
    assert (tmp_path / "fig_6_10.png").stat().st_size > 0


def test_fig_6_15(tmp_path: Path) -> None:
    measure_panes(tmp_path, groups=(2, 3), repeat=1, windows=(5,))
    found = columns(tmp_path / "fig_6_15.csv")
    assert set(found["groups"]) == {"2", "3"}
    assert set(found["panes_a_window"]) == {"5"}
    assert all(float(ratio) > 0 for ratio in found["paned_to_wid"])
    assert (tmp_path / "fig_6_15.png").stat().st_size > 0


def test_fig_6_19(tmp_path: Path) -> None:
    measure_skew(tmp_path, seconds=12, rate=150, repeat=1, skews=(1,))
    found = columns(tmp_path / "fig_6_19.csv")
    state = {
        (query, at, way): int(size)
        for query, at, way, size in zip(
            found["query"], found["at"], found["way"], found["most_state_bytes"], strict=True
        )
    }
    assert state["Q6-8", "1", "AdaptWID"] < state["Q6-8", "1", "eager"]
    assert state["Q6-8 on panes of 1 s", "1", "AdaptWID"] < state["Q6-8 on panes of 1 s", "1", "paned"]
    assert state["Q6-7", "DS5", "eager"] < state["Q6-7", "DS5", "lazy"]
    for query, panel in product(("q6_7", "q6_8", "panes"), ("", "_latency", "_time")):
        assert (tmp_path / f"fig_6_19_{query}{panel}.png").stat().st_size > 0


@pytest.mark.parametrize("case", [BAND, BLOCKS], ids=lambda case: case.name)
def test_figs_6_11_and_6_12(case: Case, tmp_path: Path) -> None:
    """As the paper states them: with more slack fewer errors and more latency; punctuations are right, and sooner than
    the least slack that is."""
    case = replace(case, slacks=(0, case.slacks[-2], case.slacks[-1]), rate=case.rate / 4)
    measure_disorder(tmp_path, case, length=case.size * 5 // 2)
    found = columns(tmp_path / f"{case.name}.csv")
    (error,) = (name for name in found if name.endswith("percent"))
    errors, latencies = ([float(value) for value in found[name]] for name in (error, "latency_s"))
    count = len(case.slacks)
    consistent, generous = slice(1, 1 + count), slice(1 + count, None)
    assert errors[0] == 0
    assert errors[consistent][-1] == errors[generous][-1] == 0
    assert latencies[0] < min(late for late, wrong in zip(latencies[1:], errors[1:], strict=True) if not wrong)
    assert latencies[consistent] == sorted(latencies[consistent])
    assert all(more >= less for more, less in zip(errors[consistent], errors[generous], strict=True))


def test_states(tmp_path: Path) -> None:
    measure_states(tmp_path, groups=30)
    found = columns(tmp_path / "states.csv")
    flood = {
        (panes, strategy): int(size)
        for panes, aggregate, traffic, strategy, size in zip(
            found["panes_a_window"], found["aggregate"], found["traffic"], found["strategy"],
            found["most_state_bytes"], strict=True,
        )
        if (aggregate, traffic) == ("max(len)", "flood")
    }  # fmt: skip
    for panes in ("10", "12"):
        assert flood[panes, "adapt"] == min(flood[panes, strategy] for strategy in ("wid", "paned", "adapt"))


def test_shared(tmp_path: Path) -> None:
    measure_shared(tmp_path, packets=2_000, groups=50, queries=[2], repeat=1, sets=("aggregates",))
    found = columns(tmp_path / "shared.csv")
    one, each, apart = map(int, found["rows_out"])
    assert each == apart == 2 * one
    smaller, *others = map(int, found["bytes_out"])
    assert smaller < min(others) == max(others)


@pytest.mark.parametrize("union", [Q8_2, Q8_5], ids=lambda union: union.figure)
def test_figs_8_8_and_8_11(union: Union, tmp_path: Path) -> None:
    """As the paper states them: the memory of IOP grows with the skew, that of OOP hardly does."""
    rates = tuple(max(1, rate // 100) for rate in union.rates)
    lags = (0, union.lags[-1])
    measure_unions(tmp_path, replace(union, rates=rates, groups=min(20, union.groups), lags=lags, length=130))
    found = columns(tmp_path / f"{union.figure}.csv")
    (ordered_at_once, ordered), (at_once, skewed) = (list(map(int, found[name])) for name in ("iop_bytes", "oop_bytes"))
    assert ordered > 2 * ordered_at_once
    assert skewed <= 2 * at_once
    assert skewed < ordered


def test_costs(tmp_path: Path) -> None:
    """Where state is stored, putting each of many groups into all windows is no choice of windows of sixty panes."""
    measure_costs(tmp_path, groups=(300,), windows=((1, 1), (60, 1)), repeat=1)
    found = columns(tmp_path / "costs.csv")
    assert set(found["auto"]) == {"paned"}
    cases = zip(found["place"], found["panes_a_window"], found["best"], strict=True)
    assert {best for place, panes, best in cases if (place, panes) == ("stored", "60")} == {"paned"}
