"""Takes the groups whose values are promised out of the panes, for all windows that hold them (`PUNCTUATE ON`).

A group may lie in several panes, and a pane in several windows. So a group leaves only if every open window that holds
any of its panes ends before the bound of the promise: then it leaves all of them at once, and its panes forget it.
Otherwise it leaves with its windows.
"""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.groups.group_table import GroupTable
from highlevel.groups.layout import Layout
from highlevel.interface import Space, State
from highlevel.progress.promises.values import ValuePromises
from lowmark.query.windows.window import Window

__all__ = ["take_closed"]


def take_closed(
    closed: ValuePromises, below: int | None, first: int | None, window: Window, space: Space[GroupTable],
    layout: Layout, state: State,
) -> Iterator[tuple[int, GroupTable]]:  # fmt: skip
    """The groups with these values, which no later row of a pane before `below` (None: of any) has: with each open
    window that holds them, ascending. `first`: the first open window; None: all are."""
    tables = {pane: table for pane in state.keys(space, below) if (table := state.get(space, pane)) is not None}
    for pane in reversed(tables):
        if below is None or window.extent(window.wids(pane)[-1]).stop <= below:
            break  # and so it is for the panes before
        closed.forget(layout.schema, tables[pane].groups)
    taken: dict[int, GroupTable] = {}
    for pane, table in tables.items():
        chosen = closed.among(layout.schema, table.groups)
        if chosen.any():
            taken[pane] = table.take(chosen)
            state.put(space, pane, table)
    for number in sorted({number for pane in taken for number in window.wids(pane)}):
        if first is None or number >= first:
            extent = window.extent(number)
            groups = GroupTable(layout)
            groups.merge_tables(table for pane, table in taken.items() if pane in extent)
            yield number, groups
