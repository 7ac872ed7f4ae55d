"""What AdaptWID keeps of lazy groups (Li fig. 6-17: the buffer): a partial for each pane in which one shows.

Windows begin and end at multiples of what RANGE and SLIDE have in common. Panes are as long as that, but where tuples
are aggregated that nothing has reduced: then the panes in between are a piece of state together, each group's apart.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from highlevel.aggregate.groups import GroupRows, GroupTable
from highlevel.aggregate.incoming import with_pane_as_key, without_pane_as_key
from highlevel.aggregate.layout import Layout
from highlevel.aggregate.spaces import tables_space
from highlevel.aggregate.splitting import split
from highlevel.interface import State, Words
from lowmark.query.evaluate import Bools, Ints
from lowmark.query.windows import Window

__all__ = ["Buffer"]


class Buffer:
    """`window` is the one given, over pieces of state in place of panes: its numbers are the same."""

    def __init__(self, window: Window, layout: Layout) -> None:
        self.panes = gcd(window.size, window.slide)  # of a piece
        self.window = replace(window, size=window.size // self.panes, slide=window.slide // self.panes)
        self._layout = layout if self.panes == 1 else layout.by_pane
        self.space = tables_space("lazy", self._layout)

    def take(self, panes: Ints, rows: Words, state: State) -> None:
        for piece, part in split(panes // self.panes, rows):
            table = state.get(self.space, piece) or GroupTable(self._layout)
            table.merge(part if self.panes == 1 else with_pane_as_key(part))
            state.put(self.space, piece, table)

    def tables(self, state: State) -> list[tuple[int, GroupTable]]:
        """All pieces, by number."""
        kept = [(piece, state.get(self.space, piece)) for piece in state.keys(self.space)]
        return [(piece, table) for piece, table in kept if table is not None]

    def groups(self, table: GroupTable) -> GroupRows:
        """The partials of a piece, whatever their panes."""
        groups = GroupRows.of((table,))
        return groups if self.panes == 1 else GroupRows(without_pane_as_key(groups.rows), groups.carries)

    def take_out(self, piece: int, table: GroupTable, chosen: Bools, state: State) -> tuple[Ints, GroupRows]:
        """Let go of some partials, and give them out with their panes. The piece stays, if need be empty: it says which
        windows hold tuples."""
        taken = table.take(chosen)
        if len(taken):
            state.put(self.space, piece, table)
        panes = np.full(len(taken), piece) if self.panes == 1 else taken.groups[:, 2].view(np.int64)
        return panes, self.groups(taken)

    def merge(self, tables: list[GroupTable], into: GroupTable) -> None:
        """All partials of some pieces."""
        if self.panes == 1:
            into.merge_tables(tables)
        for table in tables if self.panes > 1 else ():
            into.merge_groups(self.groups(table))
