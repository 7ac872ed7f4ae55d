"""Names as a query may write them, and what columns are called: the rows are those of the naive evaluator."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowmark.query.compile import compile_query
from lowmark.query.parse.errors import QueryError
from tests.acceptance.command import query
from tests.acceptance.interleaved import check
from tests.acceptance.traffic import Traffic, traffic
from tests.naive.compare import differences
from tests.naive.evaluate import answer

SENT = Traffic(seed=5, sizes=(("A", 90), ("B", 60)), disorder_s=2, nanoseconds=False)

# Each query, and what its columns are called.
QUERIES = {
    'SELECT "srcIP", count(*) "packets per second" [RANGE 9 s] FROM "a" GROUP BY "SRCIP"': (
        "window_start", "window_end", "srcIP", "packets per second",
    ),
    'SELECT "select" "from", "select"+1 FROM (SELECT len AS "select" FROM A) "order"': ("from", "select_1"),
    'SELECT "say ""x""" FROM (SELECT proto AS "say ""x""" FROM A) s WHERE s."say ""x""" = 6': ('say "x"',),
    'SELECT sum("a -- b /* c") [RANGE 9 s] FROM (SELECT ts, len "a -- b /* c" FROM A) x': (
        "window_start", "window_end", "sum_a_b_c",
    ),
    'SELECT "left 1"."len", "R".len FROM A "left 1" [RANGE 3 s], B "R" [RANGE 3 s] WHERE "left 1".proto = r.proto': (
        "left 1.len", "R.len",
    ),
    'CREATE STREAM "my stream" AS SELECT ts "order", len FROM A; '
    'SELECT count(*) n [RANGE 9 s, WA "order"] FROM "MY STREAM" HAVING "n" > 1': ("window_start", "window_end", "n"),
    'SELECT ts, len FROM A WHERE srcIP = "10.0.0.1" OR "10.0.0.2" = destIP OR srcIP IN "2001:db8::/32"': ("ts", "len"),
    'SELECT len FROM A WHERE srcMAC IN ("02:00:00:00:00:01", "02-00-00-00-00-07") AND '
    'ts BETWEEN "2024-05-01T12:00:10Z" AND "2024-05-01T12:01:00+00:00"': ("len",),
    # What names something is that, whatever it looks like.
    'SELECT "10.0.0.1", "10.0.0.2" FROM (SELECT len AS "10.0.0.1" FROM A) s WHERE "10.0.0.1" > 60': (
        "10.0.0.1", "10_0_0_2",
    ),
    'SELECT srcIP = "10.0.0.1" AS one, count(*) [RANGE 9 s] FROM A GROUP BY srcIP = "10.0.0.1"': (
        "window_start", "window_end", "one", "count",
    ),
    'SELECT count(*) [RANGE 9 s] FROM A GROUP BY srcIP = "10.0.0.1" HAVING srcIP = "10.0.0.1"': (
        "window_start", "window_end", "count",
    ),
    'SELECT "10.0.0.1", count(*) [RANGE 9 s] FROM A GROUP BY proto AS "10.0.0.1"': (
        "window_start", "window_end", "10.0.0.1", "count",
    ),
    'SELECT x.ts FROM A x [RANGE 3 s] WHERE EXISTS (SELECT y.ts FROM B y [RANGE 3 s] WHERE "y"."srcIP" = "10.0.0.1")': (
        "ts",
    ),
    "SELECT d.len l1, e.len FROM A d [RANGE 2 s] JOIN B UNION A e [RANGE 2 s] ON d.srcIP = e.srcIP": ("l1", "e.len"),
    "SELECT [RANGE 9 s] count(*) n, sum(len) bytes FROM A x GROUP BY proto p": (
        "window_start", "window_end", "n", "bytes",
    ),
    "SELECT p, count(DISTINCT destPort), MAX(len) IS NOT NULL [RANGE 9 s] FROM A GROUP BY proto p": (
        "window_start", "window_end", "p", "count_distinct_destPort", "max_len_is_not_null",
    ),
    "SELECT NOT len BETWEEN 60 AND 0X50 OR TRUE, link = 'A AND B', LEN IN (1, 2), ts + 5 SECONDS, len > 1E2 FROM A": (
        "not_len_between_60_and_0X50_or_true", "link_A_AND_B", "len_in_1_2", "ts_5_seconds", "len_1E2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
@given(sent=traffic(), seed=st.integers(0, 2**32))
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows(text: str, sent: Traffic, seed: int) -> None:
    assert compile_query(text).output.names == QUERIES[text]
    check(text, sent, seed, 2)


REFUSED = {
    'SELECT len FROM A WHERE link = "A"': ("there is no field called A", "a text is written 'A'"),
    'SELECT len FROM A WHERE link = "it\'s"': ("there is no field called it's", "a text is written 'it''s'"),
    'SELECT len FROM A WHERE "srcIPP" = srcIP': ("there is no field called srcIPP", "did you mean srcIP?"),
    'SELECT count(*) [RANGE 1 s] FROM A GROUP BY "src IP"': ("there is no field called src IP", "Double quotes hold"),
    'SELECT len FROM A WHERE len = "10.0.0.1"': ("a number cannot be compared with an address", ""),
    'SELECT len FROM A WHERE srcIP = "10.0.0.0/8"': ("a prefix can stand behind IN only", "IN"),
    'SELECT len FROM A WHERE A."10.0.0.1" = srcIP': ("there is no field called 10.0.0.1", ""),
    "SELECT 'srcIP', count(*) [RANGE 1 s] FROM A GROUP BY srcIP ORDER BY 'srcIP'": ("a constant orders nothing", ""),
    'SELECT b.len FROM A "a.b" [RANGE 1 s], B [RANGE 1 s]': ("has a point in it", "AS name"),
    'SELECT "len 1" FROM (SELECT len AS "len  1" FROM A) s': ("called len 1", 'did you mean "len  1"?'),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_names_nothing_is_refused_with_what_is_valid(text: str) -> None:
    message, hint = REFUSED[text]
    with pytest.raises(QueryError) as caught:
        compile_query(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_quoted_names_go_through_the_whole_command(tmp_path: Path) -> None:
    """The stream's name too, and a column that JSON has to escape."""
    captures = SENT.write(tmp_path)
    text = 'SELECT link, count(*) "say ""x""\\, é" [RANGE 30 s] FROM "eth0 up" UNION B GROUP BY link'
    named = [("eth0 up" if name == "A" else name, path) for name, path in captures]
    outcome = query(text, named)
    assert outcome.code == 0, outcome.error
    assert differences(outcome.rows, answer(text, named).rows) == []
    assert {row["link"] for row in outcome.rows} == {"eth0 up", "B"}
    for form in ("table", "csv", "parquet", "arrow"):
        written = tmp_path / f"rows.{form}"
        assert query(text, named, "--format", form, "-o", str(written)).code == 0
        assert "é".encode() in written.read_bytes()


@pytest.mark.parametrize(
    ("reads", "text", "said"),
    [
        (["Foo=A"], "SELECT len FROM Main", "no -r or -i names a capture for stream Main; named are Foo"),
        (["M1=A"], "SELECT a.ts FROM M1 a [RANGE 1 s], m2 b [RANGE 1 s]", "no -r or -i names a capture for stream m2"),
        (["x=A", "y=B"], "SELECT len FROM Main UNION Other", "a capture for streams Main, Other; named are x, y"),
    ],
)
def test_a_capture_is_bound_to_the_stream_that_it_names(
    reads: list[str], text: str, said: str, tmp_path: Path
) -> None:  # fmt: skip
    files = dict(SENT.write(tmp_path))
    outcome = query(text, [(name, files[stream]) for name, stream in (read.split("=") for read in reads)])
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in " ".join(outcome.error.split()), outcome.error


def test_a_capture_that_the_query_does_not_read_is_left_out_and_said(tmp_path: Path) -> None:
    files = dict(SENT.write(tmp_path))
    outcome = query("SELECT ts FROM Main", [("Main", files["A"]), ("Foo", files["B"])])
    assert outcome.rows == query("SELECT ts FROM Main", [("Main", files["A"])]).rows
    assert outcome.code == 0
    assert "note: the query does not read stream Foo: -r and -i of that name are left out" in outcome.error


def test_names_of_captures_ignore_case_and_one_without_a_name_is_every_stream(tmp_path: Path) -> None:
    path = str(dict(SENT.write(tmp_path))["A"])
    text = "SELECT ts, len FROM Main WHERE len > 100"
    rows = query(text, [], "-r", f"MAIN={path}").rows
    assert rows
    assert query(text, [], "-r", path).rows == rows
