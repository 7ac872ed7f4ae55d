"""LIMIT of all rows: the first ones in the order of the stream, and the query ends with them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.traffic import TrafficSpec, write_capture
from tests.acceptance.command import lowmark, query
from tests.acceptance.test_golden import at, clock
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.naive.frames import Spec, frame, write_pcap

SQL = "SELECT ts, srcPort, link FROM {} WHERE destPort = 80"


def packets(first: int, seconds: Sequence[float]) -> list[Spec]:
    """Of a source, numbered by their source ports; every third one is no row."""
    return [at(second, ports=(first + number, 81 if number % 3 == 2 else 80)) for number, second in enumerate(seconds)]


def capture(folder: Path, name: str, specs: Sequence[Spec]) -> Path:
    return write_pcap(folder / f"{name}.pcap", map(frame, specs))


def ports(specs: Sequence[Spec]) -> list[int]:
    return [spec.ports[0] for spec in specs if spec.ports[1] == 80]


SHUFFLED = [5.0, 1.0, 3.0, 2.0, 9.0, 2.5, 8.0, 0.5, 7.0]


@pytest.mark.parametrize("limit", [0, 1, 4, 6, 100])
def test_of_one_source_they_are_the_first_in_the_file(tmp_path: Path, limit: int) -> None:
    specs = packets(1000, SHUFFLED)
    found = query(f"{SQL.format('M')} LIMIT {limit}", [("M", capture(tmp_path, "a", specs))])
    assert (found.code, [row["srcPort"] for row in found.rows]) == (0, ports(specs)[:limit])
    assert f"{min(limit, 6)} rows: exact" in found.error.replace("1 row:", "1 rows:")


@given(st.data())
def test_of_several_they_are_the_first_by_time_then_stream_then_source(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    seconds = st.lists(st.integers(0, 6).map(float), max_size=8)
    sources = [packets(1000 * (place + 1), data.draw(seconds)) for place in range(3)]
    names = ("N", "M", "M")
    reads = [(name, capture(folder, str(place), sources[place])) for place, name in enumerate(names)]
    limit = data.draw(st.integers(0, 20))
    found = query(f"{SQL.format('N UNION M')} LIMIT {limit}", reads)
    order = [
        (spec.ts, names[place], place, position)
        for place, specs in enumerate(sources)
        for position, spec in enumerate(specs)
        if spec.ports[1] == 80
    ]
    expected = [sources[place][position].ports[0] for _, _, place, position in sorted(order)]
    assert (found.code, [row["srcPort"] for row in found.rows]) == (0, expected[:limit]), found.error


def test_by_an_order_that_is_complete_as_the_stream_goes_on(tmp_path: Path) -> None:
    read = [("M", capture(tmp_path, "a", packets(1000, SHUFFLED)))]
    found = query("SELECT ts FROM M ORDER BY ts LIMIT 3", read)
    assert [row["ts"] for row in found.rows] == [clock(f"12:00:{second}") for second in ("00.500", "01", "02")]


def test_what_comes_behind_them_is_not_read(tmp_path: Path) -> None:
    big = tmp_path / "big.pcap"
    write_capture(big, TrafficSpec(packets=100_000, groups=20))
    found = query("SELECT ts FROM M LIMIT 5", [("M", big)])
    assert (found.code, len(found.rows)) == (0, 5)
    assert "32,768 frames received" in found.error  # a block
    assert "LIMIT 5: the query stopped reading after these rows" in found.error


@pytest.mark.slow
def test_a_stream_that_goes_on_ends_with_them(tmp_path: Path) -> None:
    """As `tcpdump -c 5` does, of a pipe that stays open."""
    data = capture(tmp_path, "a", [at(second) for second in range(9)]).read_bytes()
    with Command("query", "-r", "-", "--format", "jsonl", "SELECT ts FROM M LIMIT 5", stdin=subprocess.PIPE) as command:
        assert command.process.stdin is not None
        command.process.stdin.write(data)
        command.process.stdin.flush()
        await_true(lambda: command.process.poll() is not None)
        assert command.wait() == 0, command.error
    assert [row["ts"] for row in command.rows] == [clock(f"12:00:0{second}") for second in range(5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT ts FROM (SELECT ts FROM Main LIMIT 3) AS x", "LIMIT ends a query, and a subquery has no end"),
        ("CREATE STREAM x AS SELECT ts FROM Main LIMIT 3; SELECT ts FROM x", "and a created stream has no end"),
        (
            "SELECT a.ts FROM Main [RANGE 1 s] AS a, Main [RANGE 1 s] AS b WHERE a.conn = b.conn LIMIT 3",
            "LIMIT needs ORDER BY: which of these rows are first?",
        ),
        ("SELECT ts FROM Main ORDER BY len LIMIT 3", "this order is never complete: the stream has no end"),
        ("SELECT count(*) [RANGE 1 s] FROM Main LIMIT 3", "LIMIT is within each window"),
    ],
)
def test_refused(text: str, said: str) -> None:
    found = lowmark("explain", text)
    assert (found.code, found.out) == (2, "")
    assert said in found.error


def test_explain_says_that_the_query_ends() -> None:
    found = lowmark("explain", "SELECT ts FROM Main LIMIT 3")
    assert found.code == 0, found.error
    assert "the query ends with its LIMIT, in `lowmark query`: a job refuses it" in found.out
