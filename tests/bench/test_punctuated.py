"""Joins over punctuated streams, small: what the paper states of their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.punctuated.figures import Setting, measure_output, measure_promises, measure_state
from bench.punctuated.streams import Kind, drawn

SMALL = Setting(seconds=24, repeats=1)


def test_streams_keep_what_they_promise() -> None:
    stream = drawn(Kind(30, random=True), 60, 100, np.random.default_rng(2))
    for value, at in zip(stream.promised.tolist(), stream.promised_at.tolist(), strict=True):
        later = stream.values[stream.times >= at]
        assert value == stream.promised[-1] or value not in later
    shares = []
    starts = np.searchsorted(stream.times, [0, *stream.promised_at[:-1]])
    stops = np.searchsorted(stream.times, stream.promised_at)
    for value, start, stop in zip(stream.promised.tolist()[:-1], starts, stops, strict=False):
        shares.append(float((stream.values[start:stop] == value).mean()))
    assert 0.35 < np.mean(shares) < 0.5


def test_state_shrinks_the_more_the_larger_the_window(tmp_path: Path) -> None:
    """Fig. 8."""
    runs = measure_state(tmp_path, SMALL, windows=(1, 5))
    kept = {name: sum(run.kept) for name, run in runs.items()}
    assert 1 < kept["WJoin-1"] / kept["PWJoin-1"] < kept["WJoin-5"] / kept["PWJoin-5"]
    assert (tmp_path / "ding_fig_8.png").exists()


def test_both_joins_put_out_the_same(tmp_path: Path) -> None:
    """Figs. 9 and 10: raises an error if they do not."""
    runs = measure_output(tmp_path, SMALL, SMALL, windows=(5,))
    assert runs["PWJoin-5"].emitted[-1] == runs["WJoin-5"].emitted[-1] > 0


def test_windows_let_promises_out_early(tmp_path: Path) -> None:
    """Figs. 11 and 12."""
    runs = measure_promises(tmp_path, SMALL)
    pw, p = runs["PWJoin both"].told, runs["PJoin both"].told
    assert all(one >= other for one, other in zip(pw, p, strict=True))
    assert sum(pw) > sum(p) > 0
    assert runs["PWJoin one"].told[-1] > 0
    assert runs["PJoin one"].told[-1] == 0
