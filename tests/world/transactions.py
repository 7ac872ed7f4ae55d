"""The simulated broker's coordinators: transactional ids with their epochs, transactions, and the offsets of groups.

As Kafka does it for clients without KIP-890: the epoch changes only when a producer begins, or its transaction takes
too long. So a request to end a transaction that was held up on the way ends the next one of the same producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.world.clock import Clock
from tests.world.log import Log, Place, Transaction

__all__ = ["Coordinator", "Fenced", "NoTransaction", "Unstable"]


class Fenced(Exception):
    """A later producer has the transactional id, or the transaction has taken too long."""


class NoTransaction(Exception):
    """There is no transaction to end, or it has ended in the other way."""


class Unstable(Exception):
    """A transaction that has not ended may change the offsets."""


@dataclass
class _Id:
    producer: int
    timeout_s: float
    epoch: int = -1
    transaction: Transaction | None = None
    last: bool | None = None  # how its last transaction ended, in this epoch


@dataclass(slots=True)
class _EndRequest:
    name: str
    epoch: int
    commit: bool
    after: int  # more requests of the same producer


@dataclass
class Coordinator:
    log: Log
    clock: Clock
    _ids: dict[str, _Id] = field(default_factory=dict)
    _groups: dict[str, dict[Place, tuple[int, str]]] = field(default_factory=dict)
    _unmarked: list[Transaction] = field(default_factory=list)  # decided, and not all markers are written
    _held_up: list[_EndRequest] = field(default_factory=list)
    _producers: int = 0
    torn: list[str] = field(default_factory=list)  # ids whose transaction a held-up request has committed
    holds_markers: bool = False  # for the next transaction that ends

    def producer(self) -> int:
        self._producers += 1
        return self._producers

    def begin(self, name: str, timeout_s: float) -> tuple[int, int]:
        """The producer and its epoch. Whoever had the id before is fenced, and its transaction is undone."""
        self.look()
        self.write_markers()
        known = self._ids.setdefault(name, _Id(self.producer(), timeout_s))
        self._undo(known)
        known.epoch += 1
        known.last = None
        known.timeout_s = timeout_s
        return known.producer, known.epoch

    def transaction(self, name: str, epoch: int) -> Transaction:
        """The transaction under way; the first record begins one."""
        known = self._known(name, epoch)
        for request in [each for each in self._held_up if each.name == name]:
            request.after -= 1
            if request.after < 0:
                self._held_up.remove(request)
                self._arrive(request)
        if known.transaction is None:
            self.write_markers()
            known.transaction = Transaction(self.clock.monotonic())
        return known.transaction

    def under_way(self, name: str) -> bool:
        return self._ids[name].transaction is not None

    def join(self, transaction: Transaction, place: Place) -> None:
        if place not in transaction.places:
            transaction.places.append(place)

    def end(self, name: str, epoch: int, commit: bool) -> None:
        known = self._known(name, epoch)
        if known.transaction is None:
            if known.last is None or known.last == commit:
                return  # it was answered before, or nothing was sent
            raise NoTransaction
        transaction, known.transaction = known.transaction, None
        known.last = commit
        self._decide(transaction, commit)

    def hold_up(self, name: str, epoch: int, commit: bool, after: int) -> None:
        """A copy of a request to end a transaction is under way. It arrives after so many more of the producer."""
        self._held_up.append(_EndRequest(name, epoch, commit, after))

    def let_arrive(self) -> None:
        """All that was held up arrives. What it does, its sender does not hear."""
        arrived, self._held_up = self._held_up, []
        for request in arrived:
            self._arrive(request)

    def _arrive(self, request: _EndRequest) -> None:
        known = self._ids[request.name]
        if known.epoch != request.epoch or known.transaction is None:
            return
        transaction, known.transaction = known.transaction, None
        known.last = request.commit
        if request.commit:
            self.torn.append(request.name)
        self._decide(transaction, request.commit)

    def look(self) -> None:
        """Undo transactions that have taken too long: their producers are fenced."""
        for known in self._ids.values():
            under_way = known.transaction
            if under_way is not None and self.clock.monotonic() - under_way.begun_s > known.timeout_s:
                self._undo(known)
                known.epoch += 1

    def write_markers(self) -> None:
        """Write the markers that are missing: until then readers see a part of a transaction."""
        while self._unmarked:
            transaction = self._unmarked.pop()
            for place in transaction.open_places:
                self.log[place].mark(transaction, self.clock.now_ns)
            for group, offsets in transaction.offsets.items() if transaction.committed else ():
                self._groups.setdefault(group, {}).update(offsets)

    def offsets(self, group: str, places: list[Place], stable: bool) -> dict[Place, tuple[int, str]]:
        """What the group has committed there. Raises Unstable if a transaction is under way that may change it."""
        self.look()
        under_way = [known.transaction for known in self._ids.values() if known.transaction is not None]
        if stable and any(
            place in each.offsets.get(group, {}) for each in (*under_way, *self._unmarked) for place in places
        ):
            raise Unstable
        known = self._groups.get(group, {})
        return {place: known[place] for place in places if place in known}

    def commit(self, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        self._groups.setdefault(group, {}).update(offsets)

    def forget(self) -> None:
        """The offsets of all groups are too old."""
        self._groups.clear()

    def _known(self, name: str, epoch: int) -> _Id:
        self.look()
        known = self._ids[name]
        if known.epoch != epoch:
            raise Fenced
        return known

    def _undo(self, known: _Id) -> None:
        if known.transaction is not None:
            transaction, known.transaction = known.transaction, None
            self._decide(transaction, False)

    def _decide(self, transaction: Transaction, commit: bool) -> None:
        transaction.committed = commit
        transaction.open_places = list(transaction.places)
        self._unmarked.append(transaction)
        if self.holds_markers and len(transaction.places) > 1:
            self.holds_markers = False
            self.log[transaction.open_places.pop(0)].mark(transaction, self.clock.now_ns)
            return
        self.write_markers()
