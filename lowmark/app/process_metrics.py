"""The metrics that every process of lowmark serves: its version, and the system's view of the process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector

from lowmark import __version__

__all__ = ["process_registry"]


def process_registry() -> CollectorRegistry:
    """A registry for the metrics of one process, with `process_…`, `python_…` and the version."""
    registry = CollectorRegistry()
    build = Info("lowmark_build", "The version of lowmark that runs.", ("version",), registry=registry)
    build.labels(__version__).info({})
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
