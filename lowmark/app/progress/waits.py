"""What a window, or an answer without windows, waits for: sources, rows, an exchange, or buckets of the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from highlevel.progress.exchange_channel import bucket_source
from highlevel.progress.promises.reach import Reach
from lowmark.app.progress.completions_seen import CompletionsSeen
from lowmark.app.progress.promises_seen import LaneSeen, PromisesSeen
from lowmark.app.progress.query_inputs import QueryInputs
from lowmark.app.progress.query_progress import ROWS, TIME, SourceProgress, Waiting
from lowmark.query.plan.nodes import Exchange, Node, QueryPlan
from lowmark.wire.rows import values
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["QueryWaits"]

_JOB = "the job"

_APART = 2
"""Panes within which a healthy source has sent a pane from its table and promised it."""

_UNHEARD = ("never seen", "silent")
_FAULTS = (*_UNHEARD, "overdue", "stopped")
_SENDING = ("promising", "overdue", "stopped")
_ANY = (*_UNHEARD, *_SENDING)
_WHY = {
    "never seen": "it has never been seen", "silent": "it has promised nothing yet", "stopped": "it has stopped",
    "overdue": "its promises do not come any more",
}  # fmt: skip
"""Reasons for sources whose state does not let them promise more."""

Short = Callable[[Node, LaneSeen], int | None]
"""How many ns a lane's promise is behind what is needed; None: nothing waits for it."""


