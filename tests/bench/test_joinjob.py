"""Joins of the job against Spark's own, at a tiny size, and what answers are compared with."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from bench.spark.joins import Answer, Meeting, measure_joins


def rows(spell: bool) -> list[bytes]:
    """Pairs in one of the two spellings of times and addresses."""
    found = []
    for number in range(40):
        sent, answered = (f"2024-05-01T00:00:{number % 60:02}.{fraction}" for fraction in ("5", "250001"))
        pair: dict[str, object] = {
            "sent": f"{sent}00Z" if spell else f"{sent}00000Z", "answered": f"{answered}Z",
            "src": f"10.0.0.{number}" if spell else (10 << 24) + number, "dst": "1.2.3.4" if spell else 16909060,
            "port": number,
        }  # fmt: skip
        found.append(json.dumps(pair).encode())
    return found


def test_a_bag_of_pairs_is_the_same_in_either_spelling_and_order() -> None:
    ours, sparks = rows(True), rows(False)
    random.Random(1).shuffle(sparks)
    assert Answer.of([ours]) == Answer.of([sparks[:7], sparks[7:]])


def test_a_pair_that_differs_or_is_there_twice_is_seen() -> None:
    ours = rows(True)
    other = ours[0].replace(b"250001", b"250002")
    answers = [Answer.of([some]) for some in (ours, [other, *ours[1:]], [*ours, ours[0]], ours[1:])]
    assert len(set(answers)) == 4


@pytest.mark.slow
def test_both_find_the_same_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nearly halves the CPU time of so short a JVM's life.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    measure_joins(tmp_path, [Meeting(meets=2, size=2, rate=60, batches=2, a_batch=3)])
    with (tmp_path / "spark_joins.csv").open() as file:
        ours, sparks = csv.DictReader(file)
    assert ours["query"] == sparks["query"] == "band 2 s"
    assert int(ours["pairs"]) > 0
    assert int(ours["state_bytes_a_batch"]) > 0
    assert (tmp_path / "spark_joins.png").exists()
