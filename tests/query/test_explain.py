"""What explain says: text for people, JSON for programs, the schema of result rows."""

from __future__ import annotations

import json

import pytest

from lowmark.query.compile import compile_query
from lowmark.query.explain.report import describe, render, result_schema
from lowmark.query.expr.expressions import Call, Expr, Literal, Op
from lowmark.query.expr.print import span_text, text_of
from lowmark.query.options import Limits
from lowmark.wire.rows.schema import Kind
from tests.query import golden

TOP = """SELECT srcIP, sum(len) AS bytes, 100.0 * sum(len) / total(sum(len)) AS percent [RANGE 1 minute, SLIDE 20 s]
FROM Main WHERE link <> 'x' AND srcIP IN 10.0.0.0/8 GROUP BY srcIP ORDER BY bytes DESC LIMIT 3"""

TOP_TEXT = """\
query talkers, stage {stage}, 8 buckets

in the capture processes
  node n0
    reads        Main
    keeps        (link <> 'x') AND (srcIP IN 10.0.0.0/8)
    panes        20 s of ts
    groups by    srcIP
    folds        add(len)
    bucket by    srcIP

above, in each bucket
  step 0
    does         merges partials into windows
    reads        n0
    window       1 min every 20 s of ts, 3 panes each
    groups by    srcIP
    gives        sum_len
    strategy     paned
    chosen       as it takes the fewest merges a window
    assumes      10k partials a pane, of 10,000 tuples a second and at most 10,000 groups
    costs        paned 30k merges (eq. 6.2), wid 165k merges (eq. 6.3), adapt 37.5k merges (eq. 6.1, by group)
    panes pay    from 3 tuples a partial on (eq. 6.2 against 6.4); 20 are assumed
    keeps of     a group in every pane, or in one: paned 4 or 2 states, wid 3 or 3 states, adapt 3 or 1 states
  step 1
    does         reduces rows to partials of the next stage
    reads        step 0
    panes        20 s of window_end, beginning at 1 ns
    folds        add(sum_len), add(0 + (NOT (sum_len IS NULL)))
  step 2
    does         sends them through an exchange
    reads        step 1
    sends to     talkers.x0
  step 3
    does         reduces rows to partials of the next stage
    reads        step 0
    panes        20 s of window_end, beginning at 1 ns
    sends        window_start, window_end, srcIP, sum_len
  step 4
    does         adds up what all buckets have for the totals of a window
    reads        talkers.x0, step 3
    window       1 min every 20 s of ts, 3 panes each
    gives        total_sum_len
  step 5
    does         ends the SELECT
    reads        step 4
    order        sum_len desc, srcIP
    limit        3
    selects      window_start, window_end, srcIP, sum_len, total_sum_len
  step 6
    does         reduces rows to partials of the next stage
    reads        step 5
    panes        20 s of window_end, beginning at 1 ns
    sends        window_start, window_end, srcIP, sum_len, total_sum_len
  step 7
    does         sends them through an exchange
    reads        step 6
    sends to     talkers.x1
  step 8
    does         puts all rows of a window together
    reads        talkers.x1
    window       1 min every 20 s of ts, 3 panes each
  step 9
    does         ends the SELECT
    reads        step 8
    order        sum_len desc, srcIP
    limit        3
    selects      window_start, window_end, srcIP, sum_len AS bytes, (100.0 * sum_len) / total_sum_len AS percent

between the buckets, topic exchange.{exchange}
  exchange talkers.x0
    because      total() is over all groups of a window
    goes to      all buckets
  exchange talkers.x1
    because      LIMIT is over all rows of a window: of each bucket its first 3 go there
    goes to      one bucket

result
  window_start  time
  window_end    time
  srcIP         ip
  bytes         int, may be null
  percent       float, may be null"""


def test_text() -> None:
    plan = compile_query(TOP, name="talkers", buckets=8)
    assert plan.exchanges is not None
    assert render(plan) == TOP_TEXT.format(stage=plan.stage.fingerprint, exchange=plan.exchanges.fingerprint)


def test_panes_of_what_is_multiplied_say_how_they_are_counted() -> None:
    text = render(compile_query("SELECT count(*) [RANGE 90, SLIDE 40, WA ts/60*60 + 5] FROM Main"))
    assert "panes        1 min of ts; the n-th is of pane ((n * 60) + 5) / 10\n" in text
    assert "90 every 40 of ts_60_60_5, 9 panes each" in text


