"""Threads beside the main one. None ends unnoticed: a thread that cannot go on for the moment starts again, and one
that cannot go on at all ends the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Backoff", "Helper", "HelperEnded"]

_LOG = logging.getLogger("lowmark.helpers")

_LONGEST_S = 30.0


class Backoff:
    """Waits that start at `first_s` and double, up to 30 s."""

    def __init__(self, first_s: float = 1.0) -> None:
        self._first_s = first_s
        self._next_s = first_s

    def next_s(self) -> float:
        waited, self._next_s = self._next_s, max(self._first_s, min(2 * self._next_s, _LONGEST_S))
        return waited

    def reset(self) -> None:
        self._next_s = self._first_s


class HelperEnded(Exception):
    """A thread that the process needs has ended; the message names it and the reason."""

    exit_code = 1


class Helper:
    """Runs `run` in its own thread until `stop`. `run` must return when the event that it gets is set.

    If `run` raises an exception of a kind in `passing`, it starts again, each time after a longer wait. If it ends in
    any other way, `failure` and `check` report this from then on; the main thread has to ask now and then.
    """

    def __init__(
        self, name: str, run: Callable[[threading.Event], None], passing: tuple[type[Exception], ...] = ()
    ) -> None:
        self.name = name
        self.failure: HelperEnded | None = None
        self.restarts = 0  # after a failure that passed
        self._run = run
        self._passing = passing
        self._trouble: Exception | None = None  # the reason while it waits to start again
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float | None = None) -> None:
        """Stop the thread and wait until it has ended, or for as long as given; do nothing if it was not started."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def check(self) -> None:
        """Raise HelperEnded if the thread has ended without `stop`."""
        if self.failure is not None:
            raise self.failure

    @property
    def running(self) -> bool:
        """Whether it does its work: not before `start`, after its end, or while it waits to start again."""
        return self._thread.is_alive() and self._trouble is None and self.failure is None

    @property
    def state(self) -> str:
        """The thread's line on the health page."""
        if self.failure is not None:
            return str(self.failure)
        if self._trouble is not None:
            return f"starts again in a moment: {self._trouble}"
        if self._thread.is_alive():
            return "running"
        return "not started" if self._thread.ident is None else "stopped"

    def _supervise(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._run(self._stopping)
            except self._passing as error:
                if time.monotonic() - began > _LONGEST_S:
                    backoff.reset()
                self._trouble = error
                wait_s = backoff.next_s()
                _LOG.warning("the thread %r starts again in %.0f s: %s", self.name, wait_s, error)
                self._stopping.wait(wait_s)
                self._trouble = None
                self.restarts += 1
            except BaseException as error:  # any other error would end the thread unnoticed
                self._end(f"{type(error).__name__}: {error}", error)
                return
            else:
                if not self._stopping.is_set():
                    self._end("it came to its end", None)
                return

    def _end(self, reason: str, error: BaseException | None) -> None:
        failure = HelperEnded(
            f"the thread {self.name!r} has ended, and this process does not go on without it: {reason}"
        )
        failure.__cause__ = error
        _LOG.critical("%s", failure, exc_info=error)
        self.failure = failure
