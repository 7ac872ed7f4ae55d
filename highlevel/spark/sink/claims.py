"""A run's claim on its buckets and queries, made by the driver when it starts: from then on, no other process of any
host writes their results. It is judged before: until `fence`, nobody is disturbed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TypeVar

from highlevel.spark.errors import TakenOver
from highlevel.spark.sink.transaction import Fenced, Note, Place, Transactions, Undone, at_once
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import KafkaSettings, KafkaUnavailable

__all__ = ["Claims"]

R = TypeVar("R")
S = TypeVar("S")


class Claims:
    """Of one run, or of its renewal. Nothing is held in between: producers of the workers fence those that it has
    opened."""

    def __init__(self, settings: KafkaSettings, timeout_s: float, watchdog: Watchdog) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._watchdog = watchdog
        self._open: dict[str, Transactions] = {}

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.clear()

    def fence(self, places: Collection[Place]) -> Mapping[str, Note | None]:
        """Fence whoever writes there, and read what has been written."""

        def opened(place: Place) -> tuple[str, Note | None]:
            transactions = Transactions(self._settings, place, self._timeout_s, self._watchdog)
            transactions.warm()
            note = transactions.open()
            self._open[place.name] = transactions
            return place.name, note

        return dict(self._each(opened, places))

    def write(self, notes: Mapping[str, Note]) -> None:
        """Write the notes of places that have been fenced."""

        def written(name: str) -> None:
            self._open[name].write([], notes[name])

        self._each(written, list(notes))

    def _each(self, work: Callable[[S], R], subjects: Collection[S]) -> list[R]:
        try:
            return at_once(work, subjects)
        except Fenced as fenced:
            raise TakenOver(f"another process has begun to write as {fenced}: this one ends") from None
        except Undone as undone:
            raise KafkaUnavailable(str(undone)) from None
