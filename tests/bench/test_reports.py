"""What is stated of a figure stands beside ours, on the plot and in what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bench
from bench.common.reports import Figure, spread
from bench.common.stated import of_figure


def test_a_plot_after_a_figure_says_what_is_stated_of_it_and_what_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Figure(tmp_path, "fig_7_6_latency", "a title", "OPOB takes 3 to 16 times as long") as axes:
        axes.plot([1, 2], [1, 2])
    assert capsys.readouterr().out == (
        "Li on fig. 7-6: OA-Join does significantly better than OPOB-Join, in memory and latency above all (7.3).\n"
        "Here: OPOB takes 3 to 16 times as long.\n"
    )
    assert (tmp_path / "fig_7_6_latency.png").stat().st_size > 0


def test_none_goes_without() -> None:
    for name, ours in (("fig_7_6", None), ("live", "much")):
        with pytest.raises(ValueError, match="what is stated"):
            Figure(Path(), name, "a title", ours)
    with pytest.raises(KeyError):
        Figure(Path(), "fig_1_1", "a title", "much")


def test_every_figure_that_the_bench_draws_is_known() -> None:
    texts = (path.read_text() for path in Path(bench.__file__).parent.rglob("*.py"))
    names = {name for text in texts for name in re.findall(r'"((?:hammad_\d+_)?fig_\d+(?:_\d+)?)', text)}
    assert len(names) > 10
    assert all(of_figure(name) is not None for name in names)


def test_a_spread_is_from_the_least_to_the_greatest() -> None:
    assert (spread([2, 1.25, 1.5]), spread([3, 3.0001])) == ("1.25 to 2", "3")
    assert spread([0.2234, 17_393.1]) == "0.223 to 17,393"
