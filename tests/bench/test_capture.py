"""What is measured of capture hosts, at tiny sizes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.capture.emission import emission, modes
from bench.capture.hosts import measure_hosts
from bench.capture.throughput import measure_throughput
from bench.common.frames import Traffic


def test_a_slow_flush_spreads_what_a_full_one_puts_out_at_once() -> None:
    config = modes(slots=1024)
    seen = {mode: emission(Traffic(500), config[mode], rate=20_000, pane_s=1) for mode in ("full", "slow", "lazy")}
    full, slow, lazy = seen.values()
    assert full.out_by(1) == 1
    assert full.out_by(1) < slow.out_by(1) <= 1001
    assert slow.out_by(0.99) < lazy.out_by(0.99)
    assert max(slow.burst, lazy.burst) < full.burst / 4
    # Collisions before the end are the same ones, and what is in the table then leaves after it.
    assert slow.before == full.before == lazy.before
    assert slow.rows.sum() == full.rows.sum() == lazy.rows.sum()
    assert 0 < full.promised_ms <= slow.promised_ms <= lazy.promised_ms


@pytest.mark.slow
def test_many_hosts_have_the_answer_of_one(tmp_path: Path) -> None:
    measure_hosts(tmp_path, hosts=[3], packets=3000, pairs=40, skew_s=5, repeat=1)
    with (tmp_path / "sources.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["exact"] == "yes"
    assert (tmp_path / "sources.png").exists()


@pytest.mark.slow
def test_where_order_is_kept_the_longest_stall_is_longer(tmp_path: Path) -> None:
    measure_throughput(tmp_path, groups=[1 << 15], rings=[1_024, 10_000], repeat=1)
    with (tmp_path / "fig_8_7.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["slots_per_group"] == "2" and row["ring_packets"] == "10000"]
    stalls = {row["mode"]: float(row["longest_stall_ms"]) for row in rows}
    assert stalls["OOP"] < stalls["IOP"]
    assert all(float(row["packets_per_s"]) > 0 for row in rows)
    # Where a slot is taken IOP looks at the next one, too: fewer rows leave by collisions.
    evicted = {row["mode"]: float(row["evicted_per_packet"]) for row in rows}
    assert evicted["IOP"] < evicted["OOP"]
    assert (tmp_path / "fig_8_7.png").exists()
