"""A source that reads a capture file: its frames, with the low-watermark that its disorder allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ingest.capture import CaptureFile
from ingest.columns import Columns
from ingest.config import FileConfig
from ingest.damage import Damage
from ingest.disorder import Disorder, DisorderError, Ordered, Scan
from ingest.lows import NEVER, Lows, arrival_lows, least_after, scanned_lows
from ingest.pace import replayed
from ingest.series import CaptureSeries, open_captures
from lowmark.wire.frames import FOREVER, FrameBlock

if TYPE_CHECKING:
    from ingest.metrics import SourceMetrics

__all__ = ["FileSource", "Source"]


class Source(Protocol):
    """A capture or an interface. `start()` opens it, from `begin()` on it covers what passes, `blocks()` delivers that
    until its end or `stop()`. The attributes may be read from other threads."""

    name: str
    stream: str
    rank: int
    received: int  # frames that were delivered
    ended: bool  # everything was delivered
    damage: Damage | None  # why that is not all there is
    start_ns: int | None  # covered from; None: from whatever the first frame is

    bound_ns: int | None  # of measured disorder: the bound at present
    filtering: bool  # the kernel leaves out what nobody wants; known when it is open

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
    """Inert until `start()`. Then `blocks()` delivers the capture once; the attributes may be read meanwhile, from
    other threads too."""

    def __init__(
        self,
        config: FileConfig,
        *,
        rank: int = 0,
        metrics: SourceMetrics | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`rank` orders the sources among themselves, where times are equal. The clock and `wait` (which takes seconds
        and says whether to stop) matter to replays alone."""
        self.name = config.name
        self.stream = config.stream
        self.rank = rank
        self.received = 0  # frames that were delivered
        self.ended = False  # everything was delivered: all there is, or all before the damage
        self.damage: Damage | None = None  # set before the last block is delivered
        self.start_ns: int | None = None  # a file covers what is in it
        self.bound_ns: int | None = None
        self.filtering = False
        self.disorder: Disorder | None = config.disorder  # what rules; settled by start()
        self._config = config
        self._metrics = metrics
        self._now_ns = now_ns
        self._stopping = Event()
        self._wait = wait or self._stopping.wait
        self._capture: CaptureFile | CaptureSeries | None = None
        self._began_ns = 0

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that the present reading has taken; a scan reads the file twice."""
        return 0 if self._capture is None else self._capture.read_bytes

    @property
    def total_bytes(self) -> int | None:
        """Size of the file; None where there is no saying."""
        return None if self._capture is None else self._capture.total_bytes

    def start(self) -> None:
        """Opens the capture. Raises CaptureError where it is none, DisorderError where it cannot be scanned."""
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
        self._began_ns = self._now_ns()

    def begin(self) -> None:
        """A file has no beginning to miss."""

    def blocks(self) -> Iterator[FrameBlock]:
        """All frames, in the order of the file. The last block is empty and promises that nothing follows: unless
        `stop()` came first. A block's data are borrowed until the next one is asked for."""
        if self._capture is None:
            raise RuntimeError(f"source {self.name} has not been started")
        replay = self._config.replay
        blocks = self._promised(self._capture)
        if replay is not None:
            blocks = replayed(blocks, replay, start_ns=self._began_ns, now_ns=self._now_ns, wait=self._wait)
        for block in blocks:
            if self._stopping.is_set():
                return
            self.received += len(block)
            self.ended = block.low_after == FOREVER
            self._count(block)
            yield block

    def stop(self) -> None:
        """Ends the delivery behind the present block, or while it waits for one, from any thread."""
        self._stopping.set()
        if self._capture is not None:
            self._capture.interrupt()

    def close(self) -> None:
        """Lets go of the file."""
        if self._capture is not None:
            self._capture.close()

    def _promised(self, capture: CaptureFile | CaptureSeries) -> Iterator[FrameBlock]:
        lows = self._lows(capture)
        low_after = NEVER
        for frames in capture.blocks():
            low, low_after = lows.of(frames.columns)
            self.bound_ns = lows.bound_ns
            yield _block(frames.data, frames.columns, low, low_after)
        if self._stopping.is_set():
            return  # what the reading was cut off from is no damage
        self.damage = capture.damage
        nothing = np.empty(0, np.uint8)
        nothing.flags.writeable = False
        yield _block(nothing, Columns.of_size(0), np.empty(0, np.int64), FOREVER)

    def _lows(self, capture: CaptureFile | CaptureSeries) -> Lows:
        match self.disorder:
            case None | Scan():
                return scanned_lows(least_after(self._until_stopped(capture)))
            case declared:
                return arrival_lows(declared)

    def _until_stopped(self, capture: CaptureFile | CaptureSeries) -> Iterator[Columns]:
        for frames in capture.blocks():
            if self._stopping.is_set():
                return
            yield frames.columns

    def _count(self, block: FrameBlock) -> None:
        if self._metrics is None:
            return
        known = block.low_after not in (NEVER, FOREVER)
        self._metrics.block(len(block), block.low_after if known else None)
        self._metrics.read_to(self.read_bytes)
        if self.bound_ns is not None:
            self._metrics.bounded(self.bound_ns)
        if self.ended and self.damage is not None:
            self._metrics.damage()


def _block(data: np.typing.NDArray[np.uint8], of: Columns, low: np.typing.NDArray[np.int64], after: int) -> FrameBlock:
    return FrameBlock(
        data=data, offset=of.offset, captured=of.captured, length=of.length, ts=of.ts, link=of.link,
        low=low, low_after=after,
    )  # fmt: skip
