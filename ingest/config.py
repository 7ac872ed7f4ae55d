"""What is set about a source that reads a capture."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingest.disorder import Disorder, DisorderError, Scan
from ingest.inputs import STANDARD_INPUT

__all__ = ["FileConfig", "Replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A capture played as if it were happening. Raises ValueError for what cannot be."""

    pace: float | None = None  # seconds of the capture in a second; None: as fast as it is read
    rebase_to_ns: int | None = None  # the time, ns since 1970, that rebase_from_ns becomes; None: times stay
    rebase_from_ns: int | None = None  # a time of the capture, ns since 1970; None: its first frame's
    tick_ns: int = 20_000_000  # what falls due within this makes one block

    def __post_init__(self) -> None:
        if self.pace is not None and not (math.isfinite(self.pace) and self.pace > 0):
            raise ValueError(f"pace is {self.pace}; it is a number above 0 (1 is the capture's own pace)")
        if self.tick_ns <= 0:
            raise ValueError(f"tick_ns is {self.tick_ns}; it is a number of nanoseconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """A source that reads a capture file, a pipe, or standard input (`-`). Raises DisorderError for what cannot be."""

    name: str
    stream: str
    path: str
    disorder: Disorder | None = None  # None: scan where the capture can be read twice, else ordered
    replay: Replay | None = None

    def __post_init__(self) -> None:
        if self.path == STANDARD_INPUT and isinstance(self.disorder, Scan):
            raise DisorderError(
                f"source {self.name}: scan reads its input twice, and standard input can be read once; "
                "declare ordered or within …, or name the file"
            )
