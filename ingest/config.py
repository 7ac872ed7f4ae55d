"""The settings of a source that reads a capture."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingest.disorder.declarations import Disorder, DisorderError, Scan, WithinTime
from ingest.files.inputs import STANDARD_INPUT
from lowmark.query.expr.expressions import Expr

__all__ = ["LIVE_DISORDER", "FileConfig", "LiveConfig", "Playback", "RingConfig"]

LIVE_DISORDER = WithinTime(50_000_000)
"""The disorder of interfaces without a declaration: their receive queues reorder frames."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """A capture played back as if it were live. Raises ValueError for impossible values."""

    pace: float | None = None  # seconds of the capture per second; None: as fast as it is read
    rebase_to_ns: int | None = None  # the time, ns since 1970, to which rebase_from_ns is moved; None: times stay
    rebase_from_ns: int | None = None  # a time of the capture, ns since 1970; None: its first frame's
    tick_ns: int = 20_000_000  # frames that fall due within this time make one block

    def __post_init__(self) -> None:
        if self.pace is not None and not (math.isfinite(self.pace) and self.pace > 0):
            raise ValueError(f"pace is {self.pace}; it is a number above 0 (1 is the capture's own pace)")
        if self.tick_ns <= 0:
            raise ValueError(f"tick_ns is {self.tick_ns}; it is a number of nanoseconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """A source that reads a capture file, several as one (a folder, a pattern), a pipe, or standard input (`-`). Raises
    DisorderError for impossible values."""

    name: str
    stream: str
    path: str
    disorder: Disorder | None = None  # None: scan if the capture can be read twice, else ordered
    replay: Playback | None = None
    follow: bool = False  # at the end, wait for more: the file grows, or another one comes

    def __post_init__(self) -> None:
        if self.path == STANDARD_INPUT and isinstance(self.disorder, Scan):
            raise DisorderError(
                f"source {self.name}: scan reads its input twice, and standard input can be read once; "
                "declare ordered or within …, or name the file"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingConfig:
    """The memory into which the kernel writes frames, for each source. Raises ValueError for impossible values."""

    ring_bytes: int = 32 << 20
    snaplen: int = 512  # bytes kept of a frame: only headers are read

    def __post_init__(self) -> None:
        if self.ring_bytes < 2 * _BLOCK or self.ring_bytes % _BLOCK:
            raise ValueError(
                f"ring_bytes is {self.ring_bytes}; it is a multiple of 1 MiB (1048576), at least 2 of them"
            )
        if not 64 <= self.snaplen <= 65_535:
            raise ValueError(f"snaplen is {self.snaplen}; it is 64 to 65535 bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """A source that captures from an interface, or takes one share of its packets. Raises DisorderError."""

    name: str
    stream: str
    interface: str  # or `any`
    disorder: Disorder = LIVE_DISORDER
    promiscuous: bool = False  # frames for other hosts too
    keep: Expr | None = None  # the kernel drops frames for which this cannot be true; None: it drops none
    ring: RingConfig = RingConfig()

    def __post_init__(self) -> None:
        if isinstance(self.disorder, Scan):
            raise DisorderError(
                f"source {self.name}: scan reads its input twice, and packets of an interface come once; declare "
                "ordered or within …"
            )
