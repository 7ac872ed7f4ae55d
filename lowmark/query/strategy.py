"""By which strategy a windowed aggregate is evaluated. A module of its own: the command line needs little of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["DEFAULT_RATES", "Rates", "Strategy"]


class Strategy(Enum):
    """How groups of open windows are held (Li ch. 6). None of them changes a row."""

    AUTO = "auto"  # the plan's own choice, by cost
    WID = "wid"  # 6.1: each partial is merged into every open window that holds it
    PANED = "paned"  # 6.2: each partial is merged into its pane, and windows are put together from panes as they close
    ADAPT = "adapt"  # 6.3: by group one or the other, whichever keeps less, with switches while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What costs are computed of. Raises ValueError for what cannot be."""

    tuples: float = 10_000.0  # that a stage reduces, a second (where windows go over seconds)
    groups: int = 10_000  # at the most in a pane
    stored: bool = True  # state is read and written with each batch of rows, as in the job

    def __post_init__(self) -> None:
        if not self.tuples > 0:
            raise ValueError(f"a rate is above 0, not {self.tuples:g}")
        if self.groups < 1:
            raise ValueError(f"groups are 1 or more, not {self.groups}")


DEFAULT_RATES = Rates()
