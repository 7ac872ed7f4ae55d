"""The pages of the documentation, and pieces of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("helm/*/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)`(?: or `[^`]+`)* \|(.*)\|$", re.MULTILINE)


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[1] == language:
                yield names(page), match[2]


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or a higher one."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", text(page), re.MULTILINE)
    assert found is not None, f"{page} has no heading {heading!r}"
    rest = text(page)[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table(page: str, heading: str) -> dict[str, str]:
    """The rows of a table by what their first cell has in code; the rest of the row."""
    return {match[1]: match[2].strip() for match in ROW.finditer(section(page, heading))}
