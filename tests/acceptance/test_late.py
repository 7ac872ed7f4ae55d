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


WHEN = [{"ts": "2024-05-01T12:00:03Z"}, {"ts": "2024-05-01T12:00:14Z"}]
WHO = [{"srcIP": "10.0.0.2"}, {"srcIP": "10.0.0.3"}]
COUNTED = {
    "rows": ("SELECT count(*) [RANGE 2 rows, WA row_num] FROM A", WHEN),
    "groups": (
        "SELECT proto, sum(len * 8), count(distinct srcIP), max(ttl) [RANGE 2 rows, WA row_num] FROM A GROUP BY proto",
        [a | b | {"len": 14 + 20 + 8, "ttl": 64, "proto": 17} for a, b in zip(WHEN, WHO, strict=True)],
    ),
    "partitions": (
        "SELECT count(*) [RANGE 2 rows, WA row_num, PA srcIP] FROM A", [a | b for a, b in zip(WHEN, WHO, strict=True)],
    ),
    "arrival": ("SELECT max(proto) [RANGE 5 s, RATTR ts, SLIDE 2 rows, SATTR row_num] FROM A",
                [a | {"proto": 17} for a in WHEN]),
    "rank": ("SELECT srcIP, count(*) [RANGE 5 s, RATTR ts + 1 s, SLIDE 2 rows, SATTR rank(ts + 1 s), PA srcIP] FROM A",
             [a | b for a, b in zip(WHEN, WHO, strict=True)]),
    "derived": ("SELECT max(twice) [RANGE 2 rows, WA row_num] FROM (SELECT row_num, proto * 2 AS twice FROM A) AS s",
                [a | {"twice": 34} for a in WHEN]),
    "stages": (("CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s, RATTR ts, SLIDE 1 row, SATTR row_num] "
               "FROM A GROUP BY srcIP; SELECT max(n) AS m [RANGE 30 s, WA window_end] FROM s"),
               [a | b for a, b in zip(WHEN, WHO, strict=True)]),
    "numbered": ("SELECT max(row_num) [RANGE 2 rows, WA row_num] FROM A", [a | {"row_num": n}
                 for a, n in zip(WHEN, (3, 5), strict=True)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_late_rows_of_windows_that_count_say_when_and_what(name: str, capture: list[tuple[str, Path]]) -> None:
    """The tuple's `ts`, its groups, and the columns that the query reads; other lines stay as they are."""
    text, rows = COUNTED[name]
    emitted = query(text, capture, "--disorder", "ordered", "--late", "emit")
    late = told(emitted, "late")
    assert [item["row"] for item in late] == rows
    assert all("windows" not in item and item["tuples"] == 1 for item in late)
    assert emitted.rows == query(text, capture, "--disorder", "ordered").rows


@pytest.mark.slow
def test_late_rows_of_a_union_that_counts(capture: list[tuple[str, Path]]) -> None:
    text = "SELECT max(ttl) [RANGE 2 rows, WA row_num, PA proto] FROM A UNION B"
    both = [*capture, ("B", capture[0][1])]
    late = told(query(text, both, "--disorder", "ordered", "--late", "emit"), "late")
    rows = [row | {"proto": 17, "ttl": 64} for row in WHEN]
    assert sorted((item["source"], item["row"]["ts"]) for item in late) == [
        (source, row["ts"]) for source in ("A", "B") for row in rows
    ]
    assert all(item["row"] in rows for item in late)


def test_what_cannot_be_corrected_is_refused(capture: list[tuple[str, Path]]) -> None:
    outcome = query("SELECT avg(len) [RANGE 1 s] FROM A", capture, "--late", "correct")
    assert outcome.code == 2
    assert "hint: select sum and count" in outcome.error
    assert lowmark("explain", "--late", "correct", "SELECT avg(len) [RANGE 1 s] FROM A").code == 2
