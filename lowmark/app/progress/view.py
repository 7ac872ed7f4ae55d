"""The progress of queries on a terminal of any width: lines break between words, never within a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lowmark.app.console import counted
from lowmark.app.progress.query_progress import OpenWindow, QueryProgress, SourceProgress, Waiting

__all__ = ["ProgressView"]

_HELD = "yellow"


class ProgressView:
    """A few lines for each query. If the terminal has too few lines, it leaves out queries, first those that nothing
    holds up, and shows how many are left out."""

    def __init__(self, found: Sequence[QueryProgress]) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(self._found)
        height = console.height if console.is_terminal else None
        while height is not None and len(shown) > 1 and self._lines(console, options, shown) > height - 2:
            shown.remove(next((item for item in reversed(shown) if not _held(item)), shown[-1]))
        yield from map(_query, shown)
        left_out = len(self._found) - len(shown)
        if left_out:
            yield Text(f"… and {left_out} more: `lowmark watch --progress QUERY` shows one by itself", "dim")

    @staticmethod
    def _lines(console: Console, options: ConsoleOptions, shown: Sequence[QueryProgress]) -> int:
        return sum(len(console.render_lines(_query(item), options)) for item in shown)


def _held(item: QueryProgress) -> bool:
    return any(not each.healthy for each in item.waiting)


def _query(item: QueryProgress) -> Group:
    """Uses the names of the JSON. Open windows that wait for the same cause share a line, with the distances of the
    first."""
    head = Text(item.query, "bold cyan")
    if item.complete_to is None:
        head.append("  nothing is complete yet", "not bold default")
    else:
        head.append("  complete to ", "not bold default").append(str(item.complete_to), "bold default")
    return Group(head, Padding(Group(*_facts(item), *_waits(item)), (0, 0, 0, 2)))


def _facts(item: QueryProgress) -> Iterator[Text]:
    counts = Text(f"{counted(item.rows, 'row')}, {item.late:,} late, ")
    yield counts.append(counted(item.lossy_windows, "lossy window"), "bold red" if item.lossy_windows else "")
    if item.ended:
        yield Text("all sources have ended")
    elif item.holders:
        yield Text(f"frontier {item.frontier or 'unknown'}: {_named(item.holders)}")
    parts = [] if item.open_windows is None else [_opened(item.open_windows, item.open_partitions)]
    parts += [f"{counted(item.tuples_ahead, 'tuple')} ahead"] if item.tuples_ahead else []
    if parts:
        yield Text(", ".join(parts))


def _opened(windows: int, partitions: int | None) -> str:
    return counted(windows, "open window") + ("" if partitions is None else f" in {counted(partitions, 'partition')}")


def _named(holders: Sequence[SourceProgress]) -> str:
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{holders[0].text}{more}"


def _waits(item: QueryProgress) -> Iterator[Table]:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for window, others in _alike(item.open):
        lines.add_row(f"to {window.end}", _all(window.waiting))
        if window.early_rows:
            lines.add_row("", f"left early: {counted(window.early_rows, 'row')}")
        if others:
            lines.add_row(f"… {others[-1].end}", Text("the same", "dim"))
    untold = (item.open_windows or 0) - len(item.open)
    if item.open and untold > 0:
        lines.add_row(f"and {untold:,} later", "")
    if not item.open and item.waiting:
        lines.add_row("waiting", _all(item.waiting))
    if lines.row_count:
        yield lines


def _alike(windows: Sequence[OpenWindow]) -> Iterator[tuple[OpenWindow, list[OpenWindow]]]:
    for _, alike in groupby(windows, lambda window: [(each.who, each.why, each.up_to) for each in window.waiting]):
        first, *others = alike
        yield first, others


def _all(waiting: Sequence[Waiting]) -> Text:
    return Text("\n").join(Text(each.text, "" if each.healthy else _HELD) for each in waiting)
