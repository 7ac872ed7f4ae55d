"""What operators promise when their input's frontier moves: bounds on columns of their output, or that it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highlevel.interface import Out
from lowmark.query.windows.window import Window
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER, INT64_MAX, INT64_MIN

__all__ = ["moved_frontier", "promise_bounds", "window_bounds"]


def moved_frontier(promise: Promise, column: str, known: int) -> int | None:
    """The frontier of a column that a promise moves beyond what was known of it; None: it moves nothing."""
    frontier = promise.below(column)
    return None if frontier is None or frontier <= known else frontier


def promise_bounds(out: Out, frontier: int, bounds: Iterator[tuple[str, int | None]]) -> None:
    """`bounds`: of each column of the output the least value that may still come; asked for only before the end. One
    that no int64 can tell is left out."""
    if frontier == FOREVER:
        out.promise(0, Promise((), last=True))
        return
    for name, below in bounds:
        if below is not None and INT64_MIN <= below <= INT64_MAX:
            out.promise(0, Promise((Bound(name, below=below),)))


def window_bounds(window: Window, number: int, names: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """Of rows of a window and of all behind it, which show its start and its end under these names."""
    start, end = names
    yield start, window.start(number)
    yield end, window.end(number)
