"""The findings of `lowmark scan`: how far the packets of a capture are out of order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.disorder.declarations import Disorder, Measured, Ordered, Scan, WithinTime
from ingest.disorder.low_watermarks import arrival_lows
from ingest.disorder.observed_lateness import Lateness, PlacesLate, behind
from ingest.disorder.stream_time import StreamTime
from ingest.files.capture import CaptureFile, Frames
from ingest.files.errors import CaptureError, Damage
from ingest.files.series import CaptureSeries, open_captures
from ingest.files.source import UNTIMED
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["SHARES", "Declared", "Scanned", "Untimed", "declared_of", "scan_capture"]

SHARES = (0.5, 0.99, 0.999, 0.9999)
"""Shares of the frames for which a bound is reported."""


class Untimed:
    """Counts frames without a time, by their `link`."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(UNTIMED, 0)

    def add(self, frames: Frames) -> None:
        link = frames.columns.link
        if len(link) and int(link.min()) < 0:
            for code in UNTIMED:
                self._counts[code] += int((link == code).sum())

    @property
    def frames(self) -> int:
        return sum(self._counts.values())

    @property
    def said(self) -> list[str]:
        """What happens to them, one line for each kind."""
        return [f"{count:,} {UNTIMED[code]}" for code, count in self._counts.items() if count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """Findings about the frames that have a time. Bounds in ns."""

    name: str
    frames: int
    untimed: Untimed
    first_ns: int | None  # the least time, since 1970; None: there is no frame
    last_ns: int | None
    out_of_order: int  # frames that are older than the newest before them, a lone one far ahead left aside
    within_ns: tuple[int, ...]  # the bound that each share of SHARES keeps, rounded up
    most_ns: int  # the bound that all frames keep
    places: int | None  # n of the `within n tuples` that all keep; None: more than can be declared
    damages: list[Damage]

    def __str__(self) -> str:
        if self.disorder is None:
            return f"{self.name}: no frame has a time"
        return f"{self.name}: with disorder `{self.disorder}`, none of its {self.frames:,} frames is late"

    @property
    def facts(self) -> dict[str, str | int | float | None]:
        return {
            "capture": self.name, "frames": self.frames, "without_time": self.untimed.frames, "disorder": self.disorder
        }  # fmt: skip

    @property
    def disorder(self) -> str | None:
        """The declaration by which no frame is late; None if no frame has a time."""
        if not self.frames:
            return None
        if not self.out_of_order:
            return str(Ordered())
        scale = 10 ** max(0, len(str(self.most_ns)) - 2)
        return str(WithinTime(-(-self.most_ns // scale) * scale))


def scan_capture(path: str) -> Scanned:
    """Reads a capture, a folder or a pattern to its end. An unreadable one is reported as damage, not raised."""
    capture = _opened(path)
    time, lateness, places, untimed = StreamTime(), Lateness(), PlacesLate(), Untimed()
    first, last = FOREVER, NEVER
    for frames in capture.blocks():
        untimed.add(frames)
        ts = frames.columns.ts[frames.columns.link >= 0]
        first, last = min(first, int(ts.min(initial=FOREVER))), max(last, int(ts.max(initial=NEVER)))
        believed = time.of(ts)
        lateness.add(behind(ts, believed))
        places.add(ts, believed)
    some = lateness.frames > 0
    scanned = Scanned(
        name=capture.name, frames=lateness.frames, untimed=untimed,
        first_ns=first if some else None, last_ns=last if some else None,
        out_of_order=lateness.out_of_order, within_ns=tuple(lateness.within_ns(share) for share in SHARES),
        most_ns=lateness.most_ns, places=places.most, damages=capture.damages,
    )  # fmt: skip
    capture.close()
    return scanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The effect of a declared disorder on a capture."""

    name: str
    frames: int  # those that have a time
    untimed: Untimed
    behind: int  # frames behind the low-watermark: late if their granule has ended by then
    bound_ns: int | None  # of measured disorder, at the end
    damages: list[Damage]

    def __str__(self) -> str:
        bound = "" if self.bound_ns is None else f"the bound measured at the end is {self.bound_ns / 1e6:g} ms; "
        return f"{self.name}: {bound}{self.behind:,} of {self.frames:,} frames arrive behind the low-watermark"

    @property
    def facts(self) -> dict[str, str | int | float | None]:
        bound = {} if self.bound_ns is None else {"bound_s": self.bound_ns / 1e9}
        untimed = self.untimed.frames
        return {"capture": self.name, "frames": self.frames, "without_time": untimed, "behind": self.behind, **bound}


def declared_of(path: str, disorder: Disorder) -> Declared:
    """Reads a capture, a folder or a pattern as a query would, but runs no query. An unreadable one is reported as
    damage, not raised."""
    capture, untimed = _opened(path), Untimed()
    lows = None if isinstance(disorder, Scan) else arrival_lows(disorder)  # after a scan no frame is behind
    frames = behind = 0
    for block in capture.blocks():
        untimed.add(block)
        timed = block.columns.link >= 0
        frames += int(timed.sum())
        if lows is not None:
            low, _ = lows.of(block.columns)
            behind += int((timed & (block.columns.ts < low)).sum())
    bound_ns = lows.bound_ns if lows is not None and isinstance(disorder, Measured) else None
    found = Declared(
        name=capture.name, frames=frames, untimed=untimed, behind=behind, bound_ns=bound_ns, damages=capture.damages
    )
    capture.close()
    return found


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands for a capture that cannot be read at all."""

    name: str
    damages: list[Damage]

    def blocks(self) -> Iterator[Frames]:
        return iter(())

    def close(self) -> None:
        """Does nothing: it is not open."""


def _opened(path: str) -> CaptureFile | CaptureSeries | _Unreadable:
    try:
        return open_captures(path)
    except CaptureError as error:
        return _Unreadable(path, [Damage(path, None, str(error).removeprefix(f"{path}: "))])
