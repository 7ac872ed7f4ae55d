"""Collects the buckets' reports about the sources of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from highlevel.rosters.source_waits import SourceReport
from lowmark.query.plan.nodes import Stage
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["BucketSources", "Observed", "Observing"]


class BucketSources(SourceReport, Protocol):
    """The part of a bucket's report that decides about rosters. `returned`: excluded sources that have promised as much
    as the frontier. `read`: the offset after the last record of partials; 0: there was none."""

    @property
    def returned(self) -> Sequence[tuple[str, str]]: ...
    @property
    def open_panes(self) -> int: ...
    @property
    def read(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Observed:
    """`front_ns` and `furthest_ns`: the least and the greatest frontier of any bucket; NEVER: nothing is promised.
    `crowding`: sources that block a bucket with too many open panes. `heard_ns`: when Kafka took the last record of a
    source; `silent_ns`: for how long records of other sources have come since then."""

    waiting: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    crowding: frozenset[str] = frozenset()
    heard_ns: Mapping[str, int] = field(default_factory=dict)
    silent_ns: Mapping[str, int] = field(default_factory=dict)
    front_ns: int = NEVER
    furthest_ns: int = NEVER
    caught_up: bool = False


class Observing:
    """Keeps the last report of each bucket. `most_open`: more open panes than this are too many."""

    def __init__(self, stages: Sequence[Stage], most_open: int) -> None:
        self._stages = {stage.fingerprint: stage for stage in stages}
        self._most_open = most_open
        self._last: dict[tuple[str, int], BucketSources] = {}
        self._read: dict[tuple[str, int], int] = {}
        self._heard: dict[str, dict[str, int]] = {stage: {} for stage in self._stages}  # by stage and source
        self._began: dict[str, int] = {}
        self._ends: Mapping[tuple[str, int], int] = {}

    def take(self, report: BucketSources) -> None:
        place = report.stage, report.bucket
        self._last[place] = report
        self._read[place] = max(report.read, self._read.get(place, 0))
        heard = self._heard[report.stage]
        for source, at_ns in report.heard.items():
            heard[source] = max(at_ns, heard.get(source, at_ns))
        known = [at_ns for at_ns in report.heard.values() if at_ns < FOREVER]
        if known:
            self._began.setdefault(report.stage, min(known))

    def sampled(self, ends: Mapping[tuple[str, int], int]) -> None:
        """The ends of the partitions of partials, by stage and bucket, at some time."""
        self._ends = ends

    def open_panes(self) -> dict[str, int]:
        """By stage: the most panes that are open in a bucket."""
        most = dict.fromkeys(self._stages, 0)
        for (stage, _), report in self._last.items():
            most[stage] = max(most[stage], report.open_panes)
        return most

    @property
    def is_sampled(self) -> bool:
        return bool(self._ends)

    @property
    def caught_up(self) -> bool:
        """Whether the buckets have read all records that were there when the ends were sampled last."""
        return bool(self._ends) and all(self._read.get(place, 0) >= end for place, end in self._ends.items())

    def of(self, stream: str) -> Observed:
        fronts: list[int] = []
        waiting: set[str] = set()
        crowding: set[str] = set()
        returned: list[set[str]] = []
        heard: dict[str, int] = {}
        silent: dict[str, int] = {}
        for fingerprint, stage in self._stages.items():
            nodes = {node.name: node for node in stage.nodes if stream in node.streams}
            if not nodes:
                continue
            of = self._heard[fingerprint]
            newest = max((at_ns for at_ns in of.values() if at_ns < FOREVER), default=None)
            for source, at_ns in of.items():
                heard[source] = max(at_ns, heard.get(source, at_ns))
            stalled: set[str] = set()
            for bucket in range(stage.buckets):
                report = self._last.get((fingerprint, bucket))
                if report is None:
                    fronts.append(NEVER)
                    continue
                blocked = {source for node, source in report.waiting if node in nodes}
                stalled |= blocked
                if report.open_panes > self._most_open:
                    crowding |= blocked
                at = {name: report.fronts.get(name, NEVER) for name in nodes}
                fronts += [
                    front if front in (NEVER, FOREVER) else nodes[name].reduction.pane.start(front)
                    for name, front in at.items()
                ]
                returned += [{source for node, source in report.returned if node == name} for name in nodes]
            waiting |= stalled
            if newest is None:
                continue
            for source in stalled:
                since = max(0, newest - of.get(source, self._began[fingerprint]))
                silent[source] = min(since, silent.get(source, since))
        finite = [front for front in fronts if front < FOREVER]
        return Observed(
            frozenset(waiting), frozenset(set.intersection(*returned)) if returned else frozenset(),
            frozenset(crowding), heard, silent,
            min(finite, default=NEVER), max(finite, default=NEVER), self.caught_up,
        )  # fmt: skip
