"""The end of a capture: sends Kafka the remaining records, and reports those that it did not take."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from lowlevel.emitter import Emitter
from lowmark.app.errors import EnvironmentNotReady

__all__ = ["PATIENCE_S", "check_all_sent", "wait_until_sent"]

_LOG = logging.getLogger("lowmark.capture")

PATIENCE_S = 60.0
_LOOK_EVERY_S = 1.0


def wait_until_sent(
    emitter: Emitter, bootstrap: str, now_s: Callable[[], float] = time.monotonic,
    moved: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Waits until Kafka has taken all records, or has taken none for a minute (all of them may take longer). If
    the wait takes more than a second, logs what is waited for and how long. Calls `moved` when records were taken."""
    sent, since_s, told = _sent(emitter), now_s(), False
    while not emitter.drained(_LOOK_EVERY_S):
        if not told:
            told = True
            _LOG.warning(
                "the capture has ended, and waits for Kafka at %s to take its last %d records: until it has taken "
                "them, or none for %.0f s",
                bootstrap, sum(state.queued_records for state in emitter.states()),
                PATIENCE_S,
            )  # fmt: skip
        arrived = _sent(emitter)
        if arrived > sent:
            sent, since_s = arrived, now_s()
            moved()
        elif now_s() - since_s >= PATIENCE_S:
            return


def check_all_sent(emitter: Emitter) -> None:
    """Raises EnvironmentNotReady if records are left."""
    left = [state for state in emitter.states() if state.queued_records]
    if left:
        raise EnvironmentNotReady(
            f"Kafka did not take the last {sum(state.queued_records for state in left)} records: it took none for "
            f"{PATIENCE_S:.0f} s",
            "these records are lost, and their windows will be lossy. Repair the broker before the next start",
            tuple(f"topic {state.topic}: {state.queued_records} records: {state.failing or 'slow'}" for state in left),
        )


def _sent(emitter: Emitter) -> int:
    return sum(state.records for state in emitter.states())
