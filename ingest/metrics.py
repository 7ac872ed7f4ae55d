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
            "lowmark_frames_received_total", "Frames that a source delivered.", _LABELS, registry=registry
        )
        self.read = Counter(
            "lowmark_capture_read_bytes_total",
            "Bytes of capture files that have been read.",
            _LABELS,
            registry=registry,
        )
        self.damaged = Counter(
            "lowmark_capture_damaged_total",
            "Times that something of a capture could not be read.",
            _LABELS,
            registry=registry,
        )
        self.merged = Counter(
            "lowmark_frames_merged_total",
            "Frames longer than the interface's MTU allows: several packets that offloading made one of.",
            _LABELS,
            registry=registry,
        )
        self.bound = Gauge(
            "lowmark_disorder_bound_seconds",
            "Of measured disorder: how far the low-watermark is behind the newest time at present.",
            _LABELS,
            registry=registry,
        )
        self.low = Gauge(
            "lowmark_source_low_watermark_seconds",
            "Low-watermark of a source that has not ended, in seconds since 1970.",
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
