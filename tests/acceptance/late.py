"""Queries whose late tuples are told as corrections: together with them the rows are those of a run without any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.acceptance.command import Outcome, Row, query
from tests.acceptance.corrected import corrected
from tests.acceptance.queries import EXACT, conditions
from tests.acceptance.traffic import Captures
from tests.naive.compare import differences

__all__ = ["Correctable", "check_corrections", "correctables", "told"]


@dataclass(frozen=True)
class Correctable:
    """`n` counts tuples."""

    text: str
    keys: Sequence[str]
    slide_s: int


@st.composite
def correctables(draw: st.DrawFn) -> Correctable:
    keys = draw(st.lists(st.sampled_from(("srcIP", "destIP", "proto", "destPort", "vlan")), max_size=2, unique=True))
    merging = (
        "sum(len) AS b",
        "bit_or(tcp_flags) AS f",
        "bit_and(ttl) AS t",
        "min(len) AS least",
        "max(srcPort) AS most",
    )
    calls = draw(st.lists(st.sampled_from(merging), max_size=3, unique=True))
    slide, times = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    text = f"SELECT {', '.join([*keys, 'count(*) AS n', *calls])} [RANGE {slide * times} s, SLIDE {slide} s] FROM "
    text += draw(st.sampled_from(("A", "B", "A UNION B")))
    text += f" WHERE {draw(conditions(EXACT))}" if draw(st.booleans()) else ""
    return Correctable(text + (f" GROUP BY {', '.join(keys)}" if keys else ""), keys, slide)


def told(outcome: Outcome, kind: str) -> list[Row]:
    """What standard error has of this kind: late, correction, amendment."""
    lines = [line for line in outcome.error.splitlines() if line.startswith(f'{{"{kind}":')]
    return [json.loads(line)[kind] for line in lines]


def check_corrections(asked: Correctable, captures: Captures, disorder: str) -> None:
    """`disorder` is declared, and may be too small."""
    said = f"{asked.text}\n{disorder}"
    exact = query(asked.text, captures, "--disorder", "scan")
    plain = query(asked.text, captures, "--disorder", disorder)
    outcome = query(asked.text, captures, "--disorder", disorder, "--late", "correct")
    emitted = query(asked.text, captures, "--disorder", disorder, "--late", "emit")
    assert exact.code == 0, f"{said}\n{exact.error}"
    assert (outcome.out, outcome.code) == (emitted.out, emitted.code) == (plain.out, plain.code), said
    found = corrected(outcome.rows, told(outcome, "correction"), asked.keys, asked.slide_s)
    wrong = differences(exact.rows, found)
    assert not wrong, "\n".join((said, *wrong))
    late = told(emitted, "late")
    windows = [(row["windows"][1] - row["windows"][0] + 1) * row["tuples"] for row in late]  # type: ignore[index]
    assert sum(windows) + sum(row["n"] for row in plain.rows) == sum(row["n"] for row in exact.rows), said  # type: ignore[misc]
