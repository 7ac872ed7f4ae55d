"""Metrics of the sources that windows wait for. They are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lowmark.app.job.roster import members_now
from lowmark.wire.records.rosters import RosterInForce

__all__ = ["RosterMetrics"]


class RosterMetrics(Collector):
    """`rosters`: those in force. `open_panes`: by stage, the most panes that are open in a bucket."""

    def __init__(
        self, registry: CollectorRegistry, rosters: Callable[[], Iterable[RosterInForce]],
        open_panes: Callable[[], Mapping[str, int]],
    ) -> None:  # fmt: skip
        self._rosters = rosters
        self._open_panes = open_panes
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        out = GaugeMetricFamily(
            "lowmark_source_excluded", "1 while no window waits for the source.", labels=("stream", "source")
        )
        version = GaugeMetricFamily(
            "lowmark_roster_version", "Version of the stream's roster: it grows with each change.", labels=("stream",)
        )
        panes = GaugeMetricFamily(
            "lowmark_panes_open",
            "Panes between the frontier and the last tuple of a bucket, in the bucket that has most.",
            labels=("stage",),
        )
        for roster in self._rosters():
            version.add_metric((roster.stream,), roster.version)
            for source, member in members_now(roster).items():
                out.add_metric((roster.stream, source), int(member.is_excluded))
        for stage, count in self._open_panes().items():
            panes.add_metric((stage,), count)
        yield from (out, version, panes)
