"""Queries with their captures and the rows that they must give, to be run together in one job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lowmark.app.traffic import Handshakes, TrafficSpec, write_capture, write_links
from lowmark.query.parse import syntax
from lowmark.query.parse.parser import parse
from tests.acceptance.command import Row
from tests.acceptance.test_cases import FOLDERS, Case
from tests.acceptance.test_golden import GOLDEN as FIRST_GOLDEN
from tests.acceptance.test_golden import at, written
from tests.acceptance.test_golden_windows import GOLDEN as WINDOW_GOLDEN
from tests.naive.compare import differences, wrong_orders
from tests.naive.evaluate import answer, is_ordered

Captures = Sequence[tuple[str, Path]]

GOLDEN = {**FIRST_GOLDEN, **WINDOW_GOLDEN}


@dataclass(frozen=True)
class PipelineCase:
    """`captures`: (stream, file), a stream's sources in their order. Its streams have names of its own in the job
    where `apart`: other cases have other captures for streams called the same."""

    name: str
    text: str
    captures: Captures
    expected: Sequence[Row]
    apart: bool = True
    numbered: bool = False  # row_num is shown, and over several sources only arrival decides it
    damaged: bool = False  # a capture ends too soon
    share: str | None = None  # it has one stage with others of that name

    @cached_property
    def streams(self) -> Mapping[str, str]:
        """The name in the job of each stream."""
        prefix = f"{re.sub(r'[^A-Za-z0-9]', '_', self.name)}_" if self.apart else ""
        return {stream: f"{prefix}{stream}" for stream in dict.fromkeys(stream for stream, _ in self.captures)}

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, Path]]:
        """By name: stream and file. Names sort as a stream's captures stand: that is the order among equal times."""
        found: dict[str, tuple[str, Path]] = {}
        for stream, path in self.captures:
            new = self.streams[stream]
            number = sum(of == new for of, _ in found.values()) + 1
            found[f"{new}-{number}"] = new, path
        return found

    @cached_property
    def sql(self) -> str:
        """The query over the streams as the job calls them."""
        names = {stream.lower(): new for stream, new in self.streams.items()}
        text = self.text
        for identifier in sorted(_stream_names(parse(text)), key=lambda found: found.span.start, reverse=True):
            new = names.get(identifier.text.lower(), identifier.text)
            text = text[: identifier.span.start] + new + text[identifier.span.end :]
        return text

    def rows(self, lines: Sequence[bytes]) -> list[Row]:
        """Rows as the job has written them, with the streams' own names."""
        text = b"\n".join(lines).decode()
        for stream, new in sorted(self.streams.items(), key=lambda pair: -len(pair[1])):
            text = text.replace(new, stream)
        return [json.loads(line) for line in text.splitlines()]

    def wrong(self, rows: Sequence[Row]) -> list[str]:
        """What is not as it must be: [] when all is well."""
        expected = self.expected
        if self.numbered:
            numbers = sorted(int(str(row["row_num"])) for row in rows)
            if numbers != list(range(1, len(rows) + 1)):
                return [f"row_num is no numbering: {numbers[:20]}…"]
            rows, expected = _without_number(rows), _without_number(expected)
        wrong = differences(rows, expected)
        return wrong or (wrong_orders(rows, expected) if is_ordered(self.text) else [])


def _stream_names(script: syntax.Script) -> list[syntax.Identifier]:
    found = []
    for node in syntax.walk(script):
        if isinstance(node, syntax.StreamRef):
            found.append(node.name)
        elif isinstance(node, syntax.FieldRef | syntax.Star) and node.input is not None:
            found.append(node.input)
    return found


def _without_number(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "row_num"} for row in rows]


