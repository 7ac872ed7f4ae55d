"""Why is my window not closing? What topics say of each query: how far it is, and what its open windows wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lowmark.app.opentimes import OpenTimes
from lowmark.query.plan import QueryPlan
from lowmark.wire import values
from lowmark.wire.fields import Json
from lowmark.wire.promises import FOREVER, Ending, Punctuation
from lowmark.wire.results import Amendment, Complete

__all__ = ["OpenWindow", "ProgressBoard", "QueryProgress", "Waiting"]

_NS = 10**9
_TOLD = 10  # open windows of a query that are told one by one, the oldest


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a window waits for: a source, or the job where all sources are past it. `promised_ns`: of a source, up to
    where it has promised; `behind_ns`: how far that is from the window's end, where both are times."""

    who: str
    why: str
    promised_ns: int | None = None
    behind_ns: int | None = None

    @property
    def text(self) -> str:
        behind = "" if self.behind_ns is None else f", {self.behind_ns / _NS:g} s behind"
        return f"{self.who}: {self.why}{behind}"

    @property
    def json(self) -> Json:
        return {
            "who": self.who,
            "why": self.why,
            "promised": None if self.promised_ns is None else values.time(self.promised_ns),
            "behind_s": None if self.behind_ns is None else self.behind_ns / _NS,
        }


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Its bounds as rows show them; `start` is None of a landmark window."""

    start: int | str | None
    end: int | str
    waiting: tuple[Waiting, ...]

    @property
    def json(self) -> Json:
        return {"start": self.start, "end": self.end, "waiting": [item.json for item in self.waiting]}


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Where a query stands. Values of the windowing attribute are as rows show them; counts are over the completions
    that were read."""

    query: str
    complete_to: int | str | None  # in all buckets; None: nothing is known to be complete
    frontier: str | None  # the least promise of its sources; None: one has promised nothing, or all have ended
    open: tuple[OpenWindow, ...]  # the oldest first: the next one, and those that have begun besides
    open_windows: int | None  # how many of them there are at most; None: no time tells which have begun
    waiting: tuple[Waiting, ...]  # what the next window waits for, or the answer where it has no windows
    ended: bool  # all sources have
    rows: int
    tuples: int
    late: int
    dropped: int
    lossy_windows: int  # counted in each bucket

    @property
    def json(self) -> dict[str, Json]:
        return {
            "query": self.query,
            "complete_to": self.complete_to,
            "frontier": self.frontier,
            "open": [item.json for item in self.open],
            "open_windows": self.open_windows,
            "waiting": [item.json for item in self.waiting],
            "ended": self.ended,
            "rows": self.rows,
            "tuples": self.tuples,
            "late": self.late,
            "dropped": self.dropped,
            "lossy_windows": self.lossy_windows,
        }


@dataclass(slots=True)
class _Seen:
    """Of the present generation of a query's results."""

    generation: int = -1
    last: dict[int, Complete] = field(default_factory=dict)  # by bucket
    rows: int = 0
    tuples: int = 0
    late: Counter[int] = field(default_factory=Counter)  # by bucket: each tells those of the whole stream
    dropped: Counter[int] = field(default_factory=Counter)
    lossy: int = 0


