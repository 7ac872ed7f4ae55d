"""Windows in the space of panes: window-ids and extents as pure functions (Li 5.1).

Every window that an operator sees is a run of whole panes, so ids and extents are integers for any attribute.
`Axis` turns pane numbers back into values of the windowing attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lowmark.wire.rows.schema import Kind

__all__ = ["Axis", "Window", "WindowKind"]


class WindowKind(Enum):
    SLIDING = "sliding"  # panes (k+1)·slide − size … (k+1)·slide − 1; tumbling if size = slide
    LANDMARK = "landmark"  # all panes up to (k+1)·slide − 1
    SLIDE_BY_TUPLE = "slide-by-tuple"  # (w − size, w] for the value w of every slide-th tuple, so it depends on data
    NONE = "none"  # the groups of a pane close with the pane; rows show no window


@dataclass(frozen=True, slots=True)
class Axis:
    """The windowing attribute: pane i holds its values from i·unit + origin up to (i+1)·unit + origin."""

    attribute: str  # its name in completions and `explain`
    kind: Kind  # TIME (unit in ns) or INT
    unit: int
    origin: int = 0  # 1 for row numbers, which begin at 1

    def value(self, pane: int) -> int:
        return pane * self.unit + self.origin


@dataclass(frozen=True, slots=True)
class Window:
    """A window clause. The methods do not apply to slide-by-tuple windows: the data decide where those lie."""

    kind: WindowKind
    size: int  # RANGE in panes; landmark: 0; slide-by-tuple: in units of the axis
    slide: int  # SLIDE in panes; slide-by-tuple: in tuples
    axis: Axis

    def extent(self, window: int) -> range:
        """The panes of a window. For a landmark window: those of its last slide (older ones are in the state)."""
        end = (window + 1) * self.slide
        return range(end - (self.size or self.slide), end)

    def wids(self, pane: int) -> range:
        """The windows that hold a pane: the inverse of `extent` (Li eq. 5.3, with floors; landmark: the first one)."""
        span = self.size or self.slide
        return range(pane // self.slide, (pane + span) // self.slide)

    def closed_by(self, frontier: int) -> int:
        """The number of the first window that is still open after every pane below `frontier` has ended."""
        return frontier // self.slide

    def first_needed(self, window: int) -> int:
        """The oldest pane that this window or any later one still needs."""
        return self.extent(window).start

    def start(self, window: int) -> int | None:
        """The attribute's value at `window_start`; None for a landmark window."""
        return None if self.kind is WindowKind.LANDMARK else self.axis.value(self.extent(window).start)

    def end(self, window: int) -> int:
        return self.axis.value((window + 1) * self.slide)

    def first_after(self, bound: int) -> int:
        """The first window that ends after this value of the attribute; of windows over time, whose ends do not depend
        on data."""
        return (bound - self.end(0)) // (self.end(1) - self.end(0)) + 1

    def ending_at(self, end: int) -> int:
        """The window whose `window_end` is `end`."""
        if self.kind is WindowKind.SLIDE_BY_TUPLE:
            return end
        return (end - self.axis.origin) // (self.slide * self.axis.unit) - 1
