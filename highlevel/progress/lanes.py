"""Lanes: one for each source, epoch and node, with the last record seen and the promises made.

Only the current epoch of a source has lanes. The first record of a greater epoch fences the old lanes; their promises
carry over to the lanes that follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import sub

from highlevel.interface import Space
from highlevel.progress.promises.joint import JointPromises, joint_promises
from highlevel.progress.promises.values import ValuePromises
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import LaneLedger, Promise
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["LANES", "UPSTREAM_LANES", "Counters", "Lane", "Lanes", "accounted_losses", "loss_counters", "losses_before"]

Counters = tuple[int, int, int]
"""An epoch's cumulative `late`, `given_up` and `taints`."""


def loss_counters(counters: Mapping[str, int]) -> Counters:
    """The loss counters in a punctuation's ledger; a counter that is not named is 0."""
    return counters.get("late", 0), counters.get("given_up", 0), counters.get("taints", 0)


def accounted_losses(told: LaneLedger) -> Counters:
    """The same three counts, summed over what one punctuation reports."""
    late = given_up = 0
    for account in told.accounts:
        late, given_up = late + account.late, given_up + account.given_up
    return late, given_up, len(told.taints)


def losses_before(told: LaneLedger) -> Counters:
    """The losses that the epoch had reported before this punctuation."""
    late, given_up, taints = map(sub, loss_counters(told.counters), accounted_losses(told))
    return late, given_up, taints


@dataclass(slots=True)
class Lane:
    source: str
    epoch: int
    node: str
    kind: SourceKind
    sequence: int = -1  # the last sequence number seen
    promised: int = NEVER  # the first granule that the source may still send, in this epoch or an earlier one
    floor: int = NEVER  # below this, a finite source that began again repeats what it sent
    resumes: int | None = None  # the old promise of a live source that began again, until its coverage is known
    covered: bool = False  # whether the start of this epoch's coverage is known
    covered_ns: int | None = None  # start of the first epoch's coverage; None: unknown, or a finite source
    covers_from: int = NEVER  # the first granule that this epoch covers whole
    suspect: Reason | None = None  # why a punctuation may have been lost since the last one
    future: bool = False  # a record was refused as `future`, which explains missing tuples
    stopped: bool = False  # a live source has announced that this epoch sends nothing more
    counters: Counters = (0, 0, 0)
    joint: JointPromises = field(default_factory=JointPromises)  # joint promises of a bucket in this epoch
    values: ValuePromises = field(default_factory=ValuePromises)  # of this epoch; `LaneValues` stores them

    @property
    def ended(self) -> bool:
        """Whether the source has announced in this epoch that it sends nothing more."""
        return self.promised == FOREVER and self.floor != FOREVER

    def successor(self, epoch: int, kind: SourceKind) -> Lane:
        """The same source's lane in a later epoch."""
        finite = kind is SourceKind.FINITE
        return Lane(
            self.source, epoch, self.node, kind,
            promised=self.promised,
            floor=self.promised if finite else NEVER,
            resumes=None if finite else self.promised,
            covered_ns=self.covered_ns,
        )  # fmt: skip


class Lanes:
    """The lanes of a bucket, by source and node."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def find(self, source: str, node: str) -> Lane | None:
        return self._lanes.get((source, node))

    def promised(self, source: str, node: str) -> int:
        lane = self._lanes.get((source, node))
        return NEVER if lane is None else lane.promised

    def together(self, node: str, sources: Iterable[str]) -> list[Promise]:
        """The joint promises that hold for all of these sources' rows of the node."""
        lanes = (self._lanes.get((source, node)) for source in sources)
        return joint_promises([(lane.promised, lane.joint) if lane else (NEVER, JointPromises()) for lane in lanes])

    def valued(self) -> set[str]:
        """The nodes for which some lane has made a promise about values."""
        return {lane.node for lane in self if lane.values}

    def values(self, node: str, source: str) -> ValuePromises:
        lane = self._lanes.get((source, node))
        return ValuePromises() if lane is None else lane.values

    def fence(self, origin: Origin, kind: SourceKind) -> list[Lane]:
        """Note the record's epoch. A greater epoch than the source's current one ends the source's lanes, which new
        lanes replace. Returns the ended lanes in the order in which they began."""
        known = self._epochs.get(origin.source)
        if known is not None and origin.epoch <= known:
            return []
        self._epochs[origin.source] = origin.epoch
        ended = [lane for lane in self._lanes.values() if lane.source == origin.source]
        for lane in ended:
            self._lanes[lane.source, lane.node] = lane.successor(origin.epoch, kind)
        return ended

    def fenced(self, origin: Origin) -> bool:
        """Whether a later epoch of the record's source has begun."""
        return origin.epoch < self._epochs[origin.source]

    def by_source(self) -> Mapping[str, list[Lane]]:
        found: dict[str, list[Lane]] = {source: [] for source in self._epochs}
        for lane in self:
            found[lane.source].append(lane)
        return found

    def forget(self, source: str) -> None:
        """Forget the source as if it had never sent anything."""
        del self._epochs[source]
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.source != source}

    def enter(self, origin: Origin, sequence: int, kind: SourceKind) -> tuple[Lane, int | None]:
        """Check the sequence number of a record that is not fenced. Returns its lane and how many numbers before it are
        missing; None for a duplicate."""
        lane = self._lanes.get((origin.source, origin.node))
        if lane is None:
            lane = Lane(origin.source, origin.epoch, origin.node, kind)
            self._lanes[origin.source, origin.node] = lane
        if sequence <= lane.sequence:
            return lane, None
        missing = sequence - lane.sequence - 1
        lane.sequence = sequence
        return lane, missing

    def encode(self) -> bytes:
        lanes = [
            [
                lane.source, lane.epoch, lane.node, lane.kind.value, lane.sequence, lane.promised, lane.floor,
                lane.resumes, lane.covered, lane.covered_ns, lane.covers_from,
                lane.suspect and lane.suspect.value, lane.future, lane.stopped, lane.counters, lane.joint.rows(),
            ]
            for lane in self
        ]  # fmt: skip
        return json.dumps({"epochs": list(self._epochs.items()), "lanes": lanes}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Lanes:
        stored = json.loads(piece)
        lanes = cls()
        lanes._epochs = dict(map(tuple, stored["epochs"]))
        for source, epoch, node, kind, *rest, suspect, future, stopped, counters, joint in stored["lanes"]:
            lane = Lane(source, epoch, node, SourceKind(kind), *rest)
            lane.suspect = None if suspect is None else Reason(suspect)
            lane.future, lane.stopped = future, stopped
            lane.counters = tuple(counters)
            lane.joint = JointPromises(joint)
            lanes._lanes[source, node] = lane
        return lanes


LANES: Space[Lanes] = Space("lanes", Lanes.encode, Lanes.decode)
UPSTREAM_LANES: Space[Lanes] = Space("upstream lanes", Lanes.encode, Lanes.decode)
