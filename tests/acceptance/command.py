"""The command `lowmark`, run in this process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lowmark.app.cli import main

Row = dict[str, object]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    error: str

    @property
    def rows(self) -> list[Row]:
        return [json.loads(line) for line in self.out.splitlines()]


def lowmark(*arguments: str) -> Outcome:
    """What `lowmark arguments` writes, and its exit code."""
    kept = sys.argv, sys.stdout, sys.stderr
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    sys.argv, sys.stdout, sys.stderr = ["lowmark", *arguments], out, error
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv, sys.stdout, sys.stderr = kept
    return Outcome(code, *(_content(stream) for stream in (out, error)))


def _content(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def query(text: str, captures: Iterable[tuple[str, Path]], *options: str) -> Outcome:
    """`lowmark query` over (stream, file), as JSON lines."""
    reads = [word for name, path in captures for word in ("-r", f"{name}={path}")]
    return lowmark("query", *reads, "--format", "jsonl", *options, text)
