"""Windows with a value that cannot be computed, until they close: a sum that overflows, or a tie."""

from __future__ import annotations

from collections.abc import Iterable

from lowmark.wire.records.verdicts import Reason, Verdict

__all__ = ["FlawRow", "Flaws"]

FlawRow = tuple[int, str]
"""A window and a reason, in state."""


class Flaws:
    def __init__(self, rows: Iterable[FlawRow] = ()) -> None:
        self._found = {(window, Reason(reason)): None for window, reason in rows}  # in order of arrival

    def add(self, window: int, reason: Reason) -> None:
        self._found[window, reason] = None

    @property
    def windows(self) -> set[int]:
        return {window for window, _ in self._found}

    def take(self, first: int, to: int) -> Verdict:
        """The verdict against the closing windows from `first` to `to` (included)."""
        taken = [(window, reason) for window, reason in self._found if first <= window <= to]
        for found in taken:
            del self._found[found]
        return Verdict(frozenset(reason for _, reason in taken))

    def rows(self) -> list[FlawRow]:
        return [(window, reason.value) for window, reason in self._found]
