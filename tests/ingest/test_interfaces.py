"""What is said of interfaces that cannot be captured from."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.command import lowmark

QUERY = "SELECT count(*) [RANGE 1 s] FROM Main"
_DROP_FROM_BOUNDING_SET, _NET_RAW = 24, 13


def test_an_interface_that_is_not_there() -> None:
    outcome = lowmark("query", "-i", "eth99", QUERY)
    assert outcome.code == 1
    assert "there is no interface 'eth99'; there are: " in outcome.error
    assert "lo" in outcome.error
    assert "any for all" in outcome.error


def test_scan_is_not_for_interfaces() -> None:
    outcome = lowmark("query", "-i", "lo", "--disorder", "scan", QUERY)
    assert outcome.code == 2
    assert "packets of an interface come once" in outcome.error


def test_names_go_with_interfaces_too() -> None:
    outcome = lowmark("query", "-i", "lo", "-r", "A=a.pcap", QUERY)
    assert outcome.code == 2
    assert "-i lo names no stream, but other options do: write NAME=lo" in " ".join(outcome.error.split())


def test_the_capability_that_is_missing_is_named() -> None:
    libc = ctypes.CDLL(None)

    def give_up() -> None:
        if os.geteuid() == 0:
            libc.prctl(_DROP_FROM_BOUNDING_SET, _NET_RAW, 0, 0, 0)

    run = subprocess.run(
        [sys.executable, "-m", "lowmark", "query", "-i", "lo", QUERY],
        capture_output=True, text=True, timeout=60, preexec_fn=give_up, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert run.returncode == 1
    assert "takes the capability CAP_NET_RAW" in run.stderr
    assert "sudo setpriv --reuid=USER" in run.stderr
    assert "AmbientCapabilities=CAP_NET_RAW" in run.stderr
    assert "setcap" not in run.stderr
