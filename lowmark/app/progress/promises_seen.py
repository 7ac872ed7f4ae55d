"""What lanes have promised, read from the punctuations of one partition: each goes to all partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from highlevel.progress.granules import promised_granule
from lowmark.query.plan.nodes import Pane
from lowmark.wire.records.punctuations import Ending, Punctuation
from lowmark.wire.rows.values import FOREVER

__all__ = ["LaneSeen", "PromisesSeen"]

_SLACK_NS = 5 * 10**9
"""Allowance for a source's disorder, for the time until a pane has left its table, and for clocks that differ."""

_KEPT = 10_000
"""Number of granules kept for a lane: the latest ones with tuples."""


@dataclass(slots=True)
class LaneSeen:
    """The lane of a source, or of a bucket before an exchange, at one node. Tuple counts come from accounts and cover
    all partitions."""

    epoch: int
    granule: int  # the first granule that is not promised
    promised_ns: int  # FOREVER: it has ended
    stopped: bool
    heard_ns: int  # when its last promise was written, by the broker's clock
    counted: int | None  # tuples in this epoch; None: not reported
    former: int = 0  # tuples in earlier epochs
    tuples: dict[int, int] = field(default_factory=dict)  # by granule
    low: int | None = None  # the first granule with tuples that was read
    since: int | None = None  # tuple counts of granules before this one may be incomplete; None: all are complete

    @property
    def ended(self) -> bool:
        return self.promised_ns == FOREVER

    def overdue(self, pane: Pane, now_ns: int) -> bool:
        """Whether its last promise is older than a healthy source allows: a pane by the clock, plus 5 s."""
        pane_ns = pane.start(self.granule + 1) - pane.start(self.granule) if not self.ended else 0
        return not self.ended and now_ns - self.heard_ns > pane_ns + _SLACK_NS

    def ahead(self, frontier: int) -> int:
        """Tuples of granules from `frontier` on."""
        return sum(count for granule, count in self.tuples.items() if granule >= frontier)

    def before(self, frontier: int) -> int | None:
        """All tuples of granules before `frontier`; None: not known."""
        if self.counted is None or (self.since is not None and frontier < self.since):
            return None
        return self.former + self.counted - self.ahead(frontier)

    def follow(self, before: LaneSeen) -> None:
        """Takes over what was read of this lane before, in this epoch or an earlier one."""
        self.tuples, self.low, self.since = before.tuples, before.low, before.since
        if before.epoch < self.epoch:
            self.former = before.former + (before.counted or 0)
            return
        self.former = before.former
        self.granule = max(self.granule, before.granule)
        self.promised_ns = max(self.promised_ns, before.promised_ns)

    def account(self, granule: int, tuples: int) -> None:
        self.tuples[granule] = self.tuples.get(granule, 0) + tuples
        self.low = granule if self.low is None else min(self.low, granule)
        if len(self.tuples) > _KEPT:
            oldest = min(self.tuples)
            del self.tuples[oldest]
            self.since = oldest + 1


class PromisesSeen:
    """`panes`: the panes of the nodes of interest, by stage (or fingerprint of the exchanges) and node name."""

    def __init__(self, panes: Mapping[tuple[str, str], Pane]) -> None:
        self._panes = panes
        self._epochs: dict[str, int] = {}
        self._lanes: dict[tuple[str, str, str], LaneSeen] = {}

    def registered(self, source: str, epoch: int) -> None:
        self._epochs[source] = max(epoch, self._epochs.get(source, epoch))

    def known(self, source: str) -> bool:
        """Whether the source has ever been seen."""
        return source in self._epochs

    def lane(self, stage: str, node: str, source: str) -> LaneSeen | None:
        """The lane of a source; None: it has promised nothing in its present epoch."""
        lane = self._lanes.get((stage, node, source))
        return None if lane is None or lane.epoch < self._epochs.get(source, 0) else lane

    def lane_of_bucket(self, stage: str, node: str, source: str) -> LaneSeen | None:
        """The lane of a bucket in the query's last life, which is part of its name: see `bucket_source`."""
        names = (name for at, of, name in self._lanes if (at, of) == (stage, node))
        lives = [lane for name in names if name.partition(".")[0] == source and (lane := self.lane(stage, node, name))]
        return max(lives, key=lambda lane: lane.epoch, default=None)

    def take(self, record: Punctuation, at_ns: int) -> None:
        """`at_ns`: when it was written."""
        origin, ledger = record.origin, record.ledger
        pane = self._panes.get((origin.stage, origin.node))
        granule = None if pane is None else promised_granule(record.promise, pane)
        name = origin.stage, origin.node, origin.source
        before = self._lanes.get(name)
        if pane is None or granule is None or (before is not None and origin.epoch < before.epoch):
            return
        promised_ns = FOREVER if granule == FOREVER else record.promise.below("ts")
        stopped, counted = record.ending is Ending.STOP, ledger.counters.get("promised")
        shown_ns = pane.start(granule) if promised_ns is None else promised_ns
        lane = LaneSeen(origin.epoch, granule, shown_ns, stopped, at_ns, counted)
        accounts = [account for account in ledger.accounts if account.everywhere]
        if before is not None:
            lane.follow(before)
        elif counted != sum(account.everywhere for account in accounts):
            lane.since = min((account.granule for account in accounts), default=granule)
        for account in accounts:
            lane.account(account.granule, account.everywhere)
        self._lanes[name] = lane
        self.registered(origin.source, origin.epoch)
