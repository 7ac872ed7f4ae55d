"""What happens to processes on their way to the broker: calls get lost, answers get lost, processes die, others go on.

An interruption waits for a call by its name and happens once. While a call is under way, other processes can go on:
that is how a process becomes a zombie, which goes on when another has taken its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["How", "Interruption", "Killed", "Network", "Process"]


class How(StrEnum):
    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    LOST = "the request is lost"
    UNANSWERED = "it is done, and the answer is lost"
    REPEATED = "it is done, and a copy of the request is held up on the way"
    REFUSED = "the broker says that the transaction must be undone"
    OTHERS_GO_ON = "others go on meanwhile"
    SLEEPS = "the process sleeps for 70 s, and others go on"


class Killed(BaseException):
    """The process that makes the call is dead. No code of it may go on."""


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True

    def __repr__(self) -> str:
        return self.name


@dataclass
class Interruption:
    call: str
    after: int  # so many calls of this name
    how: How
    events: int = 0  # that happen meanwhile
    work: Callable[[], None] | None = None  # that is done meanwhile


class Network:
    """`meanwhile` lets so many events happen, `sleep` so many seconds pass, `tell` says what happened."""

    def __init__(
        self, meanwhile: Callable[[int], None], sleep: Callable[[float], None], tell: Callable[[str], None]
    ) -> None:
        self._meanwhile = meanwhile
        self._sleep = sleep
        self._tell = tell
        self._waiting: list[Interruption] = []
        self._running: list[Process] = []
        self.slow_s = 0.0  # that every record of a transaction takes

    @property
    def current(self) -> Process:
        return self._running[-1]

    def busy(self, process: Process) -> bool:
        return process in self._running

    @contextmanager
    def running(self, process: Process) -> Iterator[None]:
        """In this block the process runs. If it was killed meanwhile, nothing else of it happens."""
        self._running.append(process)
        try:
            yield
            self.check(process)
        finally:
            self._running.pop()

    def check(self, process: Process) -> None:
        if not process.alive:
            raise Killed

    def arm(self, interruption: Interruption) -> None:
        self._waiting.append(interruption)

    def disarm(self, interruption: Interruption | None = None) -> None:
        """This one, or all."""
        self._waiting = [each for each in self._waiting if interruption is not None and each is not interruption]

    def call(self, process: Process, name: str) -> How | None:
        """What happens to this call. The caller does what `How` says of the broker's part."""
        self.check(process)
        for interruption in self._waiting:
            if interruption.call == name:
                if interruption.after:
                    interruption.after -= 1
                    return None
                self._waiting.remove(interruption)
                return self._happen(process, name, interruption)
        return None

    def _happen(self, process: Process, name: str, interruption: Interruption) -> How | None:
        how = interruption.how
        self._tell(f"{process} calls {name}: {how.value}")
        if how is How.DIES_BEFORE:
            process.alive = False
        elif how in (How.OTHERS_GO_ON, How.SLEEPS):
            if how is How.SLEEPS:
                self._sleep(70.0)
            if interruption.work is not None:
                interruption.work()
            self._meanwhile(interruption.events)
        self.check(process)
        return how

    def die(self, process: Process) -> None:
        process.alive = False
        raise Killed
