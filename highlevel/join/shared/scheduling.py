"""The figures by which the schedules of a shared join choose (Hammad 2003, 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from highlevel.join.shared.schedule_kernel import LWO, MQT, SWF
from lowmark.query.plan.joins import Scheduling
from lowmark.query.plan.shared_joins import SharedJoin, width

__all__ = ["number_of", "throughputs"]

_NUMBERS = {Scheduling.LWO: LWO, Scheduling.SWF: SWF, Scheduling.MQT: MQT}


def number_of(scheduling: Scheduling) -> int:
    return _NUMBERS[scheduling]


def throughputs(plan: SharedJoin) -> npt.NDArray[np.float64]:
    """MaxQT: at [i, j] the most queries that a row serves for each ns of window, if it has scanned i windows and may
    scan up to j."""
    widths = [0, *map(width, plan.joins)]
    served = [0, *np.cumsum(plan.readers).tolist()]
    found = np.zeros((len(widths), len(widths)))
    for met in range(len(widths) - 1):
        for upto in range(met + 1, len(widths)):
            gains = (_gain(served[k] - served[met], widths[k] - widths[met]) for k in range(met + 1, upto + 1))
            found[met, upto] = max(gains)
    return found


def _gain(queries: int, more: int) -> float:
    """Queries served for each ns; a window that adds no time is scanned at once."""
    return queries / more if more else float("inf")
