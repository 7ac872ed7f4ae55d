"""Metrics that every lowmark process serves about itself: its version, its use of the system, its helper threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lowmark import __version__
from lowmark.helpers import Helper

__all__ = ["ConfigMetrics", "ThreadMetrics", "process_registry"]


def process_registry() -> CollectorRegistry:
    """A registry for one process, with `process_…`, `python_…` and the version in it."""
    # Else each counter has a series more, with the time of the process's start.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    registry = CollectorRegistry()
    build = Info("lowmark_build", "Version of the running lowmark.", ("version",), registry=registry)
    build.labels(__version__).info({})
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class ThreadMetrics(Collector):
    """Whether the helper threads do their work. `helpers` is called at each scrape."""

    def __init__(self, registry: CollectorRegistry, helpers: Callable[[], Iterable[Helper]]) -> None:
        self._helpers = helpers
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "lowmark_thread_up",
            "1 while the helper thread does its work; 0 before its start, after its end, and while it waits to start "
            "again after a failure.",
            labels=("thread",),
        )
        restarts = CounterMetricFamily(
            "lowmark_thread_restarts",
            "Number of times that the helper thread started again after a failure.",
            labels=("thread",),
        )
        for helper in self._helpers():
            up.add_metric((helper.name,), helper.running)
            restarts.add_metric((helper.name,), helper.restarts)
        yield from (up, restarts)


class ConfigMetrics:
    """`refused`: why the present configuration is not in use; called at each scrape."""

    def __init__(self, registry: CollectorRegistry, refused: Callable[[], str | None]) -> None:
        gauge = Gauge(
            "lowmark_configuration_refused",
            "1 while the process goes on with a former configuration, because it has refused the present one.",
            registry=registry,
        )  # fmt: skip
        gauge.set_function(lambda: float(refused() is not None))
