"""Python source in the making: lines with their indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

__all__ = ["Source"]


class Source:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def line(self, *lines: str) -> None:
        self._lines += [f"{'    ' * self._depth}{line}" if line else "" for line in lines]

    def lines(self, text: str) -> None:
        """A piece of text, with the indentation that its lines have in common taken for none."""
        self.line(*dedent(text).strip("\n").rstrip().split("\n"))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written meanwhile stands indented under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def let(self, value: str) -> str:
        """The name, new in this source, of a variable that holds the value."""
        self._names += 1
        name = f"t{self._names}"
        self.line(f"{name} = {value}")
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
