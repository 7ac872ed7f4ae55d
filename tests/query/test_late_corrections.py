"""Which queries can have closed windows corrected, and what the others are told."""

from __future__ import annotations

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.optimize.late_corrections import merges
from lowmark.query.options import Late
from lowmark.query.parse.errors import QueryError
from lowmark.wire.records.verdicts import Merge

MINUTE = "[RANGE 3 minutes, SLIDE 1 minute]"


def test_how_each_aggregate_merges() -> None:
    plan = compile_query(
        f"SELECT srcIP AS host, count(*) AS n, count(vlan / 0), sum(len), min(ts), max(len), bit_or(tcp_flags), "
        f"bit_and(tos), destPort {MINUTE} FROM A UNION B GROUP BY srcIP, destPort ORDER BY n DESC",
        late=Late.CORRECT,
    )
    assert {name: merge.value for name, merge in merges(plan).items()} == {
        "n": "add", "count_vlan_0": "add", "sum_len": "add", "min_ts": "least", "max_len": "greatest",
        "bit_or_tcp_flags": "or", "bit_and_tos": "and",
    }  # fmt: skip


def test_groups_alone_can_be_corrected() -> None:
    assert merges(compile_query("SELECT DISTINCT srcIP [RANGE 1 minute] FROM A", late=Late.CORRECT)) == {}


def test_a_query_is_planned_alike_whatever_becomes_of_late_tuples() -> None:
    sql = f"SELECT srcIP, count(*) {MINUTE} FROM A GROUP BY srcIP"
    plans = [compile_query(sql, late=late) for late in Late]
    assert len({plan.stage.fingerprint for plan in plans}) == 1
    assert len({plan.steps for plan in plans}) == 1
    assert merges(plans[0]) == {"count": Merge.ADD}


STAGES = (
    "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 1 s] FROM A GROUP BY srcIP; "
    "SELECT sum(n) AS n [RANGE 1 minute, WA window_end] FROM s"
)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (f"SELECT srcIP, count(*) {MINUTE} FROM A GROUP BY srcIP HAVING count(*) > 2", "HAVING leaves rows out"),
        (f"SELECT srcIP, count(*) AS n {MINUTE} FROM A GROUP BY srcIP ORDER BY n LIMIT 2", "LIMIT leaves rows out"),
        (f"SELECT DISTINCT count(*) {MINUTE} FROM A GROUP BY srcIP", "DISTINCT leaves rows out"),
        (f"SELECT srcIP, total(count(*)) AS n {MINUTE} FROM A GROUP BY srcIP", r"total\(\)"),
        (f"SELECT count(DISTINCT srcIP) {MINUTE} FROM A", "needs all values"),
        (f"SELECT median(len) {MINUTE} FROM A", "needs all values"),
        (f"SELECT avg(len) {MINUTE} FROM A", "avg_len: its value over late tuples alone"),
        (f"SELECT stddev(len) {MINUTE} FROM A", "stddev_len: its value over late tuples alone"),
        (f"SELECT last(len) {MINUTE} FROM A", "last_len: its value over late tuples alone"),
        (f"SELECT sum(len) * 8 AS bits {MINUTE} FROM A", "column bits computes with"),
        (f"SELECT count(*) {MINUTE} FROM A GROUP BY srcIP", "do not show srcIP"),
        ("SELECT srcIP, count(*) [RANGE ALL, SLIDE 1 minute] FROM A GROUP BY srcIP", "landmark"),
        ("SELECT ts / 60 AS m, count(*) FROM A GROUP BY ts / 60", "no window"),
        ("SELECT ts, srcIP FROM A", "aggregates nothing"),
        ("SELECT count(*) [RANGE 9 rows, SLIDE 3 rows, WA row_num] FROM A", "counts tuples"),
        ("SELECT count(*) [RANGE 1 s, RATTR ts, SLIDE 1 rows, SATTR row_num] FROM A", "counts tuples"),
        (STAGES, "stages that read each other"),
        (
            "CREATE STREAM s AS SELECT srcIP, count(*) [RANGE 1 s] FROM A GROUP BY srcIP; SELECT * FROM s UNION s",
            "union",
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused_with_the_reason(sql: str, reason: str) -> None:
    for late in (Late.COUNT, Late.EMIT):
        assert compile_query(sql, late=late).late is late
    with pytest.raises(QueryError, match=reason) as refused:
        compile_query(sql, late=Late.CORRECT)
    assert 'late = "correct" is not for this query' in refused.value.render()
    assert refused.value.hint
