"""A source that captures from an interface and delivers the blocks of its ring. Its low-watermark follows the clock
while no frames arrive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from ingest.config import LIVE_DISORDER, LiveConfig
from ingest.disorder.declarations import Disorder, WithinTime
from ingest.disorder.low_watermarks import ClockedLows
from ingest.files.errors import Damage
from ingest.live.bpf_condition import derived
from ingest.live.bpf_programs import Instruction, accepting
from ingest.live.interfaces import ANY, Interface, InterfaceError, NotPermitted, interface
from ingest.live.ring import RETIRED_MS, Fanout, Ring, RingBlocks
from ingest.live.tpacket_blocks import walk_blocks
from lowmark.wire.frames import FUTURE_NS, Flaw, FrameBlock
from lowmark.wire.records.verdicts import Reason

if TYPE_CHECKING:
    from ingest.metrics import SourceMetrics

__all__ = ["LiveSource"]

_LINK_HEADERS = 14 + 2 * 4  # bytes of Ethernet, and of two VLAN tags
_UNLIMITED = 1 << 40
_NOTHING = np.empty(0, np.uint8)
_NOTHING.flags.writeable = False


class LiveSource:
    """Inactive until `start()`. From `begin()` on frames gather in the ring, and `blocks()` delivers them. While none
    arrive, an empty block comes several times a second and still moves the low-watermark. Other threads may read the
    attributes meanwhile."""

    def __init__(
        self,
        config: LiveConfig,
        *,
        rank: int = 0,
        fanout: Fanout | None = None,
        metrics: SourceMetrics | None = None,
        tell: Callable[[str], None] = lambda text: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`fanout`: shared by the sources that divide the interface's packets. `tell` gets one-line messages for
        people. `now_ns` is the clock that stamps frames; tests inject their own."""
        self.name = config.name
        self.stream = config.stream
        self.rank = rank
        self.live = True
        self.received = 0  # frames delivered
        self.merged = 0  # frames, among those, that offloading merged from several packets
        self.ended = False  # an interface never ends
        self.damages: list[Damage] = []  # nor is it ever damaged
        self.disorder: Disorder = config.disorder
        self.start_ns: int | None = None  # traffic is covered from then on; set by begin()
        self.bound_ns: int | None = None  # the current bound of measured disorder
        self.filtering = False  # the kernel drops frames; settled by start()
        self.waits = True
        self._config = config
        self._fanout = fanout
        self._metrics = metrics
        self._tell = tell
        self._now_ns = now_ns
        self._stopping = Event()
        self._ring: Ring | None = None
        self._lows: ClockedLows | None = None
        self._lag_ns = _lag_ns(config.disorder)
        self._clock_ns = 0
        self._flaws: list[Flaw] = []  # for the next block

    @property
    def read_bytes(self) -> int:
        """Always 0: no file is read."""
        return 0

    @property
    def total_bytes(self) -> int | None:
        """Always unknown."""
        return None

    def open(self) -> None:
        """Open the ring, which needs CAP_NET_RAW. Raises InterfaceError if that is impossible."""
        self._ring = self._opened()

    def start(self) -> None:
        """Open the ring, if it is not open yet."""
        if self._ring is None:
            self.open()
        assert self._ring is not None
        ring = self._ring
        if self._metrics is not None:
            self._metrics.ring(ring.ring_bytes, self._filled_bytes)
        walk_blocks(ring.no_frames(), _UNLIMITED)  # compile it, if necessary, before anything waits for it
        if ring.interface.merging_note is not None:
            self._tell(ring.interface.merging_note)
        self.filtering = self._config.keep is not None and ring.interface.ethernet
        if self._config.keep is not None and not self.filtering:
            self._tell(f"{ring.interface.name}: its frames are not Ethernet's: the kernel leaves none of them out")
        if not ring.interface.up:
            self._tell(f"{ring.interface.name} is down: there is nothing to see before it is up")

    def begin(self) -> None:
        """Begin to capture packets."""
        if self._ring is None:
            raise RuntimeError(f"source {self.name} has not been started")
        self._ring.begin(self._program(self._ring.interface))
        self.start_ns = self._now_ns()
        self._lows = ClockedLows(self._config.disorder, self._lag_ns, self.start_ns)

    def blocks(self) -> Iterator[FrameBlock]:
        """All frames as they arrive. After `stop()`, those that had arrived before it. A block's data are borrowed
        until the next one is requested."""
        if self._lows is None:
            raise RuntimeError(f"source {self.name} has not begun")
        until_ns: int | None = None
        while True:
            if until_ns is None and self._stopping.is_set():
                until_ns = self._now_ns()
            clock_ns, waited = self._now_ns(), time.monotonic_ns()
            self._watch_clock(clock_ns)
            blocks = self._next_blocks()
            if blocks is not None:
                frames = self._framed(blocks, self._lows)
                self._count(frames)
                yield frames
                # A stamp from the future must not move the low-watermark past frames still to be delivered.
                if until_ns is not None and (frames.ts[frames.ts <= self._now_ns() + FUTURE_NS] >= until_ns).any():
                    return
            elif time.monotonic_ns() - waited >= RETIRED_MS * 1_000_000:
                # The ring stayed empty for so long that everything stamped by clock_ns has been seen.
                nothing = self._block(_NOTHING, Columns.of_size(0), np.empty(0, np.int64), self._lows.idle(clock_ns))
                self._count(nothing)
                yield nothing
                if until_ns is not None:
                    return

    def stop(self) -> None:
        """End the delivery, with all that has arrived by now; from any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Release the interface."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _opened(self) -> Ring:
        config = self._config
        return Ring(interface(config.interface), config.ring, promiscuous=config.promiscuous, fanout=self._fanout)

    def _program(self, at: Interface) -> tuple[Instruction, ...]:
        loopback = at.index if at.loopback else interface("lo").index if at.name == ANY else None
        keep, snaplen = self._config.keep, self._config.ring.snaplen
        if keep is None or not at.ethernet:
            return accepting(snaplen, loopback)
        return derived(keep, snaplen, loopback)

    def _next_blocks(self) -> RingBlocks | None:
        """Wait up to RETIRED_MS for blocks, even if the interface is gone meanwhile."""
        name = self._config.interface
        if self._ring is None:
            assert self._lows is not None
            time.sleep(RETIRED_MS / 1000)
            self._flaws.append(Flaw(Reason.NOT_COVERED, self._lows.low_ns, self._now_ns()))
            try:
                self._ring = self._opened()
                self._ring.begin(self._program(self._ring.interface))
            except NotPermitted:
                raise InterfaceError(
                    f"{name} is there again, and another ring for it takes the capability CAP_NET_RAW, which this "
                    "process has given up: start it again"
                ) from None
            except InterfaceError:
                return None
            self._tell(f"{name} is there again")
            return None
        blocks = self._ring.next_blocks(RETIRED_MS)
        if blocks is None and self._ring.take_fault():
            self._tell(f"{name} is down: there is nothing to see before it is up")
        if blocks is None and self._ring.removed:
            assert self._lows is not None
            self._flaws.append(Flaw(Reason.NOT_COVERED, self._lows.low_ns, self._now_ns()))
            self._tell(f"{name} was removed: another one of its name will be captured from")
            self.close()
        return blocks

    def _watch_clock(self, clock_ns: int) -> None:
        """Detect a clock that was set back: it stamps times again that were already promised or delivered."""
        if clock_ns < self._clock_ns - self._lag_ns:
            self._tell(f"{self.name}: the clock was set back by {(self._clock_ns - clock_ns) / 1e9:.1f} s")
            self._flaws.append(Flaw(Reason.CLOCK, clock_ns, self._clock_ns))
        self._clock_ns = clock_ns

    def _framed(self, blocks: RingBlocks, lows: ClockedLows) -> FrameBlock:
        assert self._ring is not None
        mtu = self._ring.interface.mtu
        columns, vlan, merged = walk_blocks(blocks, _UNLIMITED if mtu is None else mtu + _LINK_HEADERS)
        if merged:
            self._note_merged(merged)
        low, low_after = lows.of(columns, self._now_ns() + FUTURE_NS)
        self.bound_ns = lows.bound_ns
        return self._block(blocks.bytes_, columns, low, low_after, vlan)

    def _block(
        self, data: npt.NDArray[np.uint8], of: Columns, low: npt.NDArray[np.int64], low_after: int,
        vlan: npt.NDArray[np.int32] | None = None,
    ) -> FrameBlock:  # fmt: skip
        # Read the count of drops after low_after, so that a promise comes with every drop before it.
        dropped, freezes = (0, 0) if self._ring is None else self._ring.take_losses()
        if freezes and self._metrics is not None:
            self._metrics.frozen(freezes)
        flaws, self._flaws = tuple(self._flaws), []
        return FrameBlock(
            data=data, offset=of.offset, captured=of.captured, length=of.length, ts=of.ts, link=of.link,
            low=low, low_after=low_after, vlan=vlan, dropped=dropped, taken_ns=self._now_ns(),
            flaws=flaws,
        )  # fmt: skip

    def _filled_bytes(self) -> int:
        ring = self._ring  # another thread may replace it
        return 0 if ring is None else ring.filled_bytes

    def _note_merged(self, merged: int) -> None:
        if not self.merged:
            self._tell(f"{self.name}: frames longer than the MTU arrive: offloading made them of several packets each")
        self.merged += merged
        if self._metrics is not None:
            self._metrics.merged(merged)

    def _count(self, block: FrameBlock) -> None:
        self.received += len(block)
        if self._metrics is not None:
            self._metrics.block(len(block), block.low_after)
            if self.bound_ns is not None:
                self._metrics.bounded(self.bound_ns)


def _lag_ns(disorder: Disorder) -> int:
    """How far the low-watermark stays behind the clock while no frames arrive: the time for which a receive queue may
    hold frames back."""
    return disorder.bound_ns if isinstance(disorder, WithinTime) else LIVE_DISORDER.bound_ns
