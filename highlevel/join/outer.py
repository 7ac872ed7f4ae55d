"""Joins of two inputs in which an unmatched row matters: outer, semi and anti joins.

Rows are kept as in any join. Rows of an input whose unmatched rows matter have an extra last word: whether they have
matched a row. An unmatched row is output or dropped when the other input's promise proves that it never will match, so
the output has the bounds of an inner join. In semi and anti joins the first match decides whether a row of the first
input is output, so the row is dropped then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from highlevel.interface import Out, Space, State, Words
from highlevel.join.base import WindowJoin
from highlevel.join.bins import Bin
from highlevel.join.lookups import lookups, matchable
from lowmark.query.parse.syntax import JoinKind
from lowmark.query.plan.nodes import Join
from lowmark.wire.records.punctuations import Promise

__all__ = ["OuterJoinOperator"]

Ints = npt.NDArray[np.int64]

_MET = -1
"""The last word of a row: 1 once the row has matched another."""


class OuterJoinOperator(WindowJoin):
    """Rows of two inputs in; pairs and unmatched rows out (outer joins), or rows of the first input with a match (semi)
    or without one (anti). The columns of a missing row are null."""

    def __init__(self, plan: Join) -> None:
        super().__init__(plan)
        self._lookups = [found for (found,) in lookups(plan)]
        self._pairs = plan.kind not in (JoinKind.SEMI, JoinKind.ANTI)
        self._noted = [plan.keeps(port) or (port == 0 and not self._pairs) for port in (0, 1)]

    def rows_of(self, port: int) -> Space[Bin]:
        """The rows kept of a port, for audits."""
        return self._kept.bins(port)

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        bounds = self._kept.bounds(state)
        rows = self._kept.timely(port, rows, bounds, out)
        if not len(rows):
            return
        rows = np.concatenate((rows, np.zeros((len(rows), 1), np.uint64)), axis=1)
        able = matchable(self._schemas[port], rows, self._plan.keys(port))
        meeting = rows[able]
        if len(meeting):
            self._meet(port, meeting, state, out)
            rows[able, _MET] = meeting[:, _MET]
        waiting = able & self._kept.waits(port, rows, bounds)
        self._leave(port, rows[~waiting], out)
        if not self._pairs and port == 0:
            waiting &= rows[:, _MET] == 0
        self._kept.keep(port, rows[waiting], state)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        before = self._kept.bounds(state)
        bounds = self._kept.advance(port, promise, state)
        if bounds is None:
            return
        for gone in self._kept.take_out(1 - port, bounds, state):
            self._leave(1 - port, gone, out)
        for made in self._promising.promises(before, bounds):
            out.promise(0, made)

    def _leave(self, port: int, rows: Words, out: Out) -> None:
        """Handle rows that no later row can match: output those still unmatched, if the join outputs such rows."""
        if self._plan.keeps(port):
            self._tell(port, rows[rows[:, _MET] == 0], out)

    def _tell(self, port: int, rows: Words, out: Out) -> None:
        """Output rows of one input alone."""
        if len(rows):
            out.rows(0, self._combine.rows({port: rows}))

    def _meet(self, port: int, rows: Words, state: State, out: Out) -> None:
        """Find the pairs of these rows and kept rows, and note which rows have matched where that matters."""
        other = 1 - port
        for key, piece, found in self._partners({port: rows}, self._lookups[port], state):
            noted = False
            for probing, stored in found:
                parts = {port: rows[probing], other: piece.rows[stored]}
                pairs = self._combine.rows(parts)
                passing = self._passing(pairs, parts, out)
                if passing is not None:
                    pairs, probing, stored = pairs[passing], probing[passing], stored[passing]
                if not len(pairs):
                    continue
                if self._pairs:
                    out.rows(0, pairs)
                elif self._plan.kind is JoinKind.SEMI:
                    first, which = (rows, probing) if port == 0 else (piece.rows, stored)
                    which = np.unique(which)
                    self._tell(0, first[which[first[which, _MET] == 0]], out)
                rows[probing, _MET] = 1
                if self._noted[other]:
                    piece.rows[stored, _MET] = 1
                    noted = True
            if noted:
                if not self._pairs:
                    piece.take(piece.rows[:, _MET] == 1)
                self._kept.changed(other, key, piece, state)
