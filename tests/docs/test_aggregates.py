"""The worked example of the guide to aggregates of one's own, installed and asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.acceptance.test_golden import at
from tests.docs.pages import FENCE, ROOT
from tests.naive.frames import frame, write_pcap

QUERY = "SELECT srcIP, spread(len) AS s, spread(ts - ts) AS none, min(len) AS m [RANGE 10 s] FROM Main GROUP BY srcIP"


def installed(folder: Path) -> Path:
    """The example's package, as an installer would leave it."""
    blocks = [
        (match[1], match[2]) for match in FENCE.finditer((ROOT / "docs/aggregates.md").read_text(encoding="utf-8"))
    ]
    (project,) = (tomllib.loads(text)["project"] for kind, text in blocks if kind == "toml")
    (module,) = (text for kind, text in blocks if kind == "python")
    (points,) = project["entry-points"].items()
    ((name, value),) = points[1].items()
    (folder / f"{value.partition(':')[0]}.py").write_text(module)
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[{points[0]}]\n{name} = {value}\n")
    return folder


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "lowmark", *arguments],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=120,
    )  # fmt: skip


def test_the_example_answers(tmp_path: Path) -> None:
    package = installed(tmp_path)
    packets = [at(1, payload=10), at(2), at(3, payload=58), at(4, "10.0.0.2"), at(15)]
    capture = write_pcap(tmp_path / "a.pcap", map(frame, packets))
    outcome = run(package, "query", "-r", str(capture), "--format", "jsonl", QUERY)
    assert outcome.returncode == 0, outcome.stderr
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert sorted((row["srcIP"], row["s"], row["none"], row["m"]) for row in rows) == [
        ("10.0.0.1", 0, 0, 42), ("10.0.0.1", 58, 0, 42), ("10.0.0.2", 0, 0, 42),
    ]  # fmt: skip


def test_its_overflow_is_told(tmp_path: Path) -> None:
    package = installed(tmp_path)
    capture = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(3, payload=58), at(15)]))
    query = "SELECT spread((len - 71) * 300000000000000000) AS s [RANGE 10 s] FROM Main"
    outcome = run(package, "query", "-r", str(capture), "--format", "jsonl", query)
    assert [json.loads(line)["s"] for line in outcome.stdout.splitlines()] == [None, 0]
    assert outcome.returncode == 4, outcome.stderr
    assert "1 window lossy: overflow" in outcome.stderr


def test_it_is_a_word_of_the_language(tmp_path: Path) -> None:
    package = installed(tmp_path)
    wrong = run(package, "explain", "SELECT spread(srcIP) [RANGE 10 s] FROM Main")
    assert wrong.returncode == 2
    assert "spread cannot take a value of kind ip" in wrong.stderr
    misspelt = run(package, "explain", "SELECT spraed(len) [RANGE 10 s] FROM Main")
    assert "did you mean spread?" in misspelt.stderr
    late = run(package, "explain", "--late", "correct", "SELECT spread(len) [RANGE 10 s] FROM Main")
    assert "its value over late tuples alone" in late.stderr


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    package = installed(tmp_path)
    (info,) = package.glob("*.dist-info/entry_points.txt")
    info.write_text(info.read_text().replace("spread =", "sum ="))
    outcome = run(package, "explain", "SELECT count(*) [RANGE 10 s] FROM Main")
    assert outcome.returncode != 0
    assert "entry point sum of lowmark.aggregates is not an AggregateFunction of that name" in outcome.stderr
    assert "Traceback" not in outcome.stderr
