"""How late frames come, by time and by places, after newer ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ingest.disorder.declarations import MOST_TUPLES

__all__ = ["Lateness", "PlacesLate", "behind"]

_STEPS = 16  # classes per octave: a class's upper end is at most 4.5% above its values
_CLASSES = 64 * _STEPS + 1


def behind(ts: npt.NDArray[np.int64], newest: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How far each frame is behind a time, ns; 0 for a frame ahead of it. Limited to int64."""
    ahead = ts >= newest
    with np.errstate(over="ignore"):
        late = newest - ts
    late[late < 0] = np.iinfo(np.int64).max  # a difference beyond int64
    late[ahead] = 0
    return late


@dataclass(slots=True, eq=False)
class Lateness:
    """The distribution of the observed lateness."""

    frames: int = 0
    out_of_order: int = 0  # frames that are older than the time believed by then
    most_ns: int = 0
    _counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CLASSES, np.int64))

    def add(self, late_ns: npt.NDArray[np.int64]) -> None:
        if not len(late_ns):
            return
        self.frames += len(late_ns)
        late = late_ns[late_ns > 0]
        self.out_of_order += len(late)
        self._counts[0] += len(late_ns) - len(late)
        if len(late):
            self.most_ns = max(self.most_ns, int(late.max()))
            classes = 1 + (np.log2(late.astype(np.float64)) * _STEPS).astype(np.int64)
            self._counts += np.bincount(np.minimum(classes, _CLASSES - 1), minlength=_CLASSES)

    def within_ns(self, share: float) -> int:
        """A bound that at least this share of the frames keep, close to the smallest such bound. 0 for no frames."""
        counted = np.cumsum(self._counts)
        place = int(np.searchsorted(counted, share * counted[-1]))
        return 0 if place == 0 else min(self.most_ns, int(2 ** (place / _STEPS)) + 1)

    def fade(self) -> None:
        """Halve the weight of what was observed so far. The greatest lateness does not change."""
        self._counts //= 2


class PlacesLate:
    """How many places late frames come: the n for `within n tuples`."""

    def __init__(self) -> None:
        self.most: int | None = 0  # None: more than can be declared
        self._newest = np.empty(0, np.int64)  # after each of the last frames

    def add(self, ts: npt.NDArray[np.int64], believed: npt.NDArray[np.int64]) -> None:
        """Add frames, with the newest time believed after each."""
        kept = self._newest
        newest = np.concatenate([kept, believed])
        behind = np.flatnonzero(newest[len(kept) :] > ts)
        if len(behind) and self.most is not None:
            first_newer = np.searchsorted(newest, ts[behind], side="right")
            most = int((behind + len(kept) - first_newer).max())
            self.most = None if int(first_newer.min()) == 0 and most >= MOST_TUPLES else max(self.most, most)
        self._newest = newest[-MOST_TUPLES:]
