"""The live measurement at a tiny size, in a network namespace, which takes root."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lowmark.app.kafka.jars import BROKER, obtain
from tests.fixtures.network import namespace


@pytest.mark.slow
def test_every_packet_is_counted_and_comes_as_a_record(tmp_path: Path) -> None:
    obtain(BROKER)  # there is nothing to fetch them from in the namespace
    with namespace():
        command = [
            sys.executable,
            "-m",
            "bench.live",
            "--seconds",
            "0.3",
            "--rate",
            "20000",
            "--results",
            str(tmp_path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "live.csv").open() as file:
        ours, *_ = (row for row in csv.DictReader(file) if row["reader"] == "lowmark")
    assert 0 < int(ours["sent"]) == int(ours["received"]) + int(ours["dropped"])
    with (tmp_path / "live-delay.csv").open() as file:
        delays = [float(row["delay_ms"]) for row in csv.DictReader(file)]
    (told,) = re.findall(r"of (\d+) packets$", done.stdout, re.MULTILINE)
    assert int(told) >= 300
    assert len(delays) == 101
    assert 0 <= delays[0] <= delays[-1]
