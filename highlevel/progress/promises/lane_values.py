"""Stores the lanes' promises about values in the state of a bucket."""

from __future__ import annotations

from highlevel.interface import State
from highlevel.progress.lanes import Lane, Lanes
from highlevel.progress.promises.log import Key, PromiseLog
from highlevel.progress.promises.values import MOST
from lowmark.wire.records.punctuations import Promise

__all__ = ["LaneValues"]


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


def _key(lane: Lane) -> Key:
    return lane.source, lane.node, lane.epoch
