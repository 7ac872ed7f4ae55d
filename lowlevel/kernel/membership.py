"""How kernels look for a value in a set. The constants are data that a kernel is given: its text, and with it its
native code, is the same whatever they are and however many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowmark.query.expressions import Call, Expr, Ranges
from lowmark.query.halves import expressions_of
from lowmark.query.plan import Reduction

__all__ = ["among", "ranges_of"]


def ranges_of(reduction: Reduction) -> tuple[Ranges, ...]:
    """The sets of several ranges that a node asks for, each once."""
    found: dict[Ranges, None] = {}
    pending: list[Expr] = list(reversed(expressions_of(reduction)))
    while pending:
        match pending.pop():
            case Ranges() as ranges if len(ranges) > 1:
                found[ranges] = None
            case Call(args=args):
                pending.extend(reversed(args))
    return tuple(found)


def among(ranges: npt.NDArray[np.int64], value: tuple[int, ...]) -> bool:
    """Whether a value lies in one of the ranges, whose rows are `Ranges.matrix`; the words are compared as they
    are there. It takes no branch but the loop's: where it goes nobody could foretell."""
    words = len(value)
    at, left = np.uint64(0), np.uint64(ranges.shape[0])
    while left > 1:
        half = left >> np.uint64(1)
        before = False
        for place in range(words - 1, -1, -1):
            first = ranges[at + half, place]
            before = (value[place] < first) | ((value[place] == first) & before)
        at = at if before else at + half
        left -= half
    inside, behind = True, True
    for place in range(words - 1, -1, -1):
        first, last = ranges[at, place], ranges[at, words + place]
        inside = (value[place] > first) | ((value[place] == first) & inside)
        behind = (value[place] < last) | ((value[place] == last) & behind)
    return inside & behind
