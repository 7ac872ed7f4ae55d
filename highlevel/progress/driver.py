"""The pure driver of one bucket of a stage: lanes, fencing, ledger, frontiers and the graph of operators.

It serves both runners. Rows that a query sends into an exchange come back as rows of an ordinary node whose sources are
the buckets. The same records in the same order give the same outputs, wherever the order is cut into micro-batches;
only the division of a windowless query's rows into `ResultRows` may differ. Granules are panes of the node; times in
control records become granules of each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from highlevel.build import Build, build
from highlevel.graph import Graph
from highlevel.interface import Space, State, Words
from highlevel.operators.incoming import panes_of
from highlevel.progress.apply_punctuation import receive
from highlevel.progress.bucket_identity import BucketIdentity
from highlevel.progress.exchange_channel import bucket_source
from highlevel.progress.future_records import MAX_AHEAD_NS, is_future
from highlevel.progress.granules import granule_of_time
from highlevel.progress.lanes import LANES, UPSTREAM_LANES, Lane, Lanes, losses_before
from highlevel.progress.ledger import Ledger
from highlevel.progress.outputs import Outcome, Rejection
from highlevel.progress.pending_outputs import Tally
from highlevel.progress.promises.stored_values import LaneValues, ToldValues
from highlevel.progress.promises.values import ValuePromises, about_values, in_panes, news, of_all
from highlevel.progress.records import Arrival, Batch, Record
from highlevel.progress.served import SERVED, joining_steps, served
from highlevel.rosters.outlived import forget_outlived
from highlevel.rosters.roster import Changed, Roster, changes
from highlevel.rosters.source_status import BucketProgress, Standing
from highlevel.scheduler import IN_ORDER, Scheduler
from highlevel.verdicts.completions import Completions
from highlevel.verdicts.loss_propagation import Losses
from highlevel.verdicts.marks import Finding
from lowmark.query.plan.nodes import QueryPlan, Stage
from lowmark.wire.records.partials import TUPLES_WORD
from lowmark.wire.records.punctuations import Ending, Promise, Punctuation
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import Control, Retirement
from lowmark.wire.records.verdicts import Reason, Verdict
from lowmark.wire.rows.by_bucket import tuples_by_pane
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["BucketDriver", "BucketProgress", "mark_retired"]

Bools = npt.NDArray[np.bool_]

_PENDING_ROWS = 1 << 18
"""Rows of a node that are collected and then merged as one run."""

_LATE = Verdict(frozenset({Reason.LATE}))
_PUNCTUATED = Verdict(frozenset({Reason.PUNCTUATED}))
_NOT_COVERED = Finding(Verdict(frozenset({Reason.NOT_COVERED})))
_PARTIAL = Finding(Verdict(partial=True))

_ROSTER: Space[Roster] = Space("roster", Roster.encode, Roster.decode)
_RETIRED: Space[str] = Space("retired", str.encode, bytes.decode)


def mark_retired(state: State, stage: str) -> None:
    """Mark a stage's state as retired, so that later drivers on it take no records."""
    state.put(_RETIRED, 0, stage)


