"""What a new generation leaves out: the windows that the one before has completed stay as it answered them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from highlevel.progress.outputs import Output, ResultRows
from lowmark.query.windows import Window
from lowmark.wire.results import Amendment, Complete, Correction, LateRow, WindowSpan
from lowmark.wire.values import show

__all__ = ["Suppression"]


class Suppression:
    """Of one bucket. `bounds`: by query, windows that end at or before this value have been completed.

    Rows of a query without windows belong to none: they are given again, under the new generation.
    """

    def __init__(self, windows: Mapping[str, Window | None], bounds: Mapping[str, int]) -> None:
        self._windows = windows
        self._bounds = bounds

    def __call__(self, output: Output) -> Output | None:
        """The output, or what is left of it; None when nothing is."""
        if not isinstance(output, ResultRows | Complete | Amendment | Correction | LateRow):
            return output
        bound = self._bounds.get(output.query)
        if bound is None:
            return output
        window = self._windows[output.query]
        match output:
            case ResultRows(window=number):
                known = number is not None and window is not None and window.end(number) <= bound
                return None if known else output
            case Complete():
                return _rest(output, window, bound)
            case Correction():
                return output if window is None else _rest_of_correction(output, window, bound)
            case _:
                span = output.windows
                return output if window is None or span is None or window.end(span.to) > bound else None


def _rest(complete: Complete, window: Window | None, bound: int) -> Complete | None:
    if complete.end <= bound:
        return None
    if complete.windows is None or window is None:
        return complete
    first = max(complete.windows.first, _first_after(window, bound))
    if first == complete.windows.first:
        return complete
    return replace(complete, windows=WindowSpan(first, complete.windows.to), start=window.start(first))


def _rest_of_correction(correction: Correction, window: Window, bound: int) -> Correction | None:
    first = max(correction.windows.first, _first_after(window, bound))
    if first > correction.windows.to:
        return None
    start = window.start(first)
    assert start is not None, "landmark windows are not corrected"
    span = WindowSpan(first, correction.windows.to)
    return replace(correction, windows=span, start=show(window.axis.kind, start))


def _first_after(window: Window, bound: int) -> int:
    """The first window that ends after the bound."""
    width = window.end(1) - window.end(0)
    return (bound - window.end(0)) // width + 1
