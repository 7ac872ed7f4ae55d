"""Metrics that every lowmark process serves about itself: its version and its use of the system."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector

from lowmark import __version__

__all__ = ["process_registry"]


def process_registry() -> CollectorRegistry:
    """A registry for one process, with `process_…`, `python_…` and the version in it."""
    registry = CollectorRegistry()
    build = Info("lowmark_build", "Version of lowmark that runs.", ("version",), registry=registry)
    build.labels(__version__).info({})
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