OWN = {
    "tumbling": "SELECT srcIP, count(*), sum(len), max(len) [RANGE TUMBLING 5 seconds] FROM Main GROUP BY srcIP",
    "sizes": "SELECT srcIP AS host, min(len), avg(ttl), first(destPort) [RANGE 20 s, SLIDE 5 s] FROM Main "
    "GROUP BY srcIP HAVING count(*) > 1",
    "sliding": "SELECT srcIP, destIP, count(*), avg(len), last(len) [RANGE 10 s, SLIDE 2500 ms, WA ts] FROM Main "
    "WHERE proto = 6 GROUP BY srcIP, destIP",
    "union": "SELECT link, proto, count(*), median(len), count(distinct srcIP) [RANGE 20 s, SLIDE 5 s] "
    "FROM Left UNION Right GROUP BY link, proto",
    "having": "SELECT srcIP, sum(len) AS bytes [RANGE 10 s, SLIDE 5 s] FROM Left GROUP BY srcIP "
    "HAVING sum(len) >= 0.04 * total(sum(len))",
    "selection": "SELECT ts, srcIP, destPort, len * 8 AS bits, row_num FROM Main WHERE proto = 17",
    "syns": "SELECT ts, link, srcIP, destIP, tcp_flags FROM Left UNION Right WHERE tcp_flags & 2 = 2",
    "ungated": "SELECT minute, destPort, count(*) FROM Left UNION Main GROUP BY ts/60 AS minute, destPort "
    "HAVING count(*) > 2",
    "top": "SELECT destIP, count(*) AS n [RANGE 10 s] FROM Right GROUP BY destIP ORDER BY n DESC LIMIT 3",
    "ordered": "CREATE STREAM busy AS SELECT destIP, count(*) AS n [RANGE 10 s] FROM Right GROUP BY destIP; "
    "SELECT * FROM busy WHERE n > 1 ORDER BY window_end, n DESC",
    "distinct": "SELECT DISTINCT srcIP, destPort [RANGE 20 s, SLIDE 10 s] FROM Right",
    "rows": "SELECT proto, count(*), first(len), max(destIP) AS m [RANGE 50 rows, SLIDE 20 rows, WA row_num] FROM Left "
    "WHERE len > 60 GROUP BY proto",
    "partitions": "SELECT srcIP, proto, count(*), last(len) [RANGE 9 rows, SLIDE 4 rows, WA row_num, PA srcIP] "
    "FROM Left UNION Right GROUP BY proto HAVING total(count(*)) > 5",
    "by-tuple": "SELECT destIP, max(len), count(distinct srcIP) [RANGE 5 s, RATTR ts, SLIDE 3 rows, SATTR row_num, "
    "PA destIP] FROM Main",
    "by-rank": "SELECT count(*), median(len) [RANGE 5 s, RATTR ts, SLIDE 7 rows, SATTR rank(ts)] FROM Right",
    "peaks": "CREATE STREAM seconds AS SELECT srcIP, count(*) AS n [RANGE 1 s] FROM Left GROUP BY srcIP; "
    "SELECT srcIP, max(n) AS peak [RANGE 20 s, WA window_end] FROM seconds GROUP BY srcIP",
    "pairs": "SELECT l.ts, r.ts, l.srcIP, l.len + r.len AS bytes FROM Left AS l [RANGE 3 s], Right AS r [RANGE 2 s] "
    "WHERE l.srcIP = r.destIP AND l.destIP = r.srcIP AND l.proto = r.proto",
    "punctuated": "SELECT /*+ algorithm(punctuated) */ l.ts, r.ts, l.srcIP, l.len + r.len AS bytes FROM Left AS l "
    "[RANGE 3 s], Right AS r [RANGE 2 s] WHERE l.srcIP = r.destIP AND l.destIP = r.srcIP AND l.proto = r.proto",
    "connections": "SELECT s.conn, count(*) AS packets [RANGE 10 s, WA r.ts] FROM Left AS s [RANGE 20 s], Right AS r "
    "[RANGE 1 s] WHERE s.tcp_flags & 18 = 2 AND s.conn = r.conn GROUP BY s.conn PUNCTUATE ON conn LINGER 1 s",
    "answered": "SELECT syn.srcIP, count(*), max(ack.ts) AS latest [RANGE 10 s, SLIDE 5 s, WA syn.ts] FROM Left AS syn "
    "[RANGE 5 s], Right AS ack [RANGE 1 s] WHERE syn.srcIP = ack.destIP AND syn.destIP = ack.srcIP AND "
    "syn.tcp_flags & 18 = 2 AND ack.tcp_flags & 18 = 18 GROUP BY syn.srcIP",
    "unanswered": "SELECT ts, srcIP, destPort FROM Left AS syn [RANGE 5 s] WHERE tcp_flags & 18 = 2 AND NOT EXISTS "
    "(SELECT ts FROM Right AS ack [RANGE 1 s] WHERE syn.srcIP = ack.destIP AND syn.srcPort = ack.destPort)",
    "taps": "SELECT /*+ buffer(hybrid) */ a.ts, b.ts, c.ts, a.len + b.len AS bytes FROM (SELECT * FROM Left WHERE "
    "tcp_flags & 18 = 2) AS a, (SELECT * FROM Right WHERE tcp_flags & 2 = 2) b, (SELECT * FROM Main WHERE len > 999) "
    "AS c WHERE a.ts/200 ms = b.ts/200 ms AND b.ts/200 ms = c.ts/200 ms",
    "twice-met": "SELECT m.t, m.host, c.len FROM (SELECT /*+ buffer(sort) */ a.ts AS t, a.srcIP AS host FROM (SELECT * "
    "FROM Left WHERE tcp_flags & 2 = 2) AS a, (SELECT * FROM Right WHERE tcp_flags & 2 = 2) AS b WHERE a.ts/2 = b.ts/2 "
    "AND a.srcIP = b.destIP) AS m, (SELECT * FROM Left WHERE proto = 6) AS c WHERE m.t/2 = c.ts/2 AND m.host = c.srcIP",
    "both-ends": "CREATE STREAM sent AS SELECT srcIP AS host, count(*) AS n [RANGE 10 s, SLIDE 5 s] FROM Left "
    "GROUP BY srcIP; CREATE STREAM best AS SELECT destIP AS host, count(*) AS n [RANGE 10 s, SLIDE 5 s] FROM Right "
    "GROUP BY destIP ORDER BY n DESC LIMIT 3; SELECT * FROM sent UNION best WHERE n > 1",
    "sizes-and-syns": "CREATE STREAM big AS SELECT srcIP, max(len) AS n [RANGE 20 s] FROM Left GROUP BY srcIP; "
    "SELECT * FROM (SELECT srcIP, n FROM big) UNION (SELECT srcIP, len AS n FROM Main WHERE tcp_flags & 2 = 2)",
    "seen": "SELECT DISTINCT ts / 20 AS t, srcIP, destPort FROM Left UNION Main WHERE proto = 6",
    "levels": "CREATE STREAM there AS SELECT destIP, count(*) AS n [RANGE 5 s] FROM Left GROUP BY destIP; "
    "CREATE STREAM back AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM Right GROUP BY srcIP; "
    "CREATE STREAM third AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM Main GROUP BY srcIP; "
    "SELECT there.window_start, destIP, back.srcIP, there.n, back.n, third.n FROM there FULL JOIN back "
    "ON there.destIP = back.srcIP FULL JOIN third [RANGE TUMBLING 5 s, WA window_start] ON back.srcIP = third.srcIP",
}
"""Over captures that are generated: `Main` of one source, `Left` and `Right` of two."""

