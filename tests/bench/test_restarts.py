"""A broker that is restarted under a job, three times."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_restart_makes_the_job_deaf_and_every_row_is_there_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.restarts", "--restarts", "3", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 restarts: 0 deaf" in done.stdout
    assert "each once" in done.stdout
    with (tmp_path / "restarts.csv").open() as file:
        assert [row["signal"] for row in csv.DictReader(file)] == ["SIGTERM", "SIGKILL", "SIGTERM"]
