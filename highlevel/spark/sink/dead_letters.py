"""How many dead letters a bucket writes: so many of a reason in a micro-batch, and in an hour of the topic's time.

Records say when Kafka took them, so a batch that is run again decides the same. What is beyond the limits is counted
alone (`lowmark_dead_letters_total`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from highlevel.interface import ONLY, Space, State
from lowmark.wire.records.record import BadReason

__all__ = ["DeadLetters"]

_IN_A_BATCH = 20
_IN_AN_HOUR = 200
_HOUR_US = 3600 * 10**6


@dataclass(slots=True)
class _Hours:
    """By reason: the last hour with a dead letter, and how many were written in it."""

    written: dict[str, tuple[int, int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(self.written, sort_keys=True).encode()

    @classmethod
    def decode(cls, piece: bytes) -> _Hours:
        return cls({reason: (hour, count) for reason, (hour, count) in json.loads(piece).items()})


_HOURS: Space[_Hours] = Space("dead", _Hours.encode, _Hours.decode)


class DeadLetters:
    """Of one bucket in one micro-batch."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.counts: dict[BadReason, int] = {}
        """In this micro-batch, written or not."""

    def admit(self, reason: BadReason, appended_us: int) -> bool:
        """Count a bad record; whether it is written."""
        self.counts[reason] = count = self.counts.get(reason, 0) + 1
        if count > _IN_A_BATCH:
            return False
        hours = self._state.get(_HOURS, ONLY) or _Hours()
        hour, written = hours.written.get(reason.value, (0, 0))
        now = max(hour, appended_us // _HOUR_US)
        written = written if now == hour else 0
        if written >= _IN_AN_HOUR:
            return False
        hours.written[reason.value] = now, written + 1
        self._state.put(_HOURS, ONLY, hours)
        return True