def test_what_needs_one_bucket_says_why() -> None:
    reason = "one bucket in place of 8: windows over rows without PA count the tuples of the whole stream"
    assert reason in render(compile_query("SELECT count(*) [RANGE 9 rows, WA row_num] FROM Main", buckets=8))


def test_json() -> None:
    described = json.loads(json.dumps(describe(compile_query(TOP, name="talkers", buckets=8))))
    assert described["query"] == "talkers"
    assert described["buckets"] == 8
    assert [exchange["goes_to"] for exchange in described["exchanges"]] == ["all buckets", "one bucket"]
    assert described["ordered"] is True
    assert described["nodes"][0]["panes"] == "20 s of ts"
    assert described["window"] == {
        "kind": "sliding", "attribute": "ts", "range": 60 * 10**9, "slide": 20 * 10**9, "pane": 20 * 10**9,
        "text": "1 min every 20 s of ts, 3 panes each",
    }  # fmt: skip
    assert [step["step"] for step in described["steps"]] == [
        "aggregate", "reduce", "send", "reduce", "totals", "finish", "reduce", "send", "gather", "finish",
    ]  # fmt: skip


@pytest.mark.parametrize("block", golden.read("plans.txt"), ids=lambda block: block.head)
def test_every_plan_is_told(block: golden.Block) -> None:
    plan = compile_query(block.sql, streams=block.streams)
    assert json.dumps(describe(plan))
    text = render(plan)
    assert all(name in text for name in plan.output.names)
    assert all(stream in text for node in plan.stage.nodes for stream in node.streams)


def test_schema_of_result_rows() -> None:
    plan = compile_query("SELECT ts, srcIP, link, len / ttl AS q, len > 5 AS b, ts - arrival_ts AS d, 0.5 AS f FROM A")
    schema = result_schema(plan.output)
    assert schema["required"] == ("ts", "srcIP", "link", "q", "b", "d", "f")
    assert schema["properties"] == {
        "ts": {"type": "string", "format": "date-time"},
        "srcIP": {"type": "string", "description": "an IPv4 or IPv6 address"},
        "link": {"type": "string", "enum": ["A"]},
        "q": {"type": ["integer", "null"]},
        "b": {"type": "boolean"},
        "d": {"type": ["number", "null"], "description": "seconds"},
        "f": {"type": "number"},
    }


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (Literal(1, Kind.BOOL), "true"), (Literal(None, Kind.INT), "NULL"), (Literal(0.1, Kind.FLOAT), "0.1"),
        (Literal(0, Kind.TIME), "'1970-01-01T00:00:00Z'"), (Literal(90 * 10**9, Kind.DURATION), "90 s"),
        (Literal(4 << 128 | 0x0A000001, Kind.IP), "10.0.0.1"), (Literal(6 << 128 | 1, Kind.IP), "::1"),
        (Literal(6 << 128 | 0xFFFF0A000001, Kind.IP), "::ffff:10.0.0.1"),
        (Literal(5, Kind.MAC), "00:00:00:00:00:05"), (Literal(1, Kind.STR), "'b'"), (Literal(-3, Kind.INT), "-3"),
        (Call(Op.NOT, (Call(Op.IS_NULL, (Literal(2, Kind.INT),), Kind.BOOL, False),), Kind.BOOL, False),
         "NOT (2 IS NULL)"),
    ],
)  # fmt: skip
def test_expressions_as_text(literal: Expr, text: str) -> None:
    assert text_of(literal, ("a", "b")) == text


def test_lengths_of_time() -> None:
    lengths = (60 * 10**9, 10**9, 5 * 10**6, 1_500_000_000, 7, 0)
    assert [span_text(ns) for ns in lengths] == ["1 min", "1 s", "5 ms", "1500 ms", "7 ns", "0 ns"]


