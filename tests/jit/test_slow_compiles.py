"""Compilations that take long are told, from the beginning of the patience's end to their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.jit.slow_compiles import compiling, watched


def test_it_is_told_when_the_patience_has_ended_and_when_it_is_done() -> None:
    told: list[bool] = []
    begun = threading.Event()

    def tell(begins: bool) -> None:
        told.append(begins)
        begun.set()

    with watched(0.0, tell):
        assert not told
        with compiling():
            assert begun.wait(60)
            assert told == [True]
        assert told == [True, False]
    with compiling():
        pass
    assert told == [True, False]


def test_short_compilations_are_not_told() -> None:
    told: list[bool] = []
    with watched(3_600.0, told.append):
        for _ in range(3):
            with compiling():
                pass
    assert told == []


@pytest.mark.slow
def test_a_first_query_says_in_one_line_that_it_compiles_and_a_second_one_does_not(tmp_path: Path) -> None:
    capture = tmp_path / "small.pcap"
    write_capture(capture, TrafficSpec(packets=200, duration_ns=2 * 10**9, groups=20))
    sql = "SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP"
    command = [sys.executable, "-m", "lowmark", "query", "-r", str(capture), sql]
    environment = {**os.environ, "LOWMARK_CACHE": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
        for _ in range(2)
    )
    assert first.stderr.count("compiling; the native code is kept for later runs\n") == 1
    assert "compiling" not in second.stderr
    assert first.stdout == second.stdout != ""