class ProgressBoard:
    """Feed it registrations, punctuations of one partition of each stage (they go to all) and completions, in the order
    of each partition. `rosters` lists the sources of each stream."""

    def __init__(self, plans: Sequence[QueryPlan], rosters: Mapping[str, tuple[str, ...]]) -> None:
        self._plans = plans
        self._rosters = rosters
        self._epochs: dict[str, int] = {}
        self._promises: dict[tuple[str, str, str], tuple[int, int, bool]] = {}  # by stage, node, source
        self._seen = {plan.name: _Seen() for plan in plans}
        self._times = {plan.name: OpenTimes.of(plan) for plan in plans}
        # Windows are completed from the first frontier on, and from the first granule that holds a tuple.
        self._first: dict[str, int] = {}  # by query
        self._granule: dict[str, int] = {}  # by stage

    def registered(self, source: str, epoch: int) -> None:
        self._epochs[source] = max(epoch, self._epochs.get(source, epoch))

    def promised(self, record: Punctuation) -> None:
        origin, bound = record.origin, FOREVER if record.promise.last else record.promise.below("ts")
        name = origin.stage, origin.node, origin.source
        epoch, before, _ = self._promises.get(name, (origin.epoch, -FOREVER, False))
        if bound is None or origin.epoch < epoch:
            return
        if origin.epoch == epoch:
            bound = max(bound, before)
        self._promises[name] = origin.epoch, bound, record.ending is Ending.STOP
        self.registered(origin.source, origin.epoch)
        held = [account.granule for account in record.ledger.accounts if account.everywhere]
        if held:
            self._granule[origin.stage] = min([*held, self._granule.get(origin.stage, held[0])])
        for plan in self._plans:
            if plan.name not in self._first and plan.stage.fingerprint == origin.stage:
                front = _least(dict(self._sources(plan)))
                if front is not None and front != FOREVER:
                    self._first[plan.name] = front

    def complete(self, record: Complete) -> None:
        seen = self._seen.get(record.query)
        if seen is None or record.generation < seen.generation:
            return
        if record.generation > seen.generation:
            seen = self._seen[record.query] = _Seen(record.generation)
        seen.last[record.bucket] = record
        seen.rows += record.rows
        seen.tuples += record.merged
        self._count(seen, record)
        if not record.verdict.exact:
            seen.lossy += 1 if record.windows is None else record.windows.to - record.windows.first + 1

    def amended(self, record: Amendment) -> None:
        seen = self._seen.get(record.query)
        if seen is not None and record.generation == seen.generation:
            self._count(seen, record)

    def _count(self, seen: _Seen, record: Complete | Amendment) -> None:
        seen.late[record.bucket] += record.late
        seen.dropped[record.bucket] += record.dropped

    def progress(self) -> list[QueryProgress]:
        return [self._of(plan, self._seen[plan.name]) for plan in self._plans]

    def _of(self, plan: QueryPlan, seen: _Seen) -> QueryProgress:
        promises = dict(self._sources(plan))
        front = _least(promises)
        complete = min((last.end for last in seen.last.values()), default=None)
        whole = complete if len(seen.last) == plan.stage.buckets else None
        kind = next(iter(seen.last.values())).kind if seen.last else None
        windows, count = self._open(plan, seen, promises) if front != FOREVER else (range(0), 0)
        opened = tuple(self._window(plan, seen, promises, number) for number in windows)
        return QueryProgress(
            query=plan.name,
            complete_to=None if whole is None or kind is None else values.show(kind, whole),
            frontier=None if front is None or front == FOREVER else values.time(front),
            open=opened,
            open_windows=count,
            waiting=opened[0].waiting if opened else tuple(self._waiting(plan, seen, promises, None)),
            ended=front == FOREVER,
            rows=seen.rows,
            tuples=seen.tuples,
            late=max(seen.late.values(), default=0),
            dropped=max(seen.dropped.values(), default=0),
            lossy_windows=seen.lossy,
        )

    def _open(
        self, plan: QueryPlan, seen: _Seen, promises: Mapping[str, int | None]
    ) -> tuple[range, int | None]:  # fmt: skip
        """The windows that are told, and how many there are."""
        first, times = self._next_window(plan, seen), self._times[plan.name]
        if first is None or plan.window is None:
            return range(0), None if times is None else 0
        if times is None:
            return range(first, first + 1), None
        bounds = [bound for bound in promises.values() if bound is not None and bound < FOREVER]
        count = max(0, times.begun(max(bounds, default=times.end(first))) - first)
        return range(first, first + min(max(count, 1), _TOLD)), count

    def _window(
        self, plan: QueryPlan, seen: _Seen, promises: Mapping[str, int | None], number: int
    ) -> OpenWindow:  # fmt: skip
        assert plan.window is not None
        start, end, axis = plan.window.start(number), plan.window.end(number), plan.window.axis.kind
        times = self._times[plan.name]
        needed = None if times is None else (times.end(number), end)
        return OpenWindow(
            None if start is None else values.show(axis, start),
            values.show(axis, end),
            tuple(self._waiting(plan, seen, promises, needed)),
        )

    def _sources(self, plan: QueryPlan) -> Iterator[tuple[str, int | None]]:
        """Each source with the least that its nodes have promised in its present epoch."""
        for node in plan.stage.nodes:
            for stream in node.streams:
                for source in self._rosters.get(stream, ()):
                    yield source, self._promise(plan, source)

    def _promise(self, plan: QueryPlan, source: str) -> int | None:
        found = []
        for node in plan.stage.nodes:
            if any(source in self._rosters.get(stream, ()) for stream in node.streams):
                epoch, bound, _ = self._promises.get((plan.stage.fingerprint, node.name, source), (-1, 0, False))
                if epoch < self._epochs.get(source, 0):
                    return None
                found.append(bound)
        return min(found, default=None)

    def _next_window(self, plan: QueryPlan, seen: _Seen) -> int | None:
        """The first window that some bucket has not completed: of one without completions, the first of all."""
        found = [last.windows.to + 1 for last in seen.last.values() if last.windows is not None]
        times, first = self._times[plan.name], self._first.get(plan.name)
        if len(found) < plan.stage.buckets and times is not None and first is not None:
            found.append(times.open(first))
            held = self._granule.get(plan.stage.fingerprint)
            found += [] if held is None else [times.open(plan.stage.nodes[0].reduction.pane.start(held))]
        return min(found, default=None)

    def _waiting(
        self, plan: QueryPlan, seen: _Seen, promises: Mapping[str, int | None], needed: tuple[int, int] | None
    ) -> Iterator[Waiting]:
        """`needed`: what sources must have promised, and up to where buckets must be complete; None: whichever source
        has promised least is waited for."""
        least, held = _least(promises), False
        for source, bound in promises.items():
            if bound is None:
                held = True
                why = "it has promised nothing yet" if source in self._epochs else "it has never been seen"
                yield Waiting(source, why)
            elif bound < FOREVER and (bound == least if needed is None else bound < needed[0]):
                held = True
                why = "it has stopped" if self._stopped(plan, source) else "it has not promised to be past it"
                yield Waiting(source, why, bound, None if needed is None else needed[0] - bound)
        if not held and least != FOREVER:
            end = None if needed is None else needed[1]
            behind = [bucket for bucket in range(plan.stage.buckets) if self._is_behind(seen, bucket, end)]
            if behind:
                yield Waiting("the job", f"all sources are past it, buckets {', '.join(map(str, behind))} are not")

    def _stopped(self, plan: QueryPlan, source: str) -> bool:
        found = (self._promises.get((plan.stage.fingerprint, node.name, source)) for node in plan.stage.nodes)
        return any(promise is not None and promise[2] for promise in found)

    @staticmethod
    def _is_behind(seen: _Seen, bucket: int, end: int | None) -> bool:
        last = seen.last.get(bucket)
        return last is None or (end is not None and last.end < end)


def _least(promises: Mapping[str, int | None]) -> int | None:
    """The frontier; None where a source has promised nothing."""
    bounds = [bound for bound in promises.values() if bound is not None]
    return min(bounds) if bounds and len(bounds) == len(promises) else None
