"""Queries of a thousand terms, from the text to the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import query
from tests.acceptance.traffic import Traffic

WINDOW = "count(*) AS n, sum({}) AS s [RANGE 10 s] FROM A WHERE {}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("long", "short"),
    [
        (" + ".join(["len"] * 1000), "1000 * len"),
        (" ^ ".join(["len"] * 999), "len"),
        (" - ".join(["len"] * 151), "-149 * len"),
    ],
    ids=["sum", "xor", "difference"],
)
def test_a_thousand_terms_are_what_they_come_to(long: str, short: str, tmp_path: Path) -> None:
    captures = Traffic(seed=5, sizes=(("A", 150),), disorder_s=5, nanoseconds=False).write(tmp_path)
    ports = " OR ".join(f"destPort = {n}" for n in range(1000))
    lengths = " AND ".join(f"len <> {n}" for n in range(2000, 2500))
    answers = [
        query(f"SELECT {WINDOW.format(long, f'({ports}) AND {lengths}')}", captures),
        query(f"SELECT {WINDOW.format(short, 'destPort < 1000')}", captures),
    ]
    assert [answer.code for answer in answers] == [0, 0], answers[0].error
    assert answers[0].rows == answers[1].rows != []
