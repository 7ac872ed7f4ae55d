"""The parts that all joins share: a port for each input, kept rows, and promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from highlevel.interface import MarkOut, Out, State, Words
from highlevel.join.bins import Bin
from highlevel.join.kept_rows import Ints, Kept
from highlevel.join.lookups import Key, Lookup, keys_of
from highlevel.join.marks import JoinMarks
from highlevel.join.output import Combine
from highlevel.join.output_promises import Promising
from highlevel.row_marks import RowMark
from lowmark.query.expr.evaluate import Bools, evaluate, holds
from lowmark.query.plan.nodes import Join

__all__ = ["WindowJoin"]


class WindowJoin:
    def __init__(self, plan: Join) -> None:
        self._plan = plan
        self._bands = plan.bands
        self._schemas = [port.schema for port in plan.inputs]
        self._kept = Kept(plan)
        self._combine = Combine(plan)
        self._promising = Promising(plan)
        self._marks = JoinMarks(plan, self._promising)

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0

    def _partners(
        self, parts: Mapping[int, Words], lookup: Lookup, state: State
    ) -> Iterator[tuple[int, Bin, Iterator[tuple[Ints, Ints]]]]:
        """Each bin of the lookup's input that combinations of these rows reach, with the runs of pairs in it: places of
        combinations, and of rows of the bin, that lie in each other's windows and agree in what must be equal."""
        low, high = self._kept.window(parts, lookup.port)
        keys = keys_of(self._schemas, parts, lookup.equals)
        own = tuple(Key(lookup.port, column) for column in lookup.columns)

        def keys_in(rows: Words) -> Words:
            return keys_of(self._schemas, {lookup.port: rows}, own)

        for key, piece in self._kept.reached(lookup.port, low, high, state):
            yield key, piece, piece.probe(lookup.way, keys_in, lookup.places, keys, low, high)

    def _passing(self, pairs: Words, parts: Mapping[int, Words], out: Out) -> Bools | None:
        """Which combinations pass the condition, given as the joined rows `pairs`; None: there is no such
        combination."""
        if self._plan.where is None:
            return None
        values = evaluate(self._plan.where, pairs, self._plan.output)
        if values.lost is not None and values.lost.any():
            out.mark(0, self._marks.overflow(self._kept.times(parts, values.lost)))
        return holds(values)

    def _emit(self, parts: Mapping[int, Words], out: Out) -> None:
        """Output the combinations of these rows that pass the condition."""
        pairs = self._combine.rows(parts)
        passing = self._passing(pairs, parts, out)
        if passing is not None:
            pairs = pairs[passing]
        if len(pairs):
            out.rows(0, pairs)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, self._marks.of_input(port, mark))

    @property
    def bin_width(self) -> int:
        """The time covered by one piece of kept rows, in ns: key k begins at k times as much."""
        return self._kept.width
