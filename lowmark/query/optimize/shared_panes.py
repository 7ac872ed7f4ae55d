"""Merges panes that belong to the same windows: one cell a slide, or two if a window is no multiple of its slide.

A pane is as long as the greatest common divisor of RANGE and SLIDE, which may be short: 12 minutes every 5 have panes
of a minute, 12 in a window. But windows begin and end in only two places of a slide (Krishnamurthy's paired windows),
so all rows between these places are merged on arrival. A window of 12 minutes is then 5 cells, of 2 and 3 minutes in
turn. A window of 10 seconds every second has 10 cells, even if tuples come in shorter panes.
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
    """`window` is the same window over cells instead of panes, with the same window numbers. `slide` and `cut` are in
    panes: the first cell of a slide has the panes before the cut; it is the only cell if the cut is the slide's end. A
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
