"""Why is my window not closing? Derives from topics how far each query is and what its open windows wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from highlevel.progress.reach import Reach
from lowmark.app.job.roster import roster_of_job
from lowmark.app.progress.completions_seen import CompletionsSeen
from lowmark.app.progress.open_windows import OpenWindows, sliding_by_tuple
from lowmark.app.progress.promises_seen import PromisesSeen
from lowmark.app.progress.query_inputs import QueryInputs
from lowmark.app.progress.query_progress import OpenWindow, QueryProgress, SourceProgress
from lowmark.app.progress.waits import QueryWaits
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows import values
from lowmark.wire.rows.values import FOREVER

__all__ = ["ProgressBoard"]


class ProgressBoard:
    """Feed it registrations, completions, and the punctuations of one partition of each stage and exchange (they go to
    all), in the order of each partition. `rosters`: the configured sources of each stream; the sources that completions
    name override them."""

    def __init__(self, plans: Sequence[QueryPlan], rosters: Mapping[str, tuple[str, ...]]) -> None:
        stages = {(plan.stage.fingerprint, node.name): node for plan in plans for node in plan.stage.nodes}
        exchanges = {
            (plan.exchanges.fingerprint, exchange.node.name): exchange.node
            for plan in plans
            if plan.exchanges is not None
            for exchange in plan.exchanges.each
        }
        self._promises = PromisesSeen({name: node.reduction.pane for name, node in stages.items()})
        self._exchanged = PromisesSeen({name: node.reduction.pane for name, node in exchanges.items()})
        self._streams: dict[str, str] = {}
        self._queries = {plan.name: _Query(plan, rosters, self._streams) for plan in plans}

    def registered(self, source: str, epoch: int, stream: str | None = None) -> None:
        """`stream`: the stream in its registration; None: take it from the configuration."""
        self._promises.registered(source, epoch)
        if stream is not None:
            self._streams[source] = stream

    def promised(self, record: Punctuation, at_ns: int) -> None:
        """`at_ns`: when it was written."""
        self._promises.take(record, at_ns)
        self._exchanged.take(record, at_ns)
        for query in self._queries.values():
            query.promised(self._promises, record.origin.stage)

    def complete(self, record: Complete) -> None:
        if record.query in self._queries:
            self._queries[record.query].complete(record)

    def amended(self, record: Amendment) -> None:
        if record.query in self._queries:
            self._queries[record.query].amended(record)

    def progress(self, now_ns: int) -> list[QueryProgress]:
        return [query.progress(self._promises, self._exchanged, now_ns) for query in self._queries.values()]


class _Query:
    def __init__(
        self, plan: QueryPlan, rosters: Mapping[str, tuple[str, ...]], registered: Mapping[str, str]
    ) -> None:  # fmt: skip
        self._plan = plan
        self._rosters = rosters
        self._registered = registered
        self._reach = Reach(plan)
        window = self._reach.window
        self._windows = None if window is None else OpenWindows(plan, window, self._reach)
        self._sliding = sliding_by_tuple(plan)
        self._seen = CompletionsSeen(-1)

    def promised(self, promises: PromisesSeen, stage: str) -> None:
        if self._windows is not None and not self._windows.begins and stage == self._plan.stage.fingerprint:
            self._windows.begin(self._inputs(promises, 0))

    def complete(self, record: Complete) -> None:
        if record.generation > self._seen.generation:
            self._seen = CompletionsSeen(record.generation)
        if record.generation == self._seen.generation:
            self._seen.complete(record)

    def amended(self, record: Amendment) -> None:
        if record.generation == self._seen.generation:
            self._seen.amended(record)

    def progress(self, promises: PromisesSeen, exchanged: PromisesSeen, now_ns: int) -> QueryProgress:
        plan, seen, inputs = self._plan, self._seen, self._inputs(promises, now_ns)
        waits = QueryWaits(plan, self._reach, inputs, exchanged, seen)
        windows, count = range(0), None
        if self._windows is not None:
            windows, count = self._windows.told(inputs, seen)
        elif self._sliding is not None:
            count = -(-inputs.tuples[1] // self._sliding)  # an upper bound: some end no window
        counted = seen.open
        opened = tuple(self._window(number, waits) for number in windows)
        complete, front = seen.complete_to(plan.stage.buckets), inputs.frontier_ns
        kind = next((last.kind for last in seen.last.values()), None)
        return QueryProgress(
            query=plan.name,
            complete_to=None if complete is None or kind is None else values.show(kind, complete),
            frontier=None if front is None or front == FOREVER else values.time(front),
            sources=(*inputs.progress(), *self._unlisted()),
            tuples_ahead=inputs.tuples[1],
            open=opened,
            open_windows=count if counted is None else counted.windows,
            open_partitions=None if counted is None else counted.partitions,
            waiting=opened[0].waiting if opened else waits.answer(),
            ended=inputs.ended,
            rows=seen.rows,
            tuples=seen.tuples,
            late=seen.late,
            dropped=seen.dropped,
            lossy_windows=seen.lossy,
        )

    def _inputs(self, promises: PromisesSeen, now_ns: int) -> QueryInputs:
        rosters = roster_of_job(self._rosters, self._seen.sources, self._registered)
        return QueryInputs(self._plan.stage.fingerprint, self._reach.nodes, rosters, promises, now_ns)

    def _unlisted(self) -> Iterator[SourceProgress]:
        """The configured sources that the job does not know."""
        streams = {stream for node in self._reach.nodes for stream in node.streams}
        configured = {source for stream in streams for source in self._rosters.get(stream, ())}
        for source in sorted(configured - self._seen.sources) if self._seen.sources else ():
            yield SourceProgress(source, "unlisted")

    def _window(self, number: int, waits: QueryWaits) -> OpenWindow:
        window = self._reach.window
        assert window is not None
        start, end, axis = window.start(number), window.end(number), window.axis.kind
        return OpenWindow(
            None if start is None else values.show(axis, start), values.show(axis, end), waits.window(number)
        )
