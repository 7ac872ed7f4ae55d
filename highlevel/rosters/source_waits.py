"""The sources that the job waits for, and how long each has been silent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.rows.values import FOREVER

__all__ = ["SourceReport", "SourceWaits"]

_PATIENCE_NS = 10 * 10**9
_PATIENT_GRANULES = 3
"""Longest time between two promises in normal operation: a lazily flushed table promises a granule up to two panes
after its end."""


class SourceReport(Protocol):
    """A bucket's report after a micro-batch: its nodes' frontiers; the sources that block them (node, source); and, for
    each source heard from, when Kafka took its last record (ns since 1970; FOREVER: the source has ended)."""

    @property
    def stage(self) -> str: ...
    @property
    def bucket(self) -> int: ...
    @property
    def fronts(self) -> Mapping[str, int]: ...
    @property
    def waiting(self) -> Sequence[tuple[str, str]]: ...
    @property
    def heard(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class _Held:
    """A bucket's frontiers, the time since which they stand there, and the sources that block them."""

    fronts: Mapping[str, int | None]
    since_ns: Mapping[str, int]
    waiting: Sequence[tuple[str, str]]


class SourceWaits:
    """Tracks waits from `now_ns` (the clock) on. Until a bucket has reported, all sources of the roster block it.
    Nothing blocks the buckets (stage, bucket) that had `ended` before."""

    def __init__(
        self, plans: Sequence[QueryPlan], roster: Mapping[str, Sequence[str]], ended: Collection[tuple[str, int]],
        now_ns: int,
    ) -> None:  # fmt: skip
        stages = {plan.stage.fingerprint: plan.stage for plan in plans}
        self._patience_ns = {
            _place(name, node.name): _PATIENCE_NS + _PATIENT_GRANULES * node.reduction.pane.length
            for name, stage in stages.items()
            for node in stage.nodes
        }
        self._began_ns = now_ns
        self._held: dict[tuple[str, int], _Held] = {}
        self._heard_ns: dict[str, int] = {}
        self._places: set[tuple[str, str]] = set()
        for name, stage in stages.items():
            waiting = _listed(stage, roster)
            since_ns = {node.name: now_ns for node in stage.nodes}
            held = _Held(dict.fromkeys(since_ns), since_ns, waiting)
            going = [(name, bucket) for bucket in range(stage.buckets) if (name, bucket) not in ended]
            self._held |= dict.fromkeys(going, held)
            self._places |= {(_place(name, node), source) for node, source in waiting}
            self._heard_ns |= {source: FOREVER for _, source in waiting if not going}

    def take(self, report: SourceReport, now_ns: int) -> None:
        place = report.stage, report.bucket
        before = self._held.get(place)
        since_ns = {
            node: now_ns if before is None or before.fronts.get(node) != front else before.since_ns[node]
            for node, front in report.fronts.items()
        }
        self._held[place] = _Held(report.fronts, since_ns, report.waiting)
        self._places |= {(_place(report.stage, node), source) for node, source in report.waiting}
        for source, heard_ns in report.heard.items():
            self._heard_ns[source] = max(heard_ns, self._heard_ns.get(source, heard_ns))

    def awaited(self, now_ns: int) -> dict[tuple[str, str], int]:
        """By node (as the capture processes call it) and source: how many buckets wait for the source. A bucket counts
        only if its frontier has been blocked for longer than the time between two promises."""
        buckets = dict.fromkeys(sorted(self._places), 0)
        for (stage, _), held in self._held.items():
            for node, source in held.waiting:
                place = _place(stage, node)
                buckets[place, source] += now_ns - held.since_ns[node] > self._patience_ns[place]
        return buckets

    def silent_s(self, now_ns: int) -> dict[str, float]:
        """By source: seconds since Kafka took its last record read by the job, or since the job began; 0: it ended."""
        heard_ns = {source: self._heard_ns.get(source, self._began_ns) for _, source in sorted(self._places)}
        return {source: 0.0 if at_ns == FOREVER else max(0, now_ns - at_ns) / 1e9 for source, at_ns in heard_ns.items()}


def _place(stage: str, node: str) -> str:
    return f"{stage}/{node}"


def _listed(stage: Stage, roster: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(node, source) for every source that the streams of a node list."""
    return [(node.name, source) for node in stage.nodes for stream in node.streams for source in roster[stream]]
