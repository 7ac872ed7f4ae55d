"""PUNCTUATE ON over a broker and Spark: the row of a closed connection is visible before its window ends, also when the
job dies meanwhile, and stands there once; its window counts it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.command import lowmark
from tests.acceptance.test_closings import ACK, FIN, RST
from tests.acceptance.test_golden import at, clock
from tests.integration.heads import JOB
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.pipe import Pipe
from tests.integration.processes import Command
from tests.integration.test_progress import told
from tests.naive.frames import Spec

pytestmark = pytest.mark.slow

CONFIG = (
    JOB
    + """\
[streams.Main]
disorder = "ordered"
[sources.pipe]
stream = "Main"
file = "-"
[queries.connections]
sql = '''SELECT conn, count(*) AS n [RANGE 1 minute, SLIDE 1 minute, WA ts] FROM Main GROUP BY conn PUNCTUATE ON conn'''
buckets = 2
"""
)


def tcp(seconds: float, client: int, flags: int, back: bool = False) -> Spec:
    ends, ports = (f"10.0.1.{client}", "10.0.2.1"), (40000 + client, 443)
    source, destination = ends[::-1] if back else ends
    return at(seconds, source, destination=destination, proto=6, ports=ports[::-1] if back else ports, flags=flags)


def shown(lines: str) -> list[tuple[str, str, int]]:
    rows = map(json.loads, lines.splitlines())
    return [(row["window_end"][11:16], row["conn.aIP"], row["n"]) for row in rows]


def test_a_row_leaves_once_though_the_job_dies(broker: str, tmp_path: Path) -> None:
    config = tmp_path / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    first = [tcp(1, 1, ACK), tcp(2, 1, FIN), tcp(2.1, 1, FIN, True), tcp(3, 2, ACK), tcp(4, 3, RST), at(5), at(10)]
    more = [tcp(20, 4, RST), tcp(21, 2, ACK, True), at(25), at(30)]
    seen = ("watch", "connections", "-c", str(config), "--json", "--from-beginning")
    with contextlib.ExitStack() as stack:
        source = Pipe(stack, config, "pipe", first)
        job = stack.enter_context(JobProcess(config))
        job.url()
        watch = stack.enter_context(Command(*seen))
        await_true(lambda: watch.out.count("\n") == 2)
        (window,) = told(config)["connections"]["open"]
        assert (window["end"], window["early_rows"]) == (clock("12:01:00"), 2)
        job.kill()
        source.send(more)
        job = stack.enter_context(JobProcess(config, "--until-last"))
        await_true(lambda: watch.out.count("\n") == 3)
        early = shown(watch.out)
        source.send([at(61), at(70)])
        source.end()
        assert job.wait() == 0, job.said
    outcome = lowmark(*seen, "--windows", "2")
    assert outcome.code == 0, outcome.error
    assert sorted(early) == [("12:01", f"10.0.1.{client}", n) for client, n in ((1, 3), (3, 1), (4, 1))]
    assert sorted(shown(outcome.out)) == sorted([
        ("12:01", "10.0.0.1", 4), ("12:01", "10.0.1.1", 3), ("12:01", "10.0.1.2", 2), ("12:01", "10.0.1.3", 1),
        ("12:01", "10.0.1.4", 1), ("12:02", "10.0.0.1", 2),
    ])  # fmt: skip
    completions = [json.loads(line) for line in outcome.error.splitlines() if line.startswith("{")]
    assert [(each["rows"], each["merged"], each["verdict"]) for each in completions] == [
        (5, 11, "exact"), (1, 2, "exact"),
    ]  # fmt: skip
