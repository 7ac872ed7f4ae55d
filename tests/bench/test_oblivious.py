"""The rival with windows against its definition, the streams against theirs, and the figures at a tiny size."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.baselines.buffered_join import BufferedJoin
from bench.oblivious.figures import (
    measure_buffers,
    measure_latency,
    measure_operator,
    measure_strategies,
    measure_windows,
    oblivious,
)
from bench.oblivious.runs import Setting, streams_of
from bench.oblivious.scrambled_streams import Change, scrambled_stream, scrambling_of
from lowmark.query.optimize.buffer_model import Buffering
from tests.join.scrambled import Arrival, arrivals, scrambled, scrambling


@given(events=arrivals(3), windows=st.lists(st.one_of(st.none(), st.integers(1, 8)), min_size=3, max_size=3))
def test_a_tuple_meets_the_last_tuples_of_the_other_inputs(events: list[Arrival], windows: list[int | None]) -> None:
    join = BufferedJoin(3, windows)
    came: list[list[int]] = [[], [], []]
    for port, key in events:
        kept = [range(max(0, len(keys) - (n or len(keys))), len(keys)) for keys, n in zip(came, windows, strict=True)]
        partners = [[at for at in kept[of] if came[of][at] == key] for of in range(3)]
        partners[port] = [len(came[port])]
        found = join.add(port, key)
        assert list(product(*(found or [()]))) == list(product(*partners))
        came[port].append(key)
    assert [join.kept(port) for port in range(3)] == [
        min(len(keys), n or len(keys)) for keys, n in zip(came, windows, strict=True)
    ]


@given(keys=scrambled())
def test_scrambling_is_that_of_the_definition(keys: list[int]) -> None:
    assert scrambling_of(np.array(keys, np.int64)) == scrambling(keys)


def test_streams_are_as_asked_for() -> None:
    stream = scrambled_stream(np.random.default_rng(1), 100, 50, 200, 2, [Change(20, 40, 1 / 8), Change(60, 70, 8)])
    assert 160 <= stream.scrambling <= 240
    assert stream.multiplicity == 2
    assert np.all(np.diff(stream.times) >= 0)
    seconds = np.bincount(stream.times // 10**9, minlength=100)
    for low, high, rate in ((0, 20, 50), (20, 40, 50 / 8), (40, 60, 50), (60, 70, 400), (70, 100, 50)):
        assert abs(seconds[low:high].sum() - (high - low) * rate) < 5 * ((high - low) * rate) ** 0.5
    assert np.array_equal(np.sort(stream.keys), np.arange(len(stream.keys)) // 2)


def test_the_figures_at_a_tiny_size(tmp_path: Path) -> None:
    """What does not depend on the machine: no result is lost with parameters known, nearly none with monitored ones."""
    query_1, query_2 = (Setting(inputs, 24, most_scrambling=60) for inputs in (3, 6))
    measure_buffers(tmp_path, query_1=query_1, query_2=query_2, repeats=2)
    with (tmp_path / "wu_accuracy.csv").open(newline="") as file:
        least = {row["what"]: float(row["least"]) for row in csv.DictReader(file)}
    assert least["Query 1, all known, tuples meanwhile: those that came"] == 1
    assert min(least["Query 1, monitored"], least["Query 2, monitored"]) >= 0.992
    measure_windows(tmp_path, query_1=query_1, query_2=query_2, repeats=1, target=0.992)
    measure_strategies(tmp_path, query_1=query_1, query_2=query_2, repeats=1)
    measure_operator(tmp_path, query_1=query_1, repeats=1)
    with (tmp_path / "wu_operator.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["accuracy"]) >= (1 if row["memory"] == "frontier" else 0.992)
            assert (float(row["given_up"]) > 0) is (row["memory"] == "model")
    measure_latency(tmp_path, query_1=Setting(3, 6, most_scrambling=20, batch=0), repeats=1)
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"wu_fig_5_s1", "wu_fig_5_s2", "wu_fig_5_s3", *(f"wu_fig_{number}" for number in range(6, 12))}


def test_strategies_stand_as_the_paper_says() -> None:
    """Query 1: disk-buffer first saves more than memory-sort first, and hybrid most."""
    setting = Setting(3, 60, most_scrambling=100)
    memory = {way: oblivious(setting, 1, way).memory for way in Buffering}
    assert max(stream.scrambling for stream in streams_of(setting, 1)) > 20
    assert memory[Buffering.HYBRID] < memory[Buffering.DISK] < memory[Buffering.SORT] < memory[Buffering.KEEP]
