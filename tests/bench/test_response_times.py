"""Shared joins and joins in order on a virtual clock, at tiny sizes: what the papers state of their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.common.response_times import Costs, bursts_of, pareto_times
from bench.in_order import times as in_order_times
from bench.in_order.times import measure_analysis
from bench.shared_joins import times as shared_join_times
from bench.shared_joins.savings import measure_savings
from bench.shared_joins.times import rows_at
from lowmark.query.plan.joins import Release
from lowmark.query.plan.shared_joins import SCHEDULES

COSTS = Costs(50e-9, 60e-9, 80e-9)


def test_small_windows_do_not_wait_for_large_ones() -> None:
    """5.1, 5.2: with LWO all windows take as long; with the others the small ones take far less; of the two MQT takes
    less for the largest."""
    setting = shared_join_times.Setting((1, 5, 15, 60), (1,) * 4, burst=3, rate=20, tuples=240, load=0.9)
    lwo, swf, mqt = (shared_join_times.run(setting, scheduling, COSTS) for scheduling in SCHEDULES)
    assert lwo.mean[0] > 0.5 * lwo.mean[-1]
    assert max(swf.mean[0], mqt.mean[0]) < lwo.mean[0] / 2
    assert mqt.mean[-1] < swf.mean[-1]
    assert mqt.overall < lwo.overall
    assert lwo.held == 0 < mqt.held <= swf.held


def test_work_that_overlaps_with_waiting_takes_no_time() -> None:
    """Equation 7 at a load of 0.75; at a small one adaptive is Sync-Filter."""
    setting = in_order_times.Setting(c=1.25e-3, slow=1, seconds=60)
    sync, filter_, adaptive = (in_order_times.run(setting, release) for release in Release)
    assert filter_.mean < 0.85 * sync.mean
    assert adaptive.mean < 0.95 * sync.mean
    assert sync.held == 0 < filter_.held
    small = in_order_times.Setting(c=1e-5, slow=1, seconds=60)
    assert in_order_times.run(small, Release.ADAPTIVE) == in_order_times.run(small, Release.SYNC)


def test_the_analysis_of_the_papers_example(tmp_path: Path) -> None:
    """c = 0.5 ms, windows of a minute, 1 and 10 rows a second: equations 3 and 5."""
    setting = in_order_times.Setting(0.5e-3, 1)
    assert setting.predicted(Release.FILTER) == pytest.approx(1 - 9 / 20)
    assert setting.predicted(Release.SYNC) == pytest.approx(1 - 9 / 20 + 11 / 2 * 0.03)
    measure_analysis(tmp_path)
    assert (tmp_path / "hammad_2005_fig_6.png").exists()


def test_one_join_emits_what_a_join_for_each_window_emits(tmp_path: Path) -> None:
    found = measure_savings(tmp_path, windows=[1, 2, 4, 8, 9, 10], rate=200, seconds=20, keys=100)
    assert all(one.emitted == each.emitted > 0 for _, one, each in found)
    _, one, each = found[-1]
    assert one.held < each.held


def test_bursts_have_the_mean_that_is_asked_for() -> None:
    random = np.random.default_rng(1)
    (join,) = shared_join_times.joins_of((60,))
    times = pareto_times(random, 0, 20_000, 100, 3)
    found = bursts_of(times, 0, lambda at: rows_at(join, 0, at, random))
    assert 2 < len(times) / len(found) < 4
    assert len({row for burst in found for row in burst.rows[:, join.inputs[0].schema.offset("ts")].tolist()}) == 20_000