def test_approximate_aggregates_say_how_far_they_err_and_what_a_group_keeps() -> None:
    sql = "SELECT srcIP, {} [RANGE 1 minute] FROM Main GROUP BY srcIP"
    both = "approx_count_distinct(destIP) AS d, approx_quantile(len, 0.5) AS q"
    one, two, exact = (
        compile_query(sql.format(calls), streams={"Main": 1}).notes
        for calls in (both.partition(",")[0], both, f"{both}, heavy_hitter(destPort, 1) AS h")
    )
    errors = (
        "approx_count_distinct_destIP has a standard error of 1.1%",
        "approx_quantile_len_0_5 is within 1/128 of the value at that rank",
    )
    assert one == (errors[0], "state of a group in each pane: at most 3,328 rows of 56 bytes (182 KiB)")
    assert two[:2] == errors
    assert two[2].startswith(
        "state of a group in each pane: at most 3,328 · 7,424 rows of 64 bytes (1.5 GiB), one for each"
    )
    many = ", ".join(f"approx_quantile(len + {n}, 0.5) AS q{n}" for n in range(5))
    assert "rows of 80 bytes (1,565 EiB)" in compile_query(sql.format(many), streams={"Main": 1}).notes[-1]
    assert exact == (
        *errors,
        "state grows with the distinct values in a window: a holistic aggregate keeps a count of each",
    )


LANDMARK = "SELECT srcIP, {} [RANGE ALL, SLIDE 1 minute] FROM Main GROUP BY srcIP"


@pytest.mark.parametrize(("sql", "kept"), [
    (LANDMARK.format("count(*)"), "srcIP"),
    (LANDMARK.format("heavy_hitter(destPort, 1), heavy_hitter_count(destPort, 1) AS n, count(distinct srcIP) AS c"),
     "srcIP, what heavy_hitter_destPort_1 counts by"),
    ("SELECT median(len) [RANGE ALL, SLIDE 1 minute] FROM Main", "what median_len counts by"),
    ("SELECT srcIP, count(*) [RANGE 5 rows, WA row_num, PA srcIP] FROM Main", "srcIP"),
])  # fmt: skip
def test_what_grows_for_ever_names_its_limit(sql: str, kept: str) -> None:
    (note,) = (note for note in compile_query(sql, limits=Limits(groups=1_234)).notes if "grows" in note)
    assert f"every new ({kept})" in note
    assert "stops at more than 1,234 in a bucket (limits.groups)" in note


def test_a_landmark_window_of_approximate_values_tells_their_error() -> None:
    first, second = compile_query(LANDMARK.format("approx_count_distinct(destIP) AS d")).notes
    assert first == "approx_count_distinct_destIP has a standard error of 1.1%"
    assert "every new (srcIP, what approx_count_distinct_destIP counts by)" in second


def test_what_is_let_go_of_when_idle_is_told() -> None:
    sql = "SELECT srcIP, count(*) [RANGE 5 minutes, RATTR ts, SLIDE {} rows, SATTR row_num, PA srcIP] FROM Main"
    many, each = (
        " ".join(compile_query(sql.format(n), limits=Limits(expire_idle_ns=90 * 10**9)).notes) for n in (3, 1)
    )
    assert "a (srcIP) without a tuple for more than 90 s of stream time is dropped (expire_idle)" in many
    assert "lossy: numbering" in many
    assert "without a tuple for more than 90 s" in each
    assert "lossy" not in each


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("srcIP IN 10.0.0.0/8", "srcIP IN 10.0.0.0/8"),
        ("srcIP IN (10.0.0.1, 2001:db8::/32, 10.0.0.2)", "srcIP IN (10.0.0.1, 10.0.0.2, 2001:db8::/32)"),
        ("len NOT IN (7, 5, 80, 81, 82, 6)", "NOT (len IN (5 to 7, 80 to 82))"),
        ("destPort = 80 OR destPort = 81", "destPort IN (80, 81)"),
        (f"len IN ({', '.join(map(str, range(0, 200_000, 2)))})", "len IN (0, 2, 4, 6, 8, 10, 12, 14, … 99,992 more)"),
        ("link IN ('b', 'x', 'a')", "link IN ('a', 'b')"),
    ],
)
def test_lists_are_told_in_order_and_long_ones_by_how_they_begin(where: str, told: str) -> None:
    plan = compile_query(f"SELECT len FROM a UNION b WHERE {where}")
    assert [line.split(None, 1)[1] for line in render(plan).splitlines() if line.split()[:1] == ["keeps"]] == [told]
