"""Shows result rows to people: as a table if it fits, else each row as lines of names and values. A value that fits a
line is never broken."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["RowList", "show_rows", "window_of"]

_BOUNDS = ["window_start", "window_end"]


def window_of(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """The bounds of the one window of all these rows, which must be the first two columns; None: no such window."""
    if [*names[:2]] != _BOUNDS or len(names) == 2 or len({(row[0], row[1]) for row in rows}) != 1:
        return None
    start, end = rows[0][:2]
    return f"{'the beginning' if start == 'null' else start} … {end}"


def show_rows(
    console: Console, names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str]
) -> None:  # fmt: skip
    """`numbers`: the columns that are aligned right."""
    table = Table(header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    wanted = Measurement.get(console, console.options.update(max_width=1 << 16), table).maximum
    if wanted <= console.width:
        console.print(table)
        return
    _show_one_by_one(console, names, rows)


class RowList:
    """Shows rows that come a few at a time under one header."""

    def __init__(self, console: Console, names: Sequence[str], numbers: Collection[str]) -> None:
        self._console = console
        self._names = names
        self._numbers = numbers
        self._widths = [0] * len(names)

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        first = not any(self._widths)
        columns = zip(self._widths, self._names, *rows, strict=True)
        self._widths = [max(before, *map(cell_len, cells)) for before, *cells in columns]
        if sum(self._widths) + 2 * (len(self._widths) - 1) > self._console.width:
            _show_one_by_one(self._console, self._names, rows)
            return
        if first:
            self._line(self._names, "bold")
        for row in rows:
            self._line(row, "")

    def _line(self, cells: Sequence[str], style: str) -> None:
        line = Text(style=style)
        for name, width, cell in zip(self._names, self._widths, cells, strict=True):
            space = " " * (width - cell_len(cell))
            line.append(space + cell if name in self._numbers else cell + space).append("  ")
        line.rstrip()
        self._console.print(line)


def _show_one_by_one(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    wide = max(map(len, names))
    for row in rows:
        lines = Table.grid(padding=(0, 2))
        lines.add_column(width=min(wide, console.width // 2), style="bold", overflow="fold")
        lines.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            lines.add_row(Text(name), Text(value))
        console.print(lines)
        console.print()
