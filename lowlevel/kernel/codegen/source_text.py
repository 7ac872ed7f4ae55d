"""Builds Python source: lines with their indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

__all__ = ["SourceText"]


class SourceText:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def line(self, *lines: str) -> None:
        self._lines += [f"{'    ' * self._depth}{line}" if line else "" for line in lines]

    def lines(self, text: str) -> None:
        """Add a piece of text; the indentation common to its lines is removed."""
        self.line(*dedent(text).strip("\n").rstrip().split("\n"))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is written meanwhile under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def let(self, value: str) -> str:
        """Store the value in a variable with a new name in this source; returns the name."""
        self._names += 1
        name = f"t{self._names}"
        self.line(f"{name} = {value}")
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
