"""Makes the promises of operators when their input's frontier moves: bounds on columns of their output, or its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highlevel.interface import Out
from lowmark.query.windows.window import Window
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN

__all__ = ["moved_frontier", "promise_bounds", "window_bounds"]


def moved_frontier(promise: Promise, column: str, known: int) -> int | None:
    """The frontier of a column if the promise moves it beyond `known`; else None."""
    frontier = promise.below(column)
    return None if frontier is None or frontier <= known else frontier


def promise_bounds(out: Out, frontier: int, bounds: Iterator[tuple[str, int | None]]) -> None:
    """Promise `bounds`: for each output column, the least value that may still come. At the end of the input the bounds
    are not read. A bound outside int64 is left out."""
    if frontier == FOREVER:
        out.promise(0, Promise((), last=True))
        return
    for name, below in bounds:
        if below is not None and INT64_MIN <= below <= INT64_MAX:
            out.promise(0, Promise((Bound(name, below=below),)))


def window_bounds(window: Window, number: int, names: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """The bounds of rows of this window and all later ones, which show its start and its end under these names."""
    start, end = names
    yield start, window.start(number)
    yield end, window.end(number)