class QueryWaits:
    """A snapshot. `exchanged`: what buckets have promised before exchanges."""

    def __init__(
        self, plan: QueryPlan, reach: Reach, inputs: QueryInputs, exchanged: PromisesSeen, seen: CompletionsSeen
    ) -> None:  # fmt: skip
        self._plan = plan
        self._reach = reach
        self._inputs = inputs
        self._progress = tuple(inputs.progress())
        self._exchanged = exchanged
        self._seen = seen

    def window(self, number: int) -> tuple[Waiting, ...]:
        if self._inputs.ended:
            return tuple(self._job(number))
        if self._reach.numbers_rows:
            return tuple(self._for_rows(number))
        return tuple(self._short(number + 1, "it has not promised to be past it")) or tuple(self._job(number))

    def answer(self) -> tuple[Waiting, ...]:
        """What an answer without windows waits for, or without a first window yet, or one whose sources have all
        ended."""
        window, goal = self._reach.window, self._reach.of(self._inputs.granules())
        if goal == NEVER or (window is not None and (goal != FOREVER or window.axis.kind is not Kind.TIME)):
            return tuple(self._behind())
        if window is None and self._plan.window is not None and goal != FOREVER:
            self._reach.forget(goal)
            held = tuple(self._short(goal + 1, "it has not promised to be past the next groups"))
        else:
            held = tuple(self._behind())
        if self._open_in_partitions and not self._inputs.ended:
            held = (*held, Waiting(ROWS, "more of their partitions must come"))
        return held + (tuple(self._exchange(goal, goal)) or tuple(self._untold(goal)))

    def _for_rows(self, number: int) -> Iterator[Waiting]:
        before, ahead = self._inputs.tuples
        complete = self._seen.complete_to(self._plan.stage.buckets)
        if before is None or (complete is not None and before < complete - 1):  # its end is the number of the next row
            yield from self._behind()
            yield Waiting(ROWS, "how many have come is not known")
            return
        missing = self._reach.needed_rows(number + 1) - before
        if missing <= 0:
            yield from self._job(number)
            return
        yield from self._behind()
        if missing > ahead:
            yield Waiting(ROWS, f"{missing - ahead:,} more must come")

    @property
    def _open_in_partitions(self) -> bool:
        return self._seen.open is not None and self._seen.open.windows > 0

    def _short(self, goal: int, why: str) -> Iterator[Waiting]:
        """What the answer needs to reach `goal`: the sources that hold it up, because of their state or because they
        are behind another source that has promised enough; if no source holds it up, time."""

        def short(node: Node, lane: LaneSeen) -> int | None:
            needed = self._reach.needed(node.name, goal)
            return needed - lane.promised_ns if needed > lane.promised_ns else None

        lacking = {at.source: self._most(at, short) for at in self._progress}
        another = any(lacking[at.source] is None for at in self._progress if at.state in _SENDING)

        def held_up(node: Node, lane: LaneSeen) -> int | None:
            return short(node, lane) if self._is_behind(node, lane) else None

        held = tuple(self._sources(short, why, _FAULTS))
        held += tuple(self._sources(held_up, why, ("promising",))) if another else ()
        behind = [(each, at.promised_ns) for at in self._progress if (each := lacking[at.source]) is not None]
        if held or not behind:
            return iter(held)
        most, up_to = max(behind)
        return iter((Waiting(TIME, "more must come", None if up_to is None else values.time(up_to), _told(most)),))

    def _behind(self) -> Iterator[Waiting]:
        """The sources that have promised nothing. If there are none: those that are behind the source that has promised
        most, or have stopped, or all if one has ended. If there are none: those that are overdue."""
        furthest, others_ended = self._inputs.furthest_ns or 0, any(at.state == "ended" for at in self._progress)
        unheard = any(at.state in _UNHEARD for at in self._progress)

        def short(node: Node, lane: LaneSeen) -> int | None:
            waited = self._is_behind(node, lane) or lane.stopped or others_ended
            return furthest - lane.promised_ns if waited and not lane.ended else None

        def overdue(node: Node, lane: LaneSeen) -> int | None:
            return 0 if lane.overdue(node.reduction.pane, self._inputs.now_ns) else None

        why = "another has promised more"
        behind = tuple(self._sources(short, why, _UNHEARD if unheard else _ANY))
        return iter(behind or tuple(self._sources(overdue, why, _ANY)))

    def _is_behind(self, node: Node, lane: LaneSeen) -> bool:
        """Whether it is behind the source that has promised most by more than healthy sources are apart."""
        return lane.granule + _APART < node.reduction.pane.index(self._inputs.furthest_ns or 0)

    def _sources(self, short: Short, why: str, states: Collection[str]) -> Iterator[Waiting]:
        """The sources in one of `states` whose promise is short."""
        for at in self._progress:
            if at.state not in states:
                continue
            why_so = _WHY.get(at.state, why)
            if at.promised_ns is None:
                yield Waiting(at.source, why_so)
            elif (behind := self._most(at, short)) is not None:
                up_to = values.time(at.promised_ns)
                yield Waiting(at.source, why_so, up_to, _told(behind), at.heard_ns, at.silent_ns)

    def _most(self, at: SourceProgress, short: Short) -> int | None:
        found = [short(node, lane) for node, lane in self._inputs.sources[at.source] if lane is not None]
        return max((each for each in found if each is not None), default=None)

    def _job(self, number: int) -> Iterator[Waiting]:
        """What a window waits for when all sources are past its end."""
        assert self._reach.window is not None
        end = self._reach.window.end(number)
        sending = tuple(self._exchange(number + 1, end))
        if sending:
            yield from sending
            return
        behind: dict[int | None, list[int]] = {}
        for bucket in range(self._plan.stage.buckets):
            last = self._seen.last.get(bucket)
            if last is None or last.end < end:
                behind.setdefault(None if last is None else last.end, []).append(bucket)
        for reached, buckets in behind.items():
            what = "completed nothing yet" if reached is None else "not completed it"
            yield self._of_job(f"all sources are past it, {_named(buckets)} {what}", reached, end)

    def _exchange(self, goal: int, end: int) -> Iterator[Waiting]:
        """The first exchange into which buckets have not sent all that the answer needs to reach `goal`."""
        exchanges = () if self._plan.exchanges is None else self._plan.exchanges.each
        for exchange in exchanges:
            behind = dict(self._not_sent(exchange, goal))
            if behind:
                reached = min(behind.values())
                what = f"{_named(list(behind))} not sent all of it into exchange {exchange.node.name}"
                window = self._reach.window
                up_to = reached if window is None or reached == NEVER else window.end(reached - 1)
                yield self._of_job(f"{what}: {exchange.reason}", None if up_to == NEVER else up_to, end)
                return

    def _not_sent(self, exchange: Exchange, goal: int) -> Iterator[tuple[int, int]]:
        """Buckets that are behind, each with how far its promise lets the answer come."""
        assert self._plan.exchanges is not None
        node = exchange.node.name
        for bucket in range(self._plan.stage.buckets):
            lane = self._exchanged.lane_of_bucket(self._plan.exchanges.fingerprint, node, bucket_source(bucket))
            reached = NEVER if lane is None else self._reach.of({node: lane.granule})
            if reached < goal:
                yield bucket, reached

    def _untold(self, goal: int) -> Iterator[Waiting]:
        """Buckets that may be behind. An answer without windows reports its bound only with rows, and at its end."""
        reached = max((last.end for last in self._seen.last.values()), default=None)
        if self._inputs.ended and self._open_in_partitions:
            yield self._of_job("all sources have ended, and it has not closed all windows", reached, goal)
        elif self._inputs.has_tuples(NEVER if reached is None else reached, goal):
            why = "tuples have come since its last report: they made no row, or it is behind"
            yield self._of_job(why, reached, goal)

    def _of_job(self, why: str, reached: int | None, end: int) -> Waiting:
        window = self._reach.window
        kind = Kind.TIME if window is None else window.axis.kind
        if reached is None:
            return Waiting(_JOB, why)
        behind = end - reached if kind is Kind.TIME and end != FOREVER else None
        return Waiting(_JOB, why, values.show(kind, reached), behind)


def _told(behind_ns: int) -> int | None:
    """The distance to show; None if what is needed is a source's end, which has no distance."""
    return behind_ns if 0 < behind_ns < FOREVER // 2 else None


def _named(buckets: Sequence[int]) -> str:
    return f"bucket {buckets[0]} has" if len(buckets) == 1 else f"buckets {', '.join(map(str, buckets))} have"
