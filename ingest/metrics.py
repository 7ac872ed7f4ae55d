"""Prometheus metrics of the sources, counted per block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

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
            "Number of times that part of a capture file could not be read.",
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
            "Seconds by which the low-watermark trails the newest packet, where disorder is measured.",
            _LABELS,
            registry=registry,
        )
        self.low = Gauge(
            "lowmark_source_low_watermark_timestamp_seconds",
            "Low-watermark of the source, in seconds since 1970; it keeps its last value after the source ends.",
            _LABELS,
            registry=registry,
        )

        self.ring_size = Gauge(
            "lowmark_ring_bytes",
            "Bytes of the ring that the kernel fills with frames of an interface.",
            _LABELS,
            registry=registry,
        )
        self.ring_filled = Gauge(
            "lowmark_ring_filled_bytes",
            "Bytes of the ring whose frames lowmark has not finished with.",
            _LABELS,
            registry=registry,
        )
        self.freezes = Counter(
            "lowmark_ring_freezes_total",
            "Number of times that the ring was full: the kernel dropped frames until lowmark had made room.",
            _LABELS,
            registry=registry,
        )

        self.info = Info(
            "lowmark_source",
            "What the source reads (file or interface), and its name in the configuration. The sources of a fan-out "
            "share that name.",
            (*_LABELS, "configured", "reads"),
            registry=registry,
        )

    def name(self, source: str, stream: str, configured: str, reads: str) -> None:
        """Show a source; `configured`: its table in the configuration."""
        self.info.labels(source, stream, configured, reads).info({})

    def of(self, source: str, stream: str) -> SourceMetrics:
        return SourceMetrics(
            self.received.labels(source, stream),
            self.read.labels(source, stream),
            self.damaged.labels(source, stream),
            self.merged.labels(source, stream),
            self.low.labels(source, stream),
            lambda: self.bound.labels(source, stream),
            lambda: (self.ring_size.labels(source, stream), self.ring_filled.labels(source, stream)),
            lambda: self.freezes.labels(source, stream),
        )


class SourceMetrics:
    """The metrics of one source."""

    def __init__(
        self,
        received: Counter,
        read: Counter,
        damaged: Counter,
        merged: Counter,
        low: Gauge,
        bound: Callable[[], Gauge],
        rings: Callable[[], tuple[Gauge, Gauge]],
        freezes: Callable[[], Counter],
    ) -> None:
        self._received = received
        self._read = read
        self._damaged = damaged
        self._merged = merged
        self._low = low
        self._bound = bound  # only sources with measured disorder have this metric
        self._rings, self._freezes = rings, freezes  # only interfaces have these metrics
        self._read_before = 0

    def block(self, frames: int, low_after_ns: int | None) -> None:
        """Count a delivered block, and set its low-watermark if it has one."""
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

    def ring(self, size: int, filled: Callable[[], int]) -> None:
        """Show a ring of `size` bytes. Each scrape calls `filled` in another thread."""
        of_size, of_filled = self._rings()
        of_size.set(size)
        of_filled.set_function(filled)
        self._freezes()  # exists from the start, at 0

    def frozen(self, times: int) -> None:
        """Count how often the ring filled up."""
        self._freezes().inc(times)

    def bounded(self, bound_ns: int) -> None:
        """Set the current bound of measured disorder."""
        self._bound().set(bound_ns / 1e9)
