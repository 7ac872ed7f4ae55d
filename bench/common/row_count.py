"""An `Out` for measurements of operators."""

from __future__ import annotations

from highlevel.interface import Words
from highlevel.row_marks import RowMark
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.records.verdicts import Reason

__all__ = ["RowCount"]


class RowCount:
    """Counts rows. Losses end the measurement: its figures would be those of a smaller stream."""

    def __init__(self) -> None:
        self.count = 0

    def rows(self, port: int, rows: Words) -> None:
        self.count += len(rows)

    def promise(self, port: int, promise: Promise) -> None:
        pass

    def closed(self, port: int, windows: range, tuples: int) -> None:
        pass

    def late(self, port: int, rows: Words) -> None:
        raise RuntimeError(f"{len(rows)} rows came late: the stream is not what was declared")

    def shed(self, port: int, rows: Words, reason: Reason) -> None:
        raise RuntimeError(f"{len(rows)} rows were given up: {reason}")

    def mark(self, port: int, mark: RowMark) -> None:
        raise RuntimeError(f"a mark: {mark}")

    def flaw(self, port: int, window: int, reason: Reason) -> None:
        raise RuntimeError(f"a flaw in window {window}: {reason}")
