"""Source text that computes the pane of a time, and the pane's start and end."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.kernel.codegen.literals import Literals
from lowlevel.kernel.codegen.source_text import SourceText
from lowmark.query.expr.expressions import Op
from lowmark.query.plan.nodes import Pane
from lowmark.wire.rows.values import INT64_MAX, INT64_MIN

__all__ = ["GridText"]


class GridText:
    """Fixed-width panes use functions that every kernel has; panes that are counted by steps use two functions of the
    node's own."""

    def __init__(self, pane: Pane, suffix: str, literals: Literals) -> None:
        self._pane = pane
        self._suffix = suffix
        self._literals = literals
        self._grid = literals.grid(pane.width, pane.origin % pane.width)
        self.length = literals.word(pane.length)

    def of(self, time: str) -> str:
        if self._pane.steps:
            return f"pane_of{self._suffix}({time}, literals)"
        return f"pane_of({time}, {self._grid}) - state{self._suffix}[SHIFT]"

    def start(self, time: str, pane: str) -> str:
        """The start of the pane of a time; the pane is given, too."""
        return f"start_of{self._suffix}({pane}, literals)" if self._pane.steps else f"pane_start({time}, {self._grid})"

    def end(self, time: str, pane: str) -> str:
        return (
            f"start_of{self._suffix}({pane} + 1, literals)" if self._pane.steps else f"pane_end({time}, {self._grid})"
        )

    def since(self, time: str) -> str:
        """How far into its pane a time lies."""
        if self._pane.steps:
            return f"{time} - start_of{self._suffix}({self.of(time)}, literals)"
        return f"since_pane({time}, {self._grid})"

    def write_functions(self, source: SourceText, decorators: Sequence[str]) -> None:
        """`start_of` stays within int64, as `pane_start` and `pane_end` do."""
        pane = self._pane
        if not pane.steps:
            return
        source.line("", "", *decorators)
        word = self._literals.word
        constants = [(op, word(constant)) for op, constant in pane.steps]
        with source.block(f"def pane_of{self._suffix}(time, literals):"):
            source.line(f"at = pane_of(time, {self._grid}) - {word(pane.origin // pane.width)}")
            source.line(*(f"at = {_AFTER[op].format(constant)}" for op, constant in constants), "return at")
        first, last = -((pane.origin - INT64_MIN) // pane.width), (INT64_MAX - pane.origin) // pane.width
        source.line("", "", *decorators)
        with source.block(f"def start_of{self._suffix}(at, literals):"):
            source.line(*(f"at = {_BEFORE[op].format(constant)}" for op, constant in reversed(constants)))
            source.lines(f"""
                if at < {word(first)}:
                    return -0x8000000000000000
                if at > {word(last)}:
                    return 0x7FFFFFFFFFFFFFFF
                return at * {word(pane.width)} + {word(pane.origin)}
            """)


_AFTER = {Op.ADD: "at + {}", Op.MUL: "at * {}", Op.FLOOR_DIV: "at // {}"}
_BEFORE = {Op.ADD: "at - {}", Op.MUL: "-(-at // {})", Op.FLOOR_DIV: "at * {}"}
"""As `lowmark.query.windows.panes.after` and `before`."""
