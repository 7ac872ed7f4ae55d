"""A one-node stage whose query counts tuples in windows, and ways to drive its bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from highlevel.interface import MarkOut, Out, Space, State, Words
from highlevel.limits import GroupLimit
from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Outcome, Output, ResultRows
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.rosters.roster import Roster
from highlevel.row_marks import RowMark, shown_windows
from highlevel.state import MemoryByteStore, MemoryState, PiecewiseState
from lowmark.query.plan.nodes import Aggregate, Node, NodeInput, Pane, QueryPlan, Reduction, Stage, Step, StepPlan
from lowmark.query.windows.window import Axis, Window, WindowKind
from lowmark.wire.records.partials import PANE, Origin
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation, Taint
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import Exclusion, Return, RosterChange
from lowmark.wire.records.verdicts import Complete
from lowmark.wire.rows.schema import Column, Kind, Schema

WIDTH = 10
FINGERPRINT = "f00d"
REDUCTION = Reduction(None, Pane(WIDTH), (), (), (), grouped=True)
COUNTED = Schema((Column("window_start", Kind.TIME), Column("window_end", Kind.TIME), Column("count", Kind.INT)))


class CountingOperator:
    """Counts the tuples of each window; keeps a count a pane."""

    PANES: Space[int] = Space("panes", lambda n: str(n).encode(), int)
    NEXT: Space[int] = Space("next", lambda n: str(n).encode(), int)

    def __init__(self, plan: StepPlan, limit: GroupLimit) -> None:
        assert isinstance(plan, Aggregate)
        self.window = plan.window

    def on_batch(self, port: int, rows: Words, state: State, out: Out) -> None:
        for pane, tuples in rows[:, 1:3].view(np.int64).tolist():
            state.put(self.PANES, pane, (state.get(self.PANES, pane) or 0) + tuples)

    def on_promise(self, port: int, promise: Promise, state: State, out: Out) -> None:
        below = promise.below(PANE)
        assert below is not None
        panes = state.keys(self.PANES)
        end = self.window.closed_by(below)
        landmark = self.window.kind is WindowKind.LANDMARK
        wids = sorted({wid for pane in panes for wid in self.window.wids(pane) if wid < end})
        done = state.get(self.NEXT, 0)
        for wid in wids:
            if done is not None and wid < done:
                continue
            extent = self.window.extent(wid)
            held = [pane for pane in panes if (pane < extent.stop if landmark else pane in extent)]
            count = sum(state.get(self.PANES, pane) or 0 for pane in held)
            start = self.window.start(wid)
            row = [[1 if start is None else 0, start or 0, self.window.end(wid), count]]
            out.rows(port, np.array(row, np.int64).view(np.uint64))
            out.closed(port, range(wid, wid + 1), count)
        state.put(self.NEXT, 0, max(end, done or end))
        if not landmark:
            for pane in state.keys(self.PANES, min(below, self.window.first_needed(end))):
                state.drop(self.PANES, pane)

    def on_mark(self, port: int, mark: RowMark, state: State, out: MarkOut) -> None:
        out.mark(0, shown_windows(self.window, mark))

    def work(self, state: State, out: Out, budget: int) -> int:
        return 0


def node(name: str = "main", streams: tuple[str, ...] = ("Main",)) -> Node:
    return Node(name, streams, REDUCTION, ())


STAGE = Stage(FINGERPRINT, (node(),), 4)


def window(size: int, slide: int, kind: WindowKind = WindowKind.SLIDING) -> Window:
    return Window(kind, size, slide, Axis("ts", Kind.TIME, WIDTH))


def plan(over: Window, name: str = "q") -> QueryPlan:
    step = Aggregate(REDUCTION.schema, (), (), (), (), over, COUNTED)
    return QueryPlan(name, "", STAGE, (Step(step, (NodeInput("main"),)),), COUNTED, over, False, ())


def rows(panes: Mapping[int, int]) -> Words:
    return np.array([[0, pane, tuples] for pane, tuples in panes.items()], np.int64).reshape(-1, 3).view(np.uint64)


@dataclass
class Sender:
    """One epoch of a source, which numbers its records."""

    source: str
    epoch: int = 0
    kind: SourceKind = SourceKind.FINITE
    start_ns: int | None = None
    stage: str = FINGERPRINT
    node: str = "main"
    width: int = WIDTH
    sequence: int = 0
    promised: int = -1000
    sent: dict[int, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: {"late": 0, "given_up": 0, "taints": 0})

    def _origin(self) -> Origin:
        return Origin(self.stage, self.source, self.epoch, self.node)

    def _number(self) -> int:
        self.sequence += 1
        return self.sequence - 1

    def batch(self, panes: Mapping[int, int], late: bool = False) -> Batch:
        return self.words(rows(panes), panes, late)

    def words(self, words: Words, panes: Mapping[int, int], late: bool = False) -> Batch:
        if not late:
            for pane, tuples in panes.items():
                self.sent[pane] = self.sent.get(pane, 0) + tuples
        return Batch(self._origin(), self._number(), words, dict(panes), late)

    def promise(self, granule: int, *extra: Account | Taint) -> Punctuation:
        """The panes below `granule` have ended; `extra` are accounts in the place of, or besides, the plain ones, and
        what else is told."""
        accounts = tuple(one for one in extra if isinstance(one, Account))
        given = {account.granule for account in accounts}
        plain = [
            Account(pane, self.sent[pane], self.sent[pane])
            for pane in sorted(self.sent)
            if self.promised <= pane < granule and pane not in given
        ]
        self.promised = granule
        taints = tuple(one for one in extra if isinstance(one, Taint))
        return self._tell(Promise((Bound("ts", granule * self.width),)), (*plain, *accounts), taints)

    def end(self) -> Punctuation:
        plain = [Account(pane, self.sent[pane], self.sent[pane]) for pane in sorted(self.sent) if pane >= self.promised]
        return self._tell(Promise((), last=True), tuple(plain), (), Ending.END)

    def stop(self, granule: int) -> Punctuation:
        """The epoch's last record: the panes below `granule` have ended, and nothing follows."""
        plain = [Account(pane, self.sent[pane], self.sent[pane]) for pane in sorted(self.sent) if pane >= self.promised]
        return self._tell(Promise((Bound("ts", granule * self.width),)), tuple(plain), (), Ending.STOP)

    def _tell(
        self, promise: Promise, accounts: tuple[Account, ...], taints: tuple[Taint, ...], ending: Ending = Ending.NONE
    ) -> Punctuation:
        for account in accounts:
            self.counters["late"] += account.late
            self.counters["given_up"] += account.given_up
        self.counters["taints"] += len(taints)
        ledger = LaneLedger(dict(self.counters), accounts, taints)
        return Punctuation(self._origin(), self._number(), promise, ledger, ending, self.start_ns)


