"""The promises about values that the operators of a node have got, until its panes have ended."""

from __future__ import annotations

from highlevel.interface import State
from highlevel.progress.promises.log import PromiseLog
from highlevel.progress.promises.values import ValuePromises
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import NEVER

__all__ = ["ToldValues"]

_MOST = 1 << 18
"""Most promised values that the operators of a node get. No value is forgotten before the bound of its promise, because
a row that breaks it must be detected."""


class ToldValues:
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
