"""The names of result columns in other vocabularies: only the keys of rows differ, and no two columns become one."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.compile import compile_query
from lowmark.query.options import Vocabulary
from lowmark.query.result_names import OFFICIAL, NameClash, name_in, result_names
from lowmark.wire.records.codec import encode
from lowmark.wire.records.verdicts import Correction, LateRow, Merge, WindowSpan
from tests.acceptance.command import lowmark, query
from tests.acceptance.test_golden import at
from tests.naive.frames import frame, write_pcap

FIELDS = [field.name for field in (*PACKET_FIELDS, *DERIVED_FIELDS)]
OTHERS = [names for names in Vocabulary if names is not Vocabulary.LOWMARK]

TALKERS = """SELECT srcIP, proto, count(*), sum(len), avg(len) AS mean, count(distinct destPort) [RANGE 2 s]
FROM Main GROUP BY srcIP, proto"""
QUERIES = [
    TALKERS,
    "SELECT * FROM Main",
    "SELECT conn, community_id, inner.ttl, count(*) AS n [RANGE 3 s] FROM Main GROUP BY conn, community_id, inner.ttl",
    "SELECT srcIP, max(len) [RANGE 3 rows, WA row_num] FROM Main GROUP BY srcIP",
    """SELECT M1.srcIP, M2.destIP AS dst, M1.inner.ttl, M1.ts
    FROM Main AS M1 [RANGE 1 s], Main AS M2 [RANGE 1 s] WHERE M1.srcIP = M2.srcIP""",
]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = [frame(at(number / 3, f"10.0.0.{number % 4}")) for number in range(30)]
    return write_pcap(tmp_path_factory.mktemp("names") / "a.pcap", frames)


@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_rows_are_equal_but_for_the_keys(text: str, capture: Path) -> None:
    plain = query(text, [("Main", capture)])
    assert plain.code == 0, plain.error
    assert plain.rows
    for names in OTHERS:
        other = query(text, [("Main", capture)], "--names", names.value)
        assert other.code == 0, other.error
        shown = result_names(compile_query(text, buckets=1, ends=True), names)
        assert shown
        expected = [{shown.get(key, key): value for key, value in row.items()} for row in plain.rows]
        assert [list(row.items()) for row in other.rows] == [list(row.items()) for row in expected]


def test_every_format_has_the_same_names(capture: Path, tmp_path: Path) -> None:
    heads = {}
    for form in ("jsonl", "csv", "parquet", "table"):
        out = tmp_path / form
        done = lowmark("query", "-r", str(capture), "--format", form, "--names", "ECS", "-o", str(out), TALKERS)
        assert done.code == 0, done.error
        match form:
            case "jsonl":
                heads[form] = list(json.loads(out.read_text().splitlines()[0]))
            case "csv":
                heads[form] = next(csv.reader(io.StringIO(out.read_text())))
            case "parquet":
                heads[form] = pq.read_table(out).schema.names
            case _:
                shown = out.read_text()
    assert heads["jsonl"] == heads["csv"] == heads["parquet"]
    assert heads["csv"] == [
        "event.start", "event.end", "source.ip", "network.iana_number", "network.packets", "network.bytes", "mean",
        "count_distinct_destPort",
    ]  # fmt: skip
    assert all(head in shown for head in heads["csv"][2:])
    assert "event.start" not in shown  # the window stands above its rows


@pytest.mark.parametrize("names", OTHERS)
def test_every_field_has_a_name_of_its_own(names: Vocabulary) -> None:
    shown = [name_in(names, field) for field in FIELDS]
    assert len(set(shown)) == len(shown)
    assert name_in(names, "M1.srcIP") == f"M1.{name_in(names, 'srcIP')}"
    assert name_in(names, "host") == "host"
    if names is not Vocabulary.IPFIX:
        assert all(name.startswith("lowmark.") or field in OFFICIAL for name, field in zip(shown, FIELDS, strict=True))


def test_what_is_named_officially_is_a_field_or_an_aggregate_as_it_is_shown() -> None:
    aggregates = (
        "SELECT count(*), sum(len), sum(ip_len), sum(payload_len), min(ip_len), max(ip_len), min(ttl), max(ttl), "
    )
    plan = compile_query(aggregates + "bit_or(tcp_flags) [RANGE 1 s] FROM A")
    assert {*FIELDS, *plan.output.names} >= OFFICIAL.keys()


def test_bounds_of_windows_over_rows_are_no_times() -> None:
    plan = compile_query("SELECT count(*) [RANGE 3 rows, WA row_num] FROM A")
    assert result_names(plan, Vocabulary.ECS) == {"count": "network.packets"}


def test_an_alias_stays() -> None:
    plan = compile_query("SELECT destIP AS srcIP, ts/60 AS len, count(*) FROM A GROUP BY destIP, ts/60")
    assert result_names(plan, Vocabulary.IPFIX) == {"count": "packetDeltaCount"}
    plan = compile_query("SELECT len, count(*) FROM A GROUP BY ts/60 AS len")
    assert result_names(plan, Vocabulary.IPFIX) == {"count": "packetDeltaCount"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CREATE STREAM x AS SELECT ts, destPort AS count FROM A; SELECT ts, count FROM x", {"ts": "@timestamp"}),
        ("SELECT Count, x.len FROM (SELECT ts, destPort AS count, ttl AS len FROM A) AS x", {}),
        ("CREATE STREAM x AS SELECT ts, ttl AS len FROM A; SELECT sum(len) [RANGE 1 s] FROM x", {}),
        (
            """CREATE STREAM x AS SELECT ts, srcIP, ttl AS srcPort FROM A; SELECT M.srcPort, N.srcIP
            FROM x AS M [RANGE 1 s], A AS N [RANGE 1 s] WHERE M.srcIP = N.srcIP""",
            {"N.srcIP": "N.source.ip"},
        ),
    ],
)
def test_what_an_alias_further_in_names_is_not_what_it_is_called(text: str, shown: dict[str, str]) -> None:
    found = result_names(compile_query(text), Vocabulary.ECS)
    assert {name: other for name, other in found.items() if not name.startswith("window_")} == shown


@pytest.mark.parametrize(
    ("text", "packets"),
    [
        ("SELECT count(*) [RANGE 1 s] FROM A UNION B", True),
        ("CREATE STREAM x AS SELECT * FROM A WHERE destPort = 80; SELECT count(*) [RANGE 1 s] FROM x", True),
        ("SELECT count(*) [RANGE 1 s] FROM (SELECT * FROM A UNION B WHERE ttl = 3) UNION B", True),
        (
            """CREATE STREAM x AS SELECT srcIP, max(ttl) AS most [RANGE 1 s] FROM A GROUP BY srcIP;
            SELECT count(*) [RANGE 1 s, WA window_end] FROM x""",
            False,
        ),
        (
            """SELECT count(*) [RANGE 1 s, WA ts] FROM (SELECT M.ts AS ts FROM A AS M [RANGE 1 s], B AS N [RANGE 1 s]
            WHERE M.srcIP = N.srcIP)""",
            False,
        ),
        (
            """SELECT count(*) [RANGE 1 s, WA ts] FROM (SELECT M.ts AS ts FROM A AS M [RANGE 1 s]
            JOIN B AS N [RANGE 1 s] ON M.srcIP = N.srcIP)""",
            False,
        ),
    ],
)
def test_a_number_of_rows_is_no_number_of_packets(text: str, packets: bool) -> None:
    assert (result_names(compile_query(text), Vocabulary.ECS).get("count") == "network.packets") is packets


def test_two_columns_of_one_name_are_refused(capture: Path) -> None:
    text = "SELECT tcp_flags, bit_or(tcp_flags) [RANGE 1 s] FROM A GROUP BY tcp_flags"
    with pytest.raises(NameClash, match="tcp_flags and bit_or_tcp_flags would both be called tcpControlBits"):
        result_names(compile_query(text), Vocabulary.IPFIX)
    refused = query(text, [("A", capture)], "--names", "ipfix")
    assert refused.code == 2
    assert "give one of them an alias" in " ".join(refused.error.split())
    assert not refused.out


@given(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=8, unique=True), st.sampled_from(OTHERS))
def test_selected_fields_never_meet(fields: list[str], names: Vocabulary) -> None:
    plan = compile_query(f"SELECT {', '.join(fields)} FROM A")
    shown = plan.output.renamed(result_names(plan, names))
    assert len(set(shown.names)) == len(plan.output)
    assert [column.kind for column in shown] == [column.kind for column in plan.output]


def test_late_rows_and_corrections_have_the_names_of_the_rows() -> None:
    names = {"srcIP": "source.ip", "count": "network.packets"}
    span = WindowSpan(1, 2)
    late = LateRow("q", 1, 0, "tap", span, "a", "b", 3, {"srcIP": "10.0.0.1", "count": 3, "mean": 1.5})
    assert late.renamed(names).row == {"source.ip": "10.0.0.1", "network.packets": 3, "mean": 1.5}
    correction = Correction("q", 1, 0, span, "a", "b", 3, {"count": Merge.ADD}, ({"srcIP": "10.0.0.1", "count": 3},))
    renamed = correction.renamed(names)
    assert renamed.deltas == ({"source.ip": "10.0.0.1", "network.packets": 3},)
    assert renamed.merge == {"network.packets": Merge.ADD}
    assert encode(renamed).headers == encode(correction).headers


def test_explain_shows_the_schema_with_them() -> None:
    told = lowmark("explain", "--json", "--names", "ecs", TALKERS)
    assert list(json.loads(told.out)["result"]["properties"])[2:5] == [
        "source.ip",
        "network.iana_number",
        "network.packets",
    ]
    assert "source.ip" in lowmark("explain", "--names", "ecs", TALKERS).out
