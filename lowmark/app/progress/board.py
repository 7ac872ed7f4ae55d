"""Why is my window not closing? Derives from topics how far each query is and what its open windows wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from highlevel.progress.promises.reach import Reach
from lowmark.app.job.names import may_run
from lowmark.app.job.roster import members_now
from lowmark.app.progress.completions_seen import CompletionsSeen
from lowmark.app.progress.open_windows import OpenWindows, sliding_by_tuple
from lowmark.app.progress.promises_seen import PromisesSeen
from lowmark.app.progress.query_inputs import QueryInputs
from lowmark.app.progress.query_progress import OpenWindow, QueryProgress, SourceProgress, Waiting
from lowmark.app.progress.waits import QueryWaits
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.quarantine import Quarantine
from lowmark.wire.records.rosters import RosterInForce
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows import values
from lowmark.wire.rows.values import FOREVER

__all__ = ["ProgressBoard"]


class ProgressBoard:
    """Feed it registrations, completions, and the punctuations of one partition of each stage and exchange (they go to
    all), in the order of each partition. `rosters`: the sources that the configuration names of each stream; rosters in
    force override them. `job`: its name in the configuration."""

    def __init__(self, plans: Sequence[QueryPlan], rosters: Mapping[str, tuple[str, ...]], job: str) -> None:
        stages = {(plan.stage.fingerprint, node.name): node for plan in plans for node in plan.stage.nodes}
        exchanges = {
            (plan.exchanges.fingerprint, exchange.node.name): exchange.node
            for plan in plans
            if plan.exchanges is not None
            for exchange in plan.exchanges.each
        }
        self._promises = PromisesSeen({name: node.reduction.pane for name, node in stages.items()})
        self._exchanged = PromisesSeen({name: node.reduction.pane for name, node in exchanges.items()})
        self._job = job
        self._queries = {plan.name: _Query(plan, rosters) for plan in plans}

    def registered(self, source: str, epoch: int) -> None:
        self._promises.registered(source, epoch)

    def listed(self, roster: RosterInForce) -> None:
        """If several jobs have run a query, the roster that was written last is in force."""
        for name, query in self._queries.items():
            if may_run(roster.job, self._job, name):
                query.in_force[roster.stream] = roster

    def quarantined(self, record: Quarantine) -> None:
        for name, query in self._queries.items():
            if may_run(record.job, self._job, name):
                query.quarantined[record.job] = dict(record.queries).get(name)

    def promised(self, record: Punctuation, at_ns: int) -> None:
        """`at_ns`: when it was written."""
        self._promises.take(record, at_ns)
        self._exchanged.take(record, at_ns)
        for query in self._queries.values():
            query.promised(self._promises, record.origin.stage)

    def complete(self, record: Complete) -> None:
        if record.query in self._queries:
            self._queries[record.query].complete(record)

    def left_early(self, query: str, bucket: int, generation: int, window: int, rows: int) -> None:
        """Rows of a query have left before their window closes."""
        if query in self._queries:
            self._queries[query].left_early(bucket, generation, window, rows)

    def amended(self, record: Amendment) -> None:
        if record.query in self._queries:
            self._queries[record.query].amended(record)

    def progress(self, now_ns: int) -> list[QueryProgress]:
        return [query.progress(self._promises, self._exchanged, now_ns) for query in self._queries.values()]


class _Query:
    def __init__(self, plan: QueryPlan, rosters: Mapping[str, tuple[str, ...]]) -> None:
        self._plan = plan
        self._rosters = rosters
        self.in_force: dict[str, RosterInForce] = {}  # by stream
        self.quarantined: dict[str, str | None] = {}  # by job: why
        self._reach = Reach(plan)
        window = self._reach.window
        self._windows = None if window is None else OpenWindows(plan, window, self._reach)
        self._sliding = sliding_by_tuple(plan)
        self._seen = CompletionsSeen(-1)

    def promised(self, promises: PromisesSeen, stage: str) -> None:
        if self._windows is not None and not self._windows.begins and stage == self._plan.stage.fingerprint:
            self._windows.begin(self._inputs(promises, 0))

    def complete(self, record: Complete) -> None:
        if self._current(record.generation):
            self._seen.complete(record)

    def left_early(self, bucket: int, generation: int, window: int, rows: int) -> None:
        if self._current(generation):
            self._seen.left_early(bucket, window, rows)

    def _current(self, generation: int) -> bool:
        if generation > self._seen.generation:
            self._seen = CompletionsSeen(generation)
        return generation == self._seen.generation

    def amended(self, record: Amendment) -> None:
        if record.generation == self._seen.generation:
            self._seen.amended(record)

    def progress(self, promises: PromisesSeen, exchanged: PromisesSeen, now_ns: int) -> QueryProgress:
        plan, seen, inputs = self._plan, self._seen, self._inputs(promises, now_ns)
        waits = QueryWaits(plan, self._reach, inputs, exchanged, seen)
        windows, count = range(0), None
        if self._windows is not None:
            windows, count = self._windows.oldest(inputs, seen)
        elif self._sliding is not None:
            count = -(-inputs.tuples[1] // self._sliding)  # an upper bound: some end no window
        counted = seen.open
        opened = tuple(self._window(number, waits) for number in windows)
        reasons = [why for why in self.quarantined.values() if why is not None]
        stopped = tuple(Waiting("the job", f"the query is quarantined: {why}") for why in reasons)
        if stopped:
            opened = tuple(replace(each, waiting=stopped) for each in opened)
        complete, front = seen.complete_to(plan.stage.buckets), inputs.frontier_ns
        kind = next((last.kind for last in seen.last.values()), None)
        return QueryProgress(
            query=plan.name,
            complete_to=None if complete is None or kind is None else values.show(kind, complete),
            frontier=None if front is None or front == FOREVER else values.time(front),
            sources=(*inputs.progress(), *self._beside()),
            tuples_ahead=inputs.tuples[1],
            open=opened,
            open_windows=count if counted is None else counted.windows,
            open_partitions=None if counted is None else counted.partitions,
            waiting=opened[0].waiting if opened else stopped or waits.answer(),
            ended=inputs.ended,
            rows=seen.rows,
            tuples=seen.tuples,
            late=seen.late,
            dropped=seen.dropped,
            lossy_windows=seen.lossy,
        )

    def _inputs(self, promises: PromisesSeen, now_ns: int) -> QueryInputs:
        rosters = {stream: self._awaited(stream, now_ns) for stream in self._rosters}
        return QueryInputs(self._plan.stage.fingerprint, self._reach.nodes, rosters, promises, now_ns)

    def _awaited(self, stream: str, now_ns: int) -> tuple[str, ...]:
        """The sources that windows wait for now. If all are excluded, windows wait for them."""
        roster = self.in_force.get(stream)
        if roster is None:
            return self._rosters[stream]
        present = members_now(roster)
        there = {name for name, member in present.items() if member.joined <= now_ns or not now_ns}
        leaving = {member.source for member in roster.members if now_ns < member.left < FOREVER}
        counted = {name for name in there if not present[name].is_excluded}
        return tuple(sorted((counted or there) | leaving))

    def _beside(self) -> Iterator[SourceProgress]:
        """The sources that windows do not wait for: excluded ones, and configured ones that the job does not list."""
        for stream in sorted({stream for node in self._reach.nodes for stream in node.streams}):
            roster = self.in_force.get(stream)
            if roster is None:
                continue
            present = members_now(roster)
            yield from (SourceProgress(name, "excluded") for name in sorted(present) if present[name].is_excluded)
            for source in sorted(set(self._rosters.get(stream, ())) - present.keys()):
                yield SourceProgress(source, "unlisted")

    def _window(self, number: int, waits: QueryWaits) -> OpenWindow:
        window = self._reach.window
        assert window is not None
        start, end, axis = window.start(number), window.end(number), window.axis.kind
        return OpenWindow(
            None if start is None else values.show(axis, start), values.show(axis, end), waits.window(number),
            self._seen.early(number),
        )  # fmt: skip
