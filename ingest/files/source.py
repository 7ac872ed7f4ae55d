"""A source that reads a capture file: its frames, with the low-watermark that its disorder allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.config import FileConfig
from ingest.disorder.declarations import Disorder, DisorderError, Ordered, Scan, WithinTime, WithinTuples
from ingest.disorder.holes import Holes, scanned_holes
from ingest.disorder.low_watermarks import NEVER, ArrivalLows, arrival_lows, least_after, scanned_lows
from ingest.disorder.stream_time import moved
from ingest.files.capture import NO_FRAMES, CaptureFile, Frames
from ingest.files.errors import Damage
from ingest.files.replay import replayed
from ingest.files.series import CaptureSeries, open_captures
from lowmark.wire.frames import BAD_TIME, NO_TIME, UNKNOWN_INTERFACE, Flaw, FrameBlock
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER

if TYPE_CHECKING:
    from ingest.metrics import SourceMetrics

__all__ = ["UNTIMED", "FileSource", "Source"]

_Promised = tuple[Frames, npt.NDArray[np.int64], int]
"""A block, the low-watermark before each of its frames, and the one after it."""

_LOSSY = "they are skipped, and the windows that they may be of are lossy"
UNTIMED = {
    BAD_TIME: "packets with a time outside of the years 1677 to 2262: they are of no window, and skipped as malformed",
    NO_TIME: f"packets without a timestamp (simple packet blocks): {_LOSSY}",
    UNKNOWN_INTERFACE: f"packets of interfaces that the capture does not describe: {_LOSSY}",
}
"""The treatment of frames without a time, by their `link`."""


class Source(Protocol):
    """A capture or an interface. `start()` opens it; from `begin()` on it covers the traffic that passes; `blocks()`
    delivers this until its end or `stop()`. Other threads may read the attributes."""

    name: str
    stream: str
    rank: int
    live: bool  # captured as it happens
    received: int  # frames delivered
    ended: bool  # everything was delivered
    damages: list[Damage]  # the damage found so far
    start_ns: int | None  # the time from which a live source covers its traffic; set once it has begun

    bound_ns: int | None  # the current bound of measured disorder
    filtering: bool  # the kernel drops what no query wants; known once it is open
    waits: bool  # waits for data that is yet to be sent; known once it is open

    @property
    def disorder(self) -> Disorder | None: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int | None: ...
    def start(self) -> None: ...
    def begin(self) -> None: ...
    def blocks(self) -> Iterator[FrameBlock]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class FileSource:
    """Inactive until `start()`. Then `blocks()` delivers the capture once. Other threads may read the attributes
    meanwhile."""

    def __init__(
        self,
        config: FileConfig,
        *,
        rank: int = 0,
        metrics: SourceMetrics | None = None,
        tell: Callable[[str], None] = lambda text: None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`rank` orders the sources among themselves if times are equal. `tell` gets one-line messages for people. The
        clock and `wait` (which takes seconds and returns whether to stop) matter only to replays."""
        self.name = config.name
        self.stream = config.stream
        self.rank = rank
        self.live = False
        self.received = 0  # frames delivered
        self.ended = False  # everything that can be read was delivered
        self.damages: list[Damage] = []  # the damage that the reading has reached
        self.start_ns: int | None = None  # a file covers its content
        self.bound_ns: int | None = None
        self.filtering = False
        self.waits = False
        self.disorder: Disorder | None = config.disorder  # the disorder in force; settled by start()
        self._config = config
        self._metrics = metrics
        self._tell = tell
        self._now_ns = now_ns
        self._stopping = Event()
        self._wait = wait or self._stopping.wait
        self._capture: CaptureFile | CaptureSeries | None = None
        self._began_ns = 0
        self._untimed: set[int] = set()  # the `link` codes seen of frames without a time

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that the current reading has taken; a scan reads the file twice."""
        return 0 if self._capture is None else self._capture.read_bytes

    @property
    def total_bytes(self) -> int | None:
        """Size of the file; None if unknown."""
        return None if self._capture is None else self._capture.total_bytes

    def start(self) -> None:
        """Open the capture. Raises CaptureError if it is not one, DisorderError if it cannot be scanned."""
        capture = open_captures(self._config.path, self._config.follow)
        if self.disorder is None:
            self.disorder = Scan() if capture.rereadable else Ordered()
        if isinstance(self.disorder, Scan) and not capture.rereadable:
            capture.close()
            if self._config.follow:
                raise DisorderError(
                    f"source {self.name}: scan reads its input to the end first, and what is followed has none; "
                    "declare ordered, within … or measured"
                )
            raise DisorderError(
                f"source {self.name}: scan reads its input twice, and {capture.name} can be read once; "
                "declare ordered or within …, or write it to a file first"
            )
        self._capture = capture
        self.waits = not capture.rereadable
        self._began_ns = self._now_ns()

    def begin(self) -> None:
        """Does nothing: a file has no beginning to miss."""

    def blocks(self) -> Iterator[FrameBlock]:
        """All frames, in the order of the file. The last block is empty and promises that nothing follows, unless
        `stop()` was called first. A block's data are borrowed until the next one is requested."""
        if self._capture is None:
            raise RuntimeError(f"source {self.name} has not been started")
        replay = self._config.replay
        blocks = self._promised(self._capture)
        if replay is not None:
            blocks = replayed(blocks, replay, start_ns=self._began_ns, now_ns=self._now_ns, wait=self._wait)
        low = NEVER
        for block in blocks:
            if self._stopping.is_set():
                if block.flaws:  # they also concern what has been delivered
                    yield _block(NO_FRAMES, np.empty(0, np.int64), low, block.flaws)
                return
            low = block.low_after
            self.received += len(block)
            self.ended = block.low_after == FOREVER
            self._count(block)
            yield block

    def stop(self) -> None:
        """End the delivery after the current block, or while it waits for one; from any thread."""
        self._stopping.set()
        if self._capture is not None:
            self._capture.interrupt()

    def close(self) -> None:
        """Release the file."""
        if self._capture is not None:
            self._capture.close()

    def _promised(self, capture: CaptureFile | CaptureSeries) -> Iterator[FrameBlock]:
        flaws: list[Flaw] = []  # for the next block
        if isinstance(self.disorder, Scan):
            blocks = self._scanned(capture, flaws)
        else:
            blocks = self._arriving(capture, arrival_lows(self.disorder or Ordered()), flaws)
        for frames, low, low_after in blocks:
            yield _block(frames, low, low_after, flaws)
            flaws.clear()
        if not self._stopping.is_set():
            yield _block(NO_FRAMES, np.empty(0, np.int64), FOREVER, flaws)

    def _scanned(self, capture: CaptureFile | CaptureSeries, flaws: list[Flaw]) -> Iterator[_Promised]:
        """Blocks with promises from a first pass; damage is known before anything is promised."""
        replay = self._config.replay
        paced = replay is not None and replay.pace is not None  # the clock needs promises at each frame
        lows = scanned_lows(least_after(self._first_pass(capture)), within=paced)
        known = list(self.damages)
        if known or self._untimed - {BAD_TIME}:
            read = (None if isinstance(item, Damage) else item.columns for item in self._items(capture))
            flaws += (Flaw(Reason.DAMAGED, *span) for span in scanned_holes(read))
        low_after = NEVER
        for item in self._items(capture):
            if not isinstance(item, Damage):
                low, low_after = lows.of(item.columns)
                yield item, low, low_after
            elif item in known:
                known.remove(item)
            else:  # it was damaged between the passes
                self._found(item)
                flaws.append(Flaw(Reason.DAMAGED, low_after, FOREVER))

    def _first_pass(self, capture: CaptureFile | CaptureSeries) -> Iterator[Columns]:
        for item in self._items(capture):
            if isinstance(item, Damage):
                self._found(item)
            else:
                self._note_untimed(item.columns)
                yield item.columns

    def _arriving(
        self, capture: CaptureFile | CaptureSeries, lows: ArrivalLows, flaws: list[Flaw]
    ) -> Iterator[_Promised]:
        holes = Holes(self.disorder.count if isinstance(self.disorder, WithinTuples) else 0)
        low_after = NEVER
        for item in self._items(capture):
            if isinstance(item, Damage):
                self._found(item)
                holes.open(low_after)
                item = NO_FRAMES
            self._note_untimed(item.columns)
            low, low_after = lows.of(item.columns)
            self.bound_ns = lows.bound_ns
            reach_ns = self.disorder.bound_ns if isinstance(self.disorder, WithinTime) else self.bound_ns or 0
            for from_ns, until_ns in holes.of(item.columns, low, lows.believed):
                flaws.append(Flaw(Reason.DAMAGED, from_ns, moved(until_ns, reach_ns)))
            yield item, low, low_after
        if not self._stopping.is_set():
            flaws += (Flaw(Reason.DAMAGED, *span) for span in holes.end())

    def _items(self, capture: CaptureFile | CaptureSeries) -> Iterator[Frames | Damage]:
        """One reading of the capture, until it is stopped: blocks, and the damage found between them. A stop of the
        reading is not damage."""
        told = 0
        blocks = capture.blocks()
        while not self._stopping.is_set():
            try:
                frames = next(blocks, None)
            except OSError as error:  # a failing disk ends only this source
                frames, reason = None, f"reading failed ({error.strerror or error})"
                capture.damages.append(Damage(capture.name, None, reason))
            if self._stopping.is_set():
                return
            yield from capture.damages[told:]
            told = len(capture.damages)
            if frames is None:
                return
            yield frames

    def _found(self, damage: Damage) -> None:
        self.damages.append(damage)
        self._tell(f"{damage.kind}: {damage}")
        if self._metrics is not None:
            self._metrics.damage()

    def _note_untimed(self, columns: Columns) -> None:
        if len(columns.link) and int(columns.link.min()) < 0:
            for code, said in UNTIMED.items():
                if code not in self._untimed and (columns.link == code).any():
                    self._untimed.add(code)
                    self._tell(f"{self.name}: there are {said}")

    def _count(self, block: FrameBlock) -> None:
        if self._metrics is None:
            return
        known = block.low_after not in (NEVER, FOREVER)
        self._metrics.block(len(block), block.low_after if known else None)
        self._metrics.read_to(self.read_bytes)
        if self.bound_ns is not None:
            self._metrics.bounded(self.bound_ns)


def _block(frames: Frames, low: npt.NDArray[np.int64], low_after: int, flaws: Iterable[Flaw]) -> FrameBlock:
    of = frames.columns
    return FrameBlock(
        data=frames.data, offset=of.offset, captured=of.captured, length=of.length, ts=of.ts, link=of.link,
        low=low, low_after=low_after, flaws=tuple(flaws),
    )  # fmt: skip