SHARED = {"tumbling": "hosts", "sizes": "hosts"}
"""By query: the name that it has in common with those whose stage is its own."""


def own_cases(folder: Path) -> list[PipelineCase]:
    """Queries that share streams, and one over a capture that is damaged."""
    spec = TrafficSpec(packets=900, duration_ns=65 * 10**9, groups=48, zipf=0.8, jitter_ns=1_500_000_000)
    write_capture(folder / "main.pcap", spec)
    links = [folder / name for name in ("left-1.pcap", "right-1.pcap", "left-2.pcap", "right-2.pcap")]
    write_links(links[0], links[1], spec, Handshakes(count=60))
    later = TrafficSpec(packets=500, duration_ns=40 * 10**9, start_ns=spec.start_ns + 31 * 10**9, groups=24, seed=5)
    write_links(links[2], links[3], later, Handshakes(count=20))
    captures = [("Main", folder / "main.pcap")]
    captures += [(name, folder / f"{name.lower()}-{number}.pcap") for name in ("Left", "Right") for number in (1, 2)]
    cases = []
    for name, text in OWN.items():
        read = [(stream, path) for stream, path in captures if re.search(rf"\b{stream}\b", text)]
        cases.append(
            PipelineCase(f"own-{name}", text, read, _brute_force(text, read), apart=False, share=SHARED.get(name))
        )
    return [*cases, _damaged(folder)]


def _damaged(folder: Path) -> PipelineCase:
    ((_, path),) = written(folder, {"torn": [at(1), at(2), at(3)]})
    path.write_bytes(path.read_bytes()[:-1])
    text = "SELECT count(*) [RANGE 10 s] FROM Torn"
    captures = [("Torn", path)]
    return PipelineCase("own-damaged", text, captures, _brute_force(text, captures), damaged=True)


def _brute_force(text: str, captures: Captures) -> list[Row]:
    return [dict(row) for row in answer(text, captures).rows]


def golden_cases(folder: Path) -> list[PipelineCase]:
    """Small captures whose answers were worked out by hand."""
    cases = []
    for name, golden in GOLDEN.items():
        place = folder / name
        place.mkdir(parents=True)
        cases.append(PipelineCase(f"golden-{name}", golden.query, written(place, golden.streams), golden.rows))
    return cases


def public_cases() -> list[PipelineCase]:
    """The acceptance set; [] where it is not."""
    cases = [Case(folder) for folder in FOLDERS]
    return [
        PipelineCase(
            case.folder.name, case.query, case.captures, case.rows, damaged=case.exit_code == 3,
            numbered=len(case.captures) > 1 and bool(case.rows) and "row_num" in case.rows[0],
        )
        for case in cases
        if case.exit_code != 2 and not (len(case.captures) > 1 and _BY_ARRIVAL.search(case.query))
    ]  # fmt: skip


_BY_ARRIVAL = re.compile(r"\bS?(WA|WATTR|ATTR) +row[_-]num\b", re.IGNORECASE)
"""Windows in the order of arrival, which over several sources is another one in every run."""


def case_names() -> list[str]:
    """Of `every_case`, known before anything is written."""
    rest = [case.name for case in public_cases()] or [f"golden-{name}" for name in GOLDEN]
    return [*(f"own-{name}" for name in OWN), "own-damaged", *rest]


def every_case(folder: Path) -> list[PipelineCase]:
    """Our own, and the acceptance set; where that is not, the golden ones in its place."""
    return [*own_cases(folder), *(public_cases() or golden_cases(folder))]
