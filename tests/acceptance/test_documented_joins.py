"""The examples of joins in the guide: the command answers them, by the algorithm that their section describes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lowmark.query.parse import syntax as s
from lowmark.query.parse.parser import parse
from tests.acceptance.command import lowmark
from tests.docs.pages import FENCE, section
from tests.naive.compare import differences
from tests.naive.evaluate import rows_of
from tests.naive.frames import Spec, frame, write_pcap
from tests.naive.packets import decode_frames

NS = 10**9
START = 1_714_564_800 * NS
CLIENTS = 5


def examples(heading: str) -> list[str]:
    found = [match[2] for match in FENCE.finditer(section("docs/language.md", heading)) if match[1] == "sql"]
    assert found, f"{heading} has no example"
    return found


def packet(seconds: float, client: int, flags: int, back: bool = False) -> Spec:
    ends, ports = (f"10.0.0.{client + 1}", "10.0.1.1"), (40000 + client, 443)
    source, destination = ends[::-1] if back else ends
    return Spec(
        ts=START + int(seconds * NS), source=source, destination=destination, proto=6,
        ports=ports[::-1] if back else ports, flags=flags,
    )  # fmt: skip


def specs() -> Iterator[Spec]:
    """Handshakes and ends of connections; two clients get no answer."""
    for client in range(CLIENTS):
        yield packet(client, client, 2)
        if client:
            yield packet(client + 0.1, client, 18, back=True)
            yield packet(client + 0.2, client, 16)
            yield packet(client + 3, client, 17)
            yield packet(client + 3.1, client, 17, back=True)
    yield packet(20, CLIENTS, 2)


def seen(stream: str) -> Sequence[Spec]:
    """The second tap does not see every packet, and each tap sees them a hop later."""
    hops = {"TapB": 1, "TapC": 2}.get(stream, 0)
    found = [replace(spec, ts=spec.ts + hops * 1000, ttl=spec.ttl - hops) for spec in specs()]
    found.sort(key=lambda spec: spec.ts)
    return [spec for place, spec in enumerate(found) if stream != "TapB" or place % 4]


def streams_of(text: str) -> list[str]:
    return sorted({node.name.text for node in s.walk(parse(text)) if isinstance(node, s.StreamRef)})


def explained(*arguments: str) -> str:
    return " ".join(lowmark("explain", *arguments).out.split())


@pytest.mark.parametrize("text", examples("Joins"))
def test_the_answer_is_that_of_the_definition(text: str, tmp_path: Path) -> None:
    names = streams_of(text)
    paths = {name: write_pcap(tmp_path / f"{name}.pcap", map(frame, seen(name))) for name in names}
    bound = [part for name, path in paths.items() for part in ("-r", f"{name}={path}")]
    ran = lowmark("query", *bound, text)
    assert "exact" in ran.error
    plain = re.sub(r"PUNCTUATE ON.*|ORDER BY ts\b", "", text, flags=re.DOTALL)
    expected = rows_of(plain, {name: [decode_frames(name, 0, map(frame, seen(name)))[0]] for name in names})
    assert expected
    assert not differences(ran.rows, expected)
    if "ORDER BY ts" in text:
        times = [max(str(row["s.ts"]), str(row["answered"])) for row in ran.rows]
        assert times == sorted(times)


def test_each_runs_by_the_algorithm_of_its_section() -> None:
    exists, waits = examples("Joins without windows")[::-1]
    for text, algorithm in (
        (waits, "algorithm window-oblivious join: a row is kept until no later row can have its time"),
        (exists, "algorithm OA-Join: a row meets the rows that came before it; other algorithms are for inner joins"),
        (*examples("Joins and promises about values"), "algorithm PWJoin: a row is kept until its window has passed"),
        (*examples("Joins in order of time"), "algorithm Sync-Filter: rows wait until all inputs have passed"),
    ):
        assert algorithm in explained(text)


def test_the_shared_ones_run_as_one(tmp_path: Path) -> None:
    paths = []
    for number, text in enumerate(examples("Joins that queries share")):
        paths.append(tmp_path / f"q{number}.sql")
        paths[-1].write_text(text)
    others = [part for path in paths[1:] for part in ("--beside", str(path))]
    said = explained("-f", str(paths[0]), *others, "--rate", "s=1000/s", "--rate", "r=1000/s")
    assert "one join, in place of one each, for the windows of q0 (20 s), q1 (40 s) and q2 (1 min), by mqt" in said
    assert "(about 122,000 in place of 246,000)" in said
