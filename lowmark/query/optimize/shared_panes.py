"""Panes that the same windows hold, as one: one piece a slide, or two where a window is no multiple of its slide.

Panes are as long as RANGE and SLIDE have in common, which may be little: 12 minutes every 5 have panes of a minute, and
12 of them. But windows begin and end in two places of a slide only (Krishnamurthy's paired windows), so what lies
between these is put together as it comes. A window of 12 minutes is then 5 cells, of 2 and 3 minutes in turn. Where
tuples come in panes that are shorter, 10 seconds every second are 10 cells whatever these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lowmark.query.windows.window import Window, WindowKind

__all__ = ["Cells", "cells_of"]

P = TypeVar("P", int, npt.NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Cells:
    """`window` is the same window over cells in place of panes: its numbers are the same. `slide` and `cut` are in
    panes: the first cell of a slide has those before the cut, and it is the only one where that is the slide's end. A
    slide of 1: a cell is a pane."""

    window: Window
    slide: int
    cut: int

    def of(self, pane: P) -> P:
        if self.slide == 1:
            return pane
        slides = pane // self.slide
        if self.cut == self.slide:
            return slides
        return 2 * slides + (pane - slides * self.slide >= self.cut)


def cells_of(window: Window) -> Cells:
    if window.kind is not WindowKind.SLIDING or window.slide == 1:
        return Cells(window, 1, 1)
    rest = window.size % window.slide
    if not rest:
        return Cells(replace(window, size=window.size // window.slide, slide=1), window.slide, window.slide)
    if window.slide == 2:
        return Cells(window, 1, 1)
    return Cells(
        replace(window, size=2 * (window.size // window.slide) + 1, slide=2), window.slide, window.slide - rest
    )
