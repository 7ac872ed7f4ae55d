"""Joins that keep an order give the rows of the one that keeps none, in order; the measurements at tiny sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from bench.baselines.merging import Merge
from bench.baselines.ordered_joins import InputBufferedJoin, OutputBufferedJoin
from bench.joins.order import OPIB, OPOB, measure_bands, measure_delay
from bench.joins.skew import measure_late, measure_skew
from highlevel.interface import Operator, Words
from tests.join.harness import Scene, nested_loops, numbers, scenes, send, times
from tests.operators.harness import Live, Sink, Stored


@pytest.mark.parametrize("kind", [OutputBufferedJoin, InputBufferedJoin])
@given(scene=scenes(counts=(2,)))
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_nested_loops_in_order(
    kind: type[OutputBufferedJoin] | type[InputBufferedJoin], scene: Scene
) -> None:
    stored, sink = Live(), Sink()
    operator = kind(scene.plan)
    told = 0
    for event in scene.events:
        bounds = [bound.below for promise in sink.promises for bound in promise.bounds]
        send(operator, event, stored.state, sink)
        firsts = [first for first, _ in times(scene.plan, sink.matrices[told:])]
        assert all(bound <= first for bound in bounds for first in firsts)
        told = len(sink.matrices)
    assert Counter(numbers(scene.plan, sink.matrices)) == nested_loops(scene)
    firsts = [first for first, _ in times(scene.plan, sink.matrices)]
    assert firsts == sorted(firsts)
    assert sink.promises[-1].last


@given(scene=scenes(counts=(2,)))
@settings(max_examples=30, deadline=None)
def test_state_through_bytes_changes_nothing(scene: Scene) -> None:
    """What the output waits in, too."""
    found = []
    for kind in (Live, Stored):
        stored, sink = kind(), Sink()
        operator: Operator = OutputBufferedJoin(scene.plan)
        for event in scene.events:
            send(operator, event, stored.state, sink)
            stored.again()
        found.append(list(numbers(scene.plan, sink.matrices)))
    assert found[0] == found[1]


def test_a_merge_holds_what_is_ahead() -> None:
    def rows(*times_ns: int) -> Words:
        return np.array([[time, 0] for time in times_ns], np.uint64).reshape(-1, 2)

    merge = Merge(2, 0)
    assert len(merge.take(0, rows(1, 4, 7), 8)) == 0
    assert merge.held == 3 * 16
    assert merge.take(1, rows(2, 5), 6)[:, 0].tolist() == [1, 2, 4, 5]
    assert merge.take(1, rows(), 100)[:, 0].tolist() == [7]
    assert (merge.held, merge.bound) == (0, 8)


def test_joint_punctuation_lets_groups_out_sooner(tmp_path: Path) -> None:
    found = {(way, band): delay for way, band, delay in measure_delay(tmp_path, bands=[3, 6], seconds=8, rate=20)}
    assert found["joint", 3] == found["joint", 6] == found["joint, 2 buckets", 3] == found["joint, 2 buckets", 6]
    assert found["joint", 3] < 3 <= found["individual", 3] < 6 <= found["individual", 6]
    assert {path.name for path in tmp_path.iterdir()} == {"fig_7_5.csv", "fig_7_5.png"}


def test_joins_in_order_hold_more(tmp_path: Path) -> None:
    for figure, rival in (("fig_7_6", OPOB), ("fig_7_7", OPIB)):
        costs = measure_bands(tmp_path, figure, rival=rival, bands=[3], seconds=12, rate=300, flows=100, repeat=1)
        ours, theirs = costs
        assert ours.most_held < theirs.most_held
    assert (tmp_path / "fig_7_6_latency.png").exists()


def test_memory_over_skew_and_over_late_tuples(tmp_path: Path) -> None:
    skewed = measure_skew(tmp_path, skews=[0, 4], rate=200, flows=100, window=2, seconds=12)
    assert skewed[0].oop < skewed[1].oop
    late = measure_late(tmp_path, delays=[0, 2], rate=200, flows=100, window=4, seconds=14)
    assert late[1].oop < 1.1 * late[0].oop
