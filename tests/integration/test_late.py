"""Late packets through a broker and a job: as rows of their own and as corrections, exactly once, and watched."""

from __future__ import annotations

import json
import random
import re
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.command import Outcome, Row, query
from tests.acceptance.corrected import corrected
from tests.acceptance.test_golden import at
from tests.integration.heads import CAPTURE
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.compare import differences
from tests.naive.frames import frame, write_pcap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SQL = "SELECT srcIP, count(*) AS n, max(ts) AS latest [RANGE 20 s, SLIDE 10 s] FROM Main GROUP BY srcIP"
CONFIG = (
    CAPTURE
    + """\
[job]
metrics = "127.0.0.1:0"
buckets = 2
heap = "512m"
max_offsets_per_trigger = 20
[streams.Main]
disorder = "within 2 s"
[sources.one]
stream = "Main"
file = "one.pcap"
[sources.two]
stream = "Main"
file = "two.pcap"
[sources.held]
stream = "Main"
file = "-"
[queries.counted]
sql = "{sql}"
[queries.emitted]
sql = "{sql}"
late = "emit"
[queries.fixed]
sql = "{sql}"
late = "correct"
"""
)


def write(folder: Path, broker: str) -> tuple[Path, list[tuple[str, Path]]]:
    """Two captures far more out of order than is declared, and one in order to end with."""
    chance = random.Random(5)
    captures = []
    for name in ("one", "two"):
        seconds = [index / 2 + chance.uniform(0, 40) for index in range(200)]
        packets = [at(second, f"10.0.0.{chance.randrange(1, 9)}") for second in seconds]
        captures.append(("Main", write_pcap(folder / f"{name}.pcap", map(frame, packets))))
    # Both buckets have rows in the last window, and so have all windows before it told.
    last = [at(1), *(at(160, f"10.0.0.{host}") for host in range(1, 9))]
    captures.append(("Main", write_pcap(folder / "held.pcap", map(frame, last))))
    config = folder / "lowmark.toml"
    config.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8], sql=SQL))
    return config, captures


def watched(config: Path, name: str, **lines: float) -> Outcome:
    """All that stands on the query's topics, as JSON lines: so many of each kind."""
    with Command("watch", name, "-c", str(config), "--from-beginning", "--json") as watch:
        await_true(lambda: all(watch.error.count(f'{{"{kind}"') >= count for kind, count in lines.items()))
        watch.process.send_signal(signal.SIGINT)
        watch.wait()
        return Outcome(0, watch.out, watch.error)


def told(outcome: Outcome, kind: str) -> list[Row]:
    lines = [line for line in outcome.error.splitlines() if line.startswith(f'{{"{kind}":')]
    return [json.loads(line)[kind] for line in lines]


def test_late_rows_and_corrections(broker: str, tmp_path: Path) -> None:
    config, captures = write(tmp_path, broker)
    exact = query(SQL, captures)
    local = query(SQL, captures, "--disorder", "within 2 s", "--late", "correct")
    with Command("run", "-c", str(config)) as job:
        with (
            (tmp_path / "held.pcap").open() as held,
            Command("capture", "-c", str(config), stdin=held.fileno()) as capture,
        ):
            assert capture.wait() == 0, capture.error
        url = job.url()
        lag = re.compile(r'^lowmark_frontier_lag_seconds\{query="(\w+)"\} 0.0$', re.MULTILINE)
        await_true(lambda: len(lag.findall(get(f"{url}/metrics").text)) == 3)
        (windows,) = (int(found) for found in re.findall(r"^(\d+) windows, ", local.error, re.MULTILINE))
        page = samples(get(f"{url}/metrics").text)
        changes = value(page, "lowmark_corrections_total", query="fixed")
        rows = value(page, "lowmark_late_rows_total", query="emitted")
        counted = watched(config, "counted", complete=windows)
        fixed = watched(config, "fixed", complete=windows, correction=changes)
        emitted = watched(config, "emitted", complete=windows, late=rows)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == 0, job.error

    assert differences(counted.rows, fixed.rows) == []
    assert differences(counted.rows, emitted.rows) == []
    assert told(counted, "late") == told(counted, "correction") == told(fixed, "late") == []
    assert differences(local.rows, fixed.rows) == []

    corrections = told(fixed, "correction")
    assert {row["bucket"] for row in corrections} == {0, 1}
    assert differences(exact.rows, corrected(fixed.rows, corrections, ["srcIP"], 10)) == []

    late = told(emitted, "late")
    assert {row["source"] for row in late} == {"one", "two"}
    assert sum(row["tuples"] for row in late) * 2 + sum(row["n"] for row in emitted.rows) == sum(
        row["n"] for row in exact.rows
    )
    assert (len(late), len(corrections)) == (rows, changes)
    assert value(page, "lowmark_late_rows_total", query="counted") == 0
    assert value(page, "lowmark_corrections_total", query="emitted") == 0
    assert rows > 0
    assert changes > 0
