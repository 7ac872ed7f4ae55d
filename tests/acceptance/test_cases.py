"""The public cases through the real command, and through the naive evaluator that other tests compare with.

The cases are no part of this repository: they are looked for beside it, and skipped where they are not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.command import Row, lowmark
from tests.naive.compare import differences, wrong_orders
from tests.naive.evaluate import answer, is_ordered
from tests.naive.scope import Refused

CASES = Path(__file__).parents[3] / "shared" / "queries" / "cases"


@dataclass(frozen=True)
class Case:
    folder: Path

    @property
    def query(self) -> str:
        return (self.folder / "query.sql").read_text(encoding="utf-8")

    @property
    def captures(self) -> list[tuple[str, Path]]:
        """(stream, file), the sources of a stream in their order."""
        found = []
        for path in self.folder.iterdir():
            if match := re.fullmatch(r"(\w+?)(?:-(\d+))?\.pcap(?:ng)?(?:\.gz)?", path.name):
                found.append((match[1], int(match[2] or 1), path))
        return [(stream, path) for stream, _, path in sorted(found)]

    @property
    def rows(self) -> list[Row]:
        return [json.loads(line) for line in (self.folder / "expected.jsonl").read_text("utf-8").splitlines()]

    @property
    def exit_code(self) -> int:
        path = self.folder / "expected.exit"
        return int(path.read_text()) if path.exists() else 0

    def wrong(self, rows: list[Row]) -> list[str]:
        wrong = differences(rows, self.rows)
        return wrong or (wrong_orders(rows, self.rows) if is_ordered(self.query) else [])


FOLDERS = sorted(path for path in CASES.iterdir() if path.is_dir()) if CASES.is_dir() else []


every_case = pytest.mark.parametrize("case", [pytest.param(Case(folder), id=folder.name) for folder in FOLDERS])


@every_case
def test_naive(case: Case) -> None:
    """The oracle gives the expected rows, of every construct."""
    try:
        answered = answer(case.query, case.captures)
    except Refused:
        assert case.exit_code == 2
        return
    assert case.exit_code == (0 if answered.whole else 3)
    assert not case.wrong(answered.rows)


@pytest.mark.slow  # a kernel takes seconds to compile
@every_case
def test_case(case: Case) -> None:
    reads = [word for stream, path in case.captures for word in ("-r", f"{stream}={path}")]
    query = str(case.folder / "query.sql")
    outcome = lowmark("query", *reads, "--disorder", "scan", "--format", "jsonl", "-f", query)
    assert "Traceback" not in outcome.error
    assert outcome.code == case.exit_code, outcome.error
    assert not case.wrong(outcome.rows)


def test_cases_are_there() -> None:
    if not FOLDERS:
        pytest.skip(f"the public cases are not at {CASES}")
    assert [folder.name for folder in FOLDERS if not (folder / "query.sql").is_file()] == []
