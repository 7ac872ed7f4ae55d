"""Prometheus metrics of the sources. Counted per block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["IngestMetrics", "SourceMetrics"]

_LABELS: Final = ("source", "stream")


class IngestMetrics:
    """The sources' metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.received = Counter(
            "lowmark_frames_received_total", "Frames that the source delivered.", _LABELS, registry=registry
        )
        self.read = Counter(
            "lowmark_capture_read_bytes_total",
            "Bytes read from capture files.",
            _LABELS,
            registry=registry,
        )
        self.damaged = Counter(
            "lowmark_capture_damaged_total",
            "Times that part of a capture could not be read.",
            _LABELS,
            registry=registry,
        )
        self.merged = Counter(
            "lowmark_frames_merged_total",
            "Frames longer than the interface's MTU allows: offloading merged several packets into one.",
            _LABELS,
            registry=registry,
        )
        self.bound = Gauge(
            "lowmark_disorder_bound_seconds",
            "Present bound of measured disorder: the low-watermark trails the newest packet time by these seconds.",
            _LABELS,
            registry=registry,
        )
        self.low = Gauge(
            "lowmark_source_low_watermark_seconds",
            "Low-watermark of the source, in seconds since 1970; it keeps its last value after the source ends.",
            _LABELS,
            registry=registry,
        )

    def of(self, source: str, stream: str) -> SourceMetrics:
        return SourceMetrics(
            self.received.labels(source, stream),
            self.read.labels(source, stream),
            self.damaged.labels(source, stream),
            self.merged.labels(source, stream),
            self.low.labels(source, stream),
            lambda: self.bound.labels(source, stream),
        )


class SourceMetrics:
    """One source's share of them."""

    def __init__(
        self,
        received: Counter,
        read: Counter,
        damaged: Counter,
        merged: Counter,
        low: Gauge,
        bound: Callable[[], Gauge],
    ) -> None:
        self._received = received
        self._read = read
        self._damaged = damaged
        self._merged = merged
        self._low = low
        self._bound = bound  # only sources that measure have it
        self._read_before = 0

    def block(self, frames: int, low_after_ns: int | None) -> None:
        """A block was delivered; with its low-watermark, if it has one."""
        self._received.inc(frames)
        if low_after_ns is not None:
            self._low.set(low_after_ns / 1e9)

    def read_to(self, read_bytes: int) -> None:
        """Set how many bytes of the file have been read."""
        self._read.inc(max(0, read_bytes - self._read_before))
        self._read_before = read_bytes

    def damage(self) -> None:
        self._damaged.inc()

    def merged(self, frames: int) -> None:
        """Count delivered frames that are several packets each."""
        self._merged.inc(frames)

    def bounded(self, bound_ns: int) -> None:
        """Set the current bound of measured disorder."""
        self._bound().set(bound_ns / 1e9)