def dropped(granule: int, frames: int, stop: int | None = None) -> Taint:
    """Frames were dropped that may be of the granules from this one up to `stop`; of it alone, if there is none."""
    return Taint(granule, granule + 1 if stop is None else stop, ("dropped",), dropped=frames)


def change(version: int, granule: int, *sources: str) -> RosterChange:
    return RosterChange("job", "Main", version, granule * WIDTH, sources)


def exclusion(version: int, source: str, granule: int) -> Exclusion:
    return Exclusion("job", "Main", version, granule * WIDTH, source)


def readmission(version: int, source: str, granule: int) -> Return:
    return Return("job", "Main", version, granule * WIDTH, source)


Item = tuple[Record, Arrival]


def finite(records: Iterable[Record]) -> list[Item]:
    return [(record, Arrival(position)) for position, record in enumerate(records)]


def driver(plans: Sequence[QueryPlan], state: State, roster: Roster) -> BucketDriver:
    return BucketDriver(STAGE, tuple(plans), 1, state, roster, 2, CountingOperator)


def run(items: Sequence[Item], plans: Sequence[QueryPlan], roster: Roster, cuts: Iterable[int] = ()) -> list[Outcome]:
    """Micro-batches end before the positions `cuts`; each has a driver made from the bytes of the state before it."""
    store = MemoryByteStore()
    bounds = [0, *sorted(cuts), len(items)]
    outcomes = []
    for start, stop in pairwise(bounds):
        state = PiecewiseState(store, FINGERPRINT)
        bucket = driver(plans, state, roster)
        for record, arrival in items[start:stop]:
            bucket.take(record, arrival)
        outcomes.append(bucket.flush())
        state.commit()
    return outcomes


def run_live(items: Sequence[Item], plans: Sequence[QueryPlan], roster: Roster) -> Outcome:
    """In one micro-batch, over state of live objects."""
    bucket = driver(plans, MemoryState(), roster)
    for record, arrival in items:
        bucket.take(record, arrival)
    return bucket.flush()


def outputs(outcomes: Iterable[Outcome]) -> list[Output]:
    return [output for outcome in outcomes for output in outcome.outputs]


def plain(output: Output) -> object:
    """Comparable by value: rows as lists."""
    if isinstance(output, ResultRows):
        return output.query, output.window, output.rows.tolist()
    return (
        output if not hasattr(output, "rows") or isinstance(output, Complete) else (type(output), output.rows.tolist())
    )


def completes(outcomes: Iterable[Outcome], query: str = "q") -> list[Complete]:
    return [output for output in outputs(outcomes) if isinstance(output, Complete) and output.query == query]


def contiguous(found: Sequence[Complete]) -> bool:
    spans = [complete.windows for complete in found if complete.windows is not None]
    return all(before.to + 1 == after.first for before, after in pairwise(spans))
