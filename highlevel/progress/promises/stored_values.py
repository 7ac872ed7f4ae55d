"""The promises about values in the state of a bucket: those of its lanes, and those that its operators have got."""

from __future__ import annotations

from highlevel.interface import State
from highlevel.progress.lanes import Lane, Lanes
from highlevel.progress.promises.log import Key, PromiseLog
from highlevel.progress.promises.values import MOST, ValuePromises
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import NEVER

__all__ = ["LaneValues", "ToldValues"]

_MOST = 1 << 18
"""Most promised values that the operators of a node get. No value is forgotten before the bound of its promise, because
a row that breaks it must be detected."""


class LaneValues:
    """Loads the values of these lanes from the state, and stores additions."""

    def __init__(self, state: State, name: str, lanes: Lanes) -> None:
        self._lanes = lanes
        self._log = PromiseLog(state, name, MOST)
        for key, stored in self._log.entries():
            if (lane := self._lane(key)) is not None:
                lane.values = lane.values.joined(stored)
                lane.values.lost = False
        for lane in lanes:
            lane.values.prune(lane.promised)

    def add(self, lane: Lane, promise: Promise) -> None:
        """Note a promise that the lane has taken."""
        self._log.add(_key(lane), promise)

    def save(self) -> None:
        """Store the additions; or everything, if a lane has lost promises to make room."""
        lost = [lane for lane in self._lanes if lane.values.lost]
        self._log.save(self._silent, {_key(lane): lane.values for lane in self._lanes if lane.values} if lost else None)
        for lane in lost:
            lane.values.lost = False

    def _silent(self, key: Key, until: int) -> bool:
        lane = self._lane(key)
        return lane is None or until <= lane.promised

    def _lane(self, key: Key) -> Lane | None:
        source, node, epoch = key
        lane = self._lanes.find(str(source), str(node))
        return lane if lane is not None and lane.epoch == epoch else None


class ToldValues:
    """The promises that the operators of a node have got, until its panes have ended."""

    def __init__(self, state: State, node: str) -> None:
        self.promises = ValuePromises(_MOST)
        self._log = PromiseLog(state, f"values.{node}", _MOST)
        self._front = NEVER
        for _, stored in self._log.entries():
            self.promises = self.promises.joined(stored)

    def take(self, promise: Promise) -> bool:
        """Keep a promise. False: there is no room, so the operators must not get it."""
        (named,) = (bound for bound in promise.bounds if bound.values is not None)
        if named.values is None or len(named.values) > self.promises.room(named.columns):
            return False
        self._log.add((), promise)
        return self.promises.take(promise)

    def prune(self, front: int) -> None:
        self.promises.prune(front)
        self._front = front

    def save(self) -> None:
        self._log.save(lambda _, until: until <= self._front)


def _key(lane: Lane) -> Key:
    return lane.source, lane.node, lane.epoch
