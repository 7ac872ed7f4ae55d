"""ORDER BY over a whole stream: of packets, joins and groups, by whatever progresses, row for row."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.command import query
from tests.acceptance.interleaved import check as check_interleaved
from tests.acceptance.traffic import Traffic, traffic
from tests.acceptance.whole import options
from tests.naive.compare import same_row
from tests.naive.evaluate import answer

SHIFTED = "(SELECT ts + 5 seconds AS t, len, srcIP FROM A) UNION (SELECT ts AS t, len, srcIP FROM B)"
SLIDING = "SELECT srcIP, count(*) AS n, sum(len) AS b [RANGE 10 s, SLIDE 5 s] FROM {} GROUP BY srcIP"
MIXED = (
    f"(SELECT window_end AS t, b AS len, srcIP FROM ({SLIDING.format('B')})) UNION (SELECT ts AS t, len, srcIP FROM A)"
)
STAGES = {
    "sliding": (SLIDING.format("A"), ("window_end", "window_start", "window_end / 7", "window_start + 1 second")),
    "landmark": ("SELECT srcIP, count(*) AS n, 1 AS b [RANGE ALL, SLIDE 15 s] FROM A GROUP BY srcIP", ("window_end",)),
    "rows": (
        "SELECT srcIP, count(*) AS n, max(len) AS b [RANGE 9 rows, SLIDE 3 rows, WA row_num] FROM A GROUP BY srcIP",
        ("window_end", "window_end / 10"),
    ),
    "slide by tuple": (
        "SELECT srcIP, count(*) AS n, 0 AS b [RANGE 9 s, RATTR ts, SLIDE 4 rows, SATTR row_num] FROM A GROUP BY srcIP",
        ("window_end", "window_end / 8"),
    ),
    "without windows": (
        "SELECT t AS m, t AS window_end, srcIP, count(*) AS n, 2 AS b FROM A UNION B GROUP BY ts / 10 AS t, srcIP",
        ("m", "m / 3", "m * 7"),
    ),
    "the best": (f"{SLIDING.format('A UNION B')} ORDER BY n DESC LIMIT 2", ("window_end",)),
    "a union": (
        f"SELECT * FROM ({SLIDING.format('A')}) UNION ({SLIDING.format('B')})",
        ("window_end", "window_end / 7"),
    ),
}
PACKETS = {
    "A": ("ts", "ts / 7", "ts / 60 * 60", "row_num", "row_num / 5", "row_num + 2"),
    "A UNION B": ("ts", "ts / 7", "arrival_ts + 1 second", "row_num", "row_num / 5"),
    SHIFTED: ("t", "t / 9"),
    MIXED: ("t", "t / 12"),
}  # fmt: skip
TEXTS = [
    *(f"SELECT {shown}, srcIP, len FROM {source} ORDER BY {first}{rest}"
      for source, firsts in PACKETS.items() for first in firsts
      for shown in (("ts AS x",) if "A" in source[:1] else ("t AS x",)) for rest in ("", ", len DESC", ", srcIP, len")),
    *(f"CREATE STREAM s AS {stage}; SELECT {shown} FROM s ORDER BY {first}{rest}"
      for stage, firsts in STAGES.values() for first in firsts
      for shown in ("*", "n, srcIP", "window_end, b") for rest in ("", ", n DESC", ", b, srcIP DESC")),
]  # fmt: skip


def check(text: str, sent: Traffic, chosen: list[str], folder: Path) -> None:
    captures = sent.write(folder)
    expected = answer(text, captures)
    found = query(text, captures, *chosen)
    assert found.code == 0, f"{text}\n{sent}\n{found.error}"
    assert len(found.rows) == len(expected.rows), f"{text}\n{sent}\n{found.error}"
    for place, (got, wanted) in enumerate(zip(found.rows, expected.rows, strict=True)):
        assert same_row(got, wanted), f"{text}\n{sent}\nrow {place}: {got} in place of {wanted}"


@pytest.mark.slow
@given(text=st.sampled_from(TEXTS), data=st.data())
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_rows_come_in_the_order_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    sent = data.draw(traffic())
    check(text, sent, data.draw(options(sent)), tmp_path_factory.mktemp("captures"))


IN_ANY_ARRIVAL = [text for text in TEXTS if "rows" not in text and "window_end" in text]


@given(text=st.sampled_from(IN_ANY_ARRIVAL), sent=traffic(), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_job_has_the_same_rows_however_records_are_cut(text: str, sent: Traffic, seed: int) -> None:
    """Of stages, whose rows no order of arrival decides."""
    check_interleaved(text, sent, seed, 4)
