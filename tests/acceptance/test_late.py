"""Late packets: plain rows stay as they are, and with what comes beside them nothing is missing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.command import Row, lowmark, query
from tests.acceptance.late import Correctable, check_corrections, told
from tests.acceptance.test_golden import at, written
from tests.naive.frames import Spec

SLIDING = Correctable(
    "SELECT srcIP, proto, count(*) AS n, sum(len) AS b, bit_or(tcp_flags) AS f, bit_and(ttl) AS t "
    "[RANGE 10 s, SLIDE 4 s] FROM A GROUP BY srcIP, proto",
    keys=("srcIP", "proto"),
    slide_s=4,
)

packets = st.lists(
    st.builds(
        lambda second, host, proto: at(second, f"10.0.0.{host}", proto=proto),
        st.integers(0, 60), st.integers(1, 3), st.sampled_from((6, 17)),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(packets, packets, st.sampled_from(("ordered", "within 3 s")))
def test_rows_and_corrections_come_to_what_nothing_late_would_have_given(
    one: list[Spec], other: list[Spec], disorder: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        captures = written(Path(folder), {"A": one, "A-2": other})
        check_corrections(SLIDING, captures, disorder)


LATE = [at(1), at(12), at(3, "10.0.0.2"), at(25), at(14, "10.0.0.3"), at(31)]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    return written(tmp_path_factory.mktemp("late"), {"A": LATE})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT ts, srcIP FROM A WHERE proto = 17", [{"ts": "2024-05-01T12:00:03Z", "srcIP": "10.0.0.2"}]),
        (
            (
                "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP; "
                "SELECT max(n) AS m [RANGE 30 s, WA window_end] FROM s"
            ),
            [{"srcIP": "10.0.0.2", "count": 1}],
        ),
    ],
)
def test_late_rows_of_every_sort_of_query(text: str, rows: list[Row], capture: list[tuple[str, Path]]) -> None:
    late = told(query(text, capture, "--disorder", "ordered", "--late", "emit"), "late")
    assert [item["source"] for item in late] == ["A", "A"]
    assert [item["row"] for item in late[:1]] == rows


def test_what_cannot_be_corrected_is_refused(capture: list[tuple[str, Path]]) -> None:
    outcome = query("SELECT avg(len) [RANGE 1 s] FROM A", capture, "--late", "correct")
    assert outcome.code == 2
    assert "hint: select sum and count" in outcome.error
    assert lowmark("explain", "--late", "correct", "SELECT avg(len) [RANGE 1 s] FROM A").code == 2
