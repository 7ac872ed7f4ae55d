"""What is stated of approximate aggregates and of the library beside them: how far they err, whose answers stay."""

from __future__ import annotations

import csv
from math import sqrt
from pathlib import Path

import pytest

from lowmark.query.aggregates.sketches import CELL_ERROR, LEADING_BITS

pytest.importorskip("datasketches", reason="it has wheels for Linux on x86-64 and Python up to 3.13")

from bench.sketches.__main__ import OURS, measure_sketches

SIZES = (100, 2_000)


@pytest.mark.slow
def test_errors_and_repeatability(tmp_path: Path) -> None:
    errors, moves = measure_sketches(tmp_path, sizes=SIZES, moved=6_000, budget=100_000)
    ours = [line for line in errors if line.contender == OURS]
    for line in ours:
        match line.question:
            case "distinct":  # the root of few squares is itself known to a part only
                assert line.root_mean_square <= CELL_ERROR * (1 + 4 / sqrt(2 * line.trials)), line
            case "quantiles":
                assert line.greatest <= 2.0**-LEADING_BITS, line
            case "frequent":
                assert line.greatest == 0, line
    assert {line.question for line in ours} == {"distinct", "quantiles", "frequent"}
    moved = {line.contender for line in moves if line.answers > 1}
    assert moved == {"HLL", "HLL, united", "CPC", "KLL", "REQ", "t-digest", "frequent items"}
    assert {line.contender for line in moves} - moved == {OURS, "CPC, united", "Theta, united", "Count-Min, asked"}
    with (tmp_path / "sketches.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(errors)
