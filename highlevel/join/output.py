"""Puts rows of several inputs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from highlevel.interface import Words
from lowmark.query.plan.nodes import Join

__all__ = ["Combine"]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A column's place in its input and in the output: first word, words, and bit in the null mask."""

    port: int
    source: int
    target: int
    words: int
    source_bit: int
    target_bit: int
    nullable: bool


class Combine:
    """Makes rows of a join's output from one row of each input per combination. Columns of an input without a row are
    null."""

    def __init__(self, plan: Join) -> None:
        self._words = plan.output.words
        self._extremes = [
            (
                plan.output.offset(extreme.name),
                [plan.output.offset(name) for name in extreme.of],
                np.maximum if extreme.greatest else np.minimum,
            )
            for extreme in plan.extremes
        ]
        self._columns: dict[str, list[_Copy]] = {}  # by name, from each input that shows it
        for number, port in enumerate(plan.inputs):
            for own, shown in port.output:
                copy = _Copy(
                    number, port.schema.offset(own), plan.output.offset(shown), plan.output.column(shown).kind.words,
                    port.schema.index(own), plan.output.index(shown), port.schema.column(own).nullable,
                )  # fmt: skip
                self._columns.setdefault(shown, []).append(copy)

    def rows(self, parts: Mapping[int, Words]) -> Words:
        count = len(next(iter(parts.values())))
        rows = np.zeros((count, self._words), np.uint64)
        for copies in self._columns.values():
            copy = next((copy for copy in copies if copy.port in parts), None)
            if copy is None:
                rows[:, 0] |= np.uint64(1 << copies[0].target_bit)
                continue
            part = parts[copy.port]
            rows[:, copy.target : copy.target + copy.words] = part[:, copy.source : copy.source + copy.words]
            if copy.nullable:
                null = part[:, 0] >> np.uint64(copy.source_bit) & np.uint64(1)
                rows[:, 0] |= null << np.uint64(copy.target_bit)
        for target, times, choose in self._extremes:
            rows[:, target] = choose.reduce(rows[:, times].view(np.int64), axis=1).view(np.uint64)
        return rows