class BucketDriver:
    """One per (stage, bucket), rebuilt from its state for a micro-batch or kept from one to the next.

    `plans` are the queries that read the stage. `roster` is the roster declared when the state is empty; later changes
    arrive as control records and are kept in the state. `generation` is the job's; `lives` has the greater ones of
    queries that the job has begun later. If it does not get all records from the beginning, it gets enough of them for
    tuples from `needed_ns` on: what is missing before the first record of a lane is then no gap.

    After a gap the driver reads a punctuation's cumulative counters `late`, `dropped` and `given_up`: they show whether
    a lost punctuation reported losses in granules promised before.
    """

    def __init__(
        self, stage: Stage, plans: tuple[QueryPlan, ...], bucket: int, state: State, roster: Roster, generation: int,
        build: Build = build, scheduler: Scheduler = IN_ORDER, lives: Mapping[str, int] = MappingProxyType({}),
        needed_ns: int = NEVER,
    ) -> None:  # fmt: skip
        self._stage = stage
        self._needed_ns = needed_ns
        self._state = state
        self._plans = sorted(plans, key=lambda plan: plan.name)
        self._served = served(self._plans, lambda query: lives.get(query, generation))
        joining, fresh = joining_steps(state, self._plans, self._served)
        places = {
            plan.name: BucketIdentity(bucket, stage.buckets, lives.get(plan.name, generation),
                             bucket_source(bucket, lives.get(plan.name)))
            for plan in plans
        }  # fmt: skip
        self._oldest = min((place.generation for place in places.values()), default=generation)
        self._exchanges = {
            exchange.node.name: plan.exchanges.fingerprint
            for plan in plans
            if plan.exchanges is not None
            for exchange in plan.exchanges.each
        }
        returning = (exchange.node for plan in plans if plan.exchanges is not None for exchange in plan.exchanges.each)
        self._nodes = {node.name: node for node in (*stage.nodes, *returning)}
        senders = {
            exchange.node.name: tuple(bucket_source(of, lives.get(plan.name)) for of in range(stage.buckets))
            for plan in plans
            if plan.exchanges is not None
            for exchange in plan.exchanges.each
        }
        self._stored_roster = state.get(_ROSTER, 0)
        self._roster = (self._stored_roster or roster).but_for(senders).with_streams(senders)
        self._rosters = self._by_node()
        self._outliving = True  # whether something may be forgotten when a frontier moves
        self._sends_as = {
            exchange.node.name: places[plan.name]
            for plan in plans
            if plan.exchanges is not None
            for exchange in plan.exchanges.each
        }
        self._lanes = state.get(LANES, 0) or Lanes()
        self._upstream = state.get(UPSTREAM_LANES, 0) or Lanes()
        self._ledgers = {name: Ledger(node, state, name in self._exchanges) for name, node in self._nodes.items()}
        self._standing = Standing(stage.nodes, self._ledgers, self._lanes, lambda: self._rosters)
        seen = max((ledger.seen for ledger in self._ledgers.values()), default=NEVER)
        self._graph = Graph(self._plans, build, state, scheduler, seen)
        self._losses = Losses(self._graph, self._ledgers)
        self._queries = [
            Completions(answer, self._losses, self._ledgers, places[name], state, self._standing.witness)
            for name, answer in self._graph.answers.items()
        ]
        self._readers = {
            name: tuple(query for query in self._queries if name in query.answer.nodes) for name in self._nodes
        }
        self._lane_values = LaneValues(state, "lanes.values", self._lanes)
        self._upstream_values = LaneValues(state, "upstream lanes.values", self._upstream)
        self._valued = self._lanes.valued() | self._upstream.valued()
        self._held = {name: ToldValues(state, name) for name in self._nodes}
        self._pending: dict[str, list[Words]] = {name: [] for name in self._nodes}
        self._tally = Tally()
        self._dropped = self._retired = state.get(_RETIRED, 0) is not None
        if joining:
            self._join(joining, fresh)

    def take(self, record: Record, arrival: Arrival) -> None:
        """Take the next record of the bucket, in order of position."""
        if self._retired:
            return
        if not isinstance(record, Batch | Punctuation):
            self._control(record)
            return
        origin = record.origin
        node = self._nodes.get(origin.node)
        if node is None or origin.stage != self._exchanges.get(node.name, self._stage.fingerprint):
            detail = f"node {origin.node} of stage {origin.stage}: this bucket reads stage {self._stage.fingerprint}"
            self._tally.put(Rejection(BadReason.STAGE, detail, arrival.position))
            return
        listed = self._rosters[node.name].lists(origin.source, node.streams)
        if not listed and node.name in self._exchanges:
            self._tally.unlisted += sum(record.tuples.values()) if isinstance(record, Batch) else 0
            return
        if node.name in self._exchanges and origin.epoch != self._sends_as[node.name].generation:
            self._tally.fenced += 1  # the state of that generation is lost: this generation sends all of it again
            return
        lanes = self._lanes_of(node.name)
        for ended in lanes.fence(origin, arrival.kind):
            why = Reason.REPLAYED if arrival.kind is SourceKind.FINITE else Reason.NOT_COVERED
            self._ledgers[ended.node].end_epoch(ended, why)
            self._ledgers[ended.node].frontier.forget()
        if lanes.fenced(origin):
            self._fenced(record)
            return
        lane, missing = lanes.enter(origin, record.sequence, arrival.kind)
        if missing is None:
            self._tally.duplicates += 1
            return
        if missing:
            lane.suspect = Reason.GAP
            if not (missing == record.sequence and self._prepares(lane, arrival)):
                self._tally.gaps += missing
                if listed:
                    self._losses.lost_before(lane.node)
        if isinstance(record, Punctuation) and lane.suspect is Reason.GAP and self._prepares(lane, arrival):
            lane.counters = losses_before(record.ledger)
        if lanes is self._lanes:
            self._standing.hear(lane.source, arrival.appended_ns)
        if is_future(record, arrival, node):
            self._refuse_future(record, lane, arrival)
        elif isinstance(record, Batch):
            self._batch(record, lane, arrival.position)
        else:
            self._punctuation(record, lane)

    def flush(self) -> Outcome:
        """End a micro-batch: hand pending runs to the operators, put the driver's pieces into the state (the runner
        then commits it), and return everything since the last flush."""
        if self._dropped:
            return Tally().outcome(True)
        self._merge_pending()
        self._graph.work()
        self._losses.collect()
        for query in self._queries:
            self._tally.extend(query.collect())
            self._tally.extend(query.forward())
            if query.shed:
                self._tally.given_up(query.plan.name, query.shed)
                query.shed.clear()
            query.save()
        self._losses.save()
        self._graph.save()
        for ledger in self._ledgers.values():
            ledger.save()
        for held in self._held.values():
            held.save()
        self._lane_values.save()
        if self._exchanges:
            self._upstream_values.save()
        self._state.put(LANES, 0, self._lanes)
        if self._exchanges:
            self._state.put(UPSTREAM_LANES, 0, self._upstream)
        if self._roster is not self._stored_roster:  # a roster of thousands of sources is large
            self._state.put(_ROSTER, 0, self._roster)
            self._stored_roster = self._roster
        if self._state.get(SERVED, 0) != self._served:
            self._state.put(SERVED, 0, self._served)
        if self._retired:
            mark_retired(self._state, self._stage.fingerprint)
        outcome = self._tally.outcome(self._retired)
        self._tally = Tally()
        return outcome

    @property
    def failed(self) -> tuple[str, ...]:
        """The queries that read the operator that has raised an exception."""
        return self._graph.failed

    def progress(self) -> BucketProgress:
        if self._retired:
            return BucketProgress((), (), (), (), (), 0, (), True)
        complete_to = tuple((query.plan.name, query.complete_to()) for query in self._queries)
        return BucketProgress(
            complete_to,
            tuple((query.plan.name, query.open_windows()) for query in self._queries),
            tuple(self._standing.fronts()),
            tuple(self._standing.waiting()),
            tuple(self._standing.returned()),
            self._standing.open_panes(),
            tuple(self._standing.heard()),
            all(bound == FOREVER for _, bound in complete_to),
            tuple((query.plan.name, buffer) for query in self._queries for buffer in query.answer.buffers()),
            tuple((query.plan.name, freed) for query in self._queries for freed in query.answer.freed()),
        )

    def _join(self, queries: frozenset[str], steps: frozenset[str]) -> None:
        """Let queries begin in the middle of their input: each node's frontier is the first promise that they get, and
        their first whole window begins after the last granule of which tuples have come."""
        own = {name: ledger for name, ledger in self._ledgers.items() if name not in self._exchanges}
        whole = {name: max(of.frontier.value, NEVER if of.high is None else of.high + 1) for name, of in own.items()}
        self._losses.join(queries, steps, whole)
        for name, ledger in own.items():
            if ledger.frontier.value > NEVER:
                self._graph.promise(name, ledger.frontier.value, steps)

    def _prepares(self, lane: Lane, arrival: Arrival) -> bool:
        """Whether the lane may have begun before the records that the bucket gets."""
        return lane.promised == NEVER and arrival.appended_ns is not None and arrival.appended_ns < self._needed_ns

    def _lanes_of(self, node: str) -> Lanes:
        return self._upstream if node in self._exchanges else self._lanes

    def _fenced(self, record: Batch | Punctuation) -> None:
        """Handle a record of an ended epoch. Its tuples are lost where no later epoch covers their source. Report the
        loss only before the coverage of the first epoch; a gap between two epochs is already marked."""
        self._tally.fenced += 1
        lane = self._lanes.find(record.origin.source, record.origin.node)
        if isinstance(record, Batch) and lane is not None and lane.kind is SourceKind.LIVE:
            pane = self._nodes[lane.node].reduction.pane
            start = FOREVER if lane.covered_ns is None else granule_of_time(pane, lane.covered_ns)
            roster, streams = self._rosters[lane.node], self._nodes[lane.node].streams
            for granule in sorted(record.tuples):
                if granule < start and roster.belongs(lane.source, streams, granule):
                    self._lost(lane.node, granule, granule + 1, _NOT_COVERED)

    def _refuse_future(self, record: Batch | Punctuation, lane: Lane, arrival: Arrival) -> None:
        lane.future = True
        if isinstance(record, Punctuation) and lane.suspect is None:
            lane.suspect = Reason.FUTURE
        what = "its rows lie" if isinstance(record, Batch) else "its promise lies"
        detail = f"{what} more than {MAX_AHEAD_NS // 10**9} s ahead of the time at which it was appended"
        self._tally.put(Rejection(BadReason.FUTURE, detail, arrival.position))

    def _batch(self, batch: Batch, lane: Lane, position: int) -> None:
        if not len(batch.rows):
            return
        panes, ledger, streams = panes_of(batch.rows), self._ledgers[lane.node], self._nodes[lane.node].streams
        if int(panes.min()) < min(batch.tuples, default=FOREVER) or int(panes.max()) > max(batch.tuples, default=NEVER):
            self._tally.put(Rejection(BadReason.COUNT, "its rows lie in panes that its header does not name", position))
            return
        if lane.ended and not batch.late and all(map(ledger.frontier.is_late, batch.tuples)):
            # Another process wrote one of the two. In open windows the accounts show it, and the windows are lossy.
            self._tally.put(Rejection(BadReason.ENDED, "its source said before that it sends no more", position))
            return
        roster = self._rosters[lane.node]
        merge: dict[int, int] = {}
        late: dict[int, int] = {}
        for pane, tuples in sorted(batch.tuples.items()):
            if pane < lane.floor:
                self._tally.replayed += tuples
            elif not roster.belongs(lane.source, streams, pane):
                self._tally.unlisted += tuples
            elif batch.late or ledger.frontier.is_late(pane):
                late[pane] = tuples
            else:
                merge[pane] = tuples
        if late:
            self._late(lane, batch.rows[np.isin(panes, list(late))], late, batch.late)
        if merge:
            rows = batch.rows if len(merge) == len(batch.tuples) else batch.rows[np.isin(panes, list(merge))]
            for pane, count in merge.items():
                ledger.merged(lane, pane, count)
            broken = self._breaking(lane, rows)
            if broken is not None:
                merge = self._punctuated(lane, rows[broken], merge)
                rows = rows[~broken]
            self._merge(lane, rows, merge)

    def _breaking(self, lane: Lane, rows: Words) -> Bools | None:
        """Which rows break a promise about values: one of their own lane, or one that the operators have got, which is
        of all lanes. That one also binds a source that joined or began again after it. None: no row breaks one."""
        held = self._held[lane.node].promises
        if not lane.values and not held:
            return None
        schema = self._nodes[lane.node].reduction.schema
        broken = lane.values.broken_by(schema, rows) | held.broken_by(schema, rows)
        return broken if broken.any() else None

    def _punctuated(self, lane: Lane, rows: Words, tuples: Mapping[int, int]) -> dict[int, int]:
        """Take rows that break a promise about values: they count as late, although their panes are open. Returns the
        remaining tuples by pane."""
        panes, left = panes_of(rows), dict(tuples)
        counts = tuples_by_pane(panes, rows[:, TUPLES_WORD].view(np.int64))
        for pane, count in sorted(counts.items()):
            left[pane] -= count
            self._ledgers[lane.node].taint(pane, pane + 1, Finding(_PUNCTUATED, late=count))
        self._tally.late += sum(counts.values())
        self._tally.late_here += sum(counts.values())
        for query in self._readers[lane.node]:
            self._tally.extend(query.late(lane.node, lane.source, rows))
        return left

    def _merge(self, lane: Lane, rows: Words, tuples: Mapping[int, int]) -> None:
        if lane.node not in self._exchanges:  # tuples of an exchange were counted before it
            self._tally.merged += sum(tuples.values())
            self._tally.rows_in += len(rows)
        self._pending[lane.node].append(rows)
        if sum(map(len, self._pending[lane.node])) >= _PENDING_ROWS:
            self._merge_pending()

    def _late(self, lane: Lane, rows: Words, tuples: Mapping[int, int], told: bool) -> None:
        """`told`: the source itself sent these tuples as late, so its accounts already count them."""
        self._tally.late += sum(tuples.values())
        for query in self._readers[lane.node]:
            self._tally.extend(query.late(lane.node, lane.source, rows))
        if not told:
            self._tally.late_here += sum(tuples.values())
            for pane, count in tuples.items():
                self._lost(lane.node, pane, pane + 1, Finding(_LATE, late=count))

    def _lost(self, node: str, start: int, stop: int, finding: Finding) -> None:
        """Record a finding against granules that have ended."""
        self._ledgers[node].taint(start, stop, finding)
        self._amend(node, start, stop, finding)

    def _amend(self, node: str, start: int, stop: int, finding: Finding) -> None:
        """Amend what was announced. The finding is already in the ledger."""
        learned = self._losses.learn(node, start, stop, finding)
        for query in self._readers[node]:
            self._tally.extend(query.amend(learned, finding))

    def _merge_pending(self) -> None:
        for name, parts in self._pending.items():
            if parts:
                rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
                self._pending[name] = []
                self._graph.feed(name, rows)

    def _punctuation(self, record: Punctuation, lane: Lane) -> None:
        known, promised = self._together(lane.node), lane.promised
        for start, stop, finding in receive(record, lane, self._ledgers[lane.node], self._rosters[lane.node]):
            if (
                lane.node not in self._exchanges or lane.source != self._sends_as[lane.node].source
            ):  # a bucket knows its own findings
                self._amend(lane.node, start, stop, finding)
        if self._ledgers[lane.node].frontier.passed_by(lane.source, lane.promised):
            self._advance(lane.node)
        if record.ending is Ending.STOP:
            self._forget()
        made = [promise for promise in self._together(lane.node) if promise not in known]
        if about_values(record.promise):
            named, promise = ValuePromises(), in_panes(record.promise, self._nodes[lane.node].reduction.pane)
            named.take(promise)
            values = self._upstream_values if lane.node in self._exchanges else self._lane_values
            values.add(lane, promise)
            self._valued.add(lane.node)
            made += self._told(lane.node, named)
        elif lane.promised > promised and lane.node in self._valued:
            made += self._told(lane.node, None)
        for promise in made:
            self._merge_pending()
            self._graph.promise_jointly(lane.node, promise)

    def _told(self, node: str, among: ValuePromises | None) -> list[Promise]:
        """The promises of all sources of the node about values (`among`: only these) that the operators have not got. A
        promise of sources has a bound on panes, because a source that joins later has promised nothing."""
        held, open_ended = self._held[node], node in self._exchanges
        found = [*news(held.promises, self._values(node, among))]
        return [promise for promise in found if (open_ended or len(promise.bounds) > 1) and held.take(promise)]

    def _together(self, node: str) -> list[Promise]:
        """The joint promises of all buckets about the rows that they return."""
        if node not in self._exchanges:
            return []
        members = self._rosters[node].members(self._nodes[node].streams)
        return self._upstream.together(node, [member.source for member in members])

    def _values(self, node: str, among: ValuePromises | None) -> ValuePromises:
        """What all sources of the node have promised about values (`among`: only these)."""
        lanes, members = self._lanes_of(node), self._rosters[node].members(self._nodes[node].streams)
        return of_all(
            [(each.bound(lanes.promised(each.source, node)), lanes.values(node, each.source)) for each in members],
            among,
        )

    def _control(self, control: Control) -> None:
        if isinstance(control, Retirement):
            self._retired |= control.stage == self._stage.fingerprint and control.generation >= self._oldest
            return
        changed = self._roster.changed(control)
        if changed is self._roster:
            return
        self._roster, before = changed, self._rosters
        self._rosters = after = self._by_node()
        for name, node in self._nodes.items():
            if control.stream in node.streams:
                for change in changes(before[name], after[name], control.stream):
                    self._changed(name, change)
                self._advance(name)
        self._forget()

    def _by_node(self) -> dict[str, Roster]:
        return {name: self._roster.on(node.reduction.pane) for name, node in self._nodes.items()}

    def _changed(self, name: str, change: Changed) -> None:
        """Apply the joining or leaving of a source. The windows concerned are `not-covered` if they have closed by the
        previous roster, hold tuples of a source that leaves, or miss tuples that came before their source joined."""
        lane, ledger = self._lanes.find(change.source, name), self._ledgers[name]
        self._lost(name, change.granule, ledger.frontier.value, _NOT_COVERED)
        if not change.joins:
            ledger.unlist(change.source, change.granule, Reason.NOT_COVERED)
        elif lane is not None:
            ledger.taint(change.granule, lane.promised, _NOT_COVERED)
            ledger.taint(change.granule, lane.covers_from, _PARTIAL)

    def _advance(self, name: str) -> None:
        node, ledger, lanes = self._nodes[name], self._ledgers[name], self._lanes_of(name)
        value = ledger.frontier.closed_by(
            self._rosters[name], node.streams, lambda source: lanes.promised(source, name)
        )
        ended = ledger.frontier.advance(value)
        if ended is None:
            return
        self._merge_pending()
        ledger.settle(*ended, lanes, self._rosters[name].members(node.streams))
        self._losses.ending(name, *ended)
        self._graph.promise(name, value)
        self._held[name].prune(value)
        self._graph.work()
        self._losses.ended(name)
        for query in self._readers[name]:
            self._tally.extend(query.ended(name, *ended))
        ledger.prune(self._losses.needs(name))
        if self._outliving:
            self._forget()

    def _forget(self) -> None:
        """Forget the sources that can send nothing more. The records decide this, not the ends of micro-batches."""
        capture = {name: node for name, node in self._nodes.items() if name not in self._exchanges}
        left, self._outliving = forget_outlived(self._roster, capture, self._ledgers, self._lanes)
        if left is not self._roster:
            self._roster = left
            self._rosters = self._by_node()
