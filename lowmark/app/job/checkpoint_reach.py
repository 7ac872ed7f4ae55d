"""Whether the place of the checkpoint takes files. Spark itself tries for minutes before it gives up, and says nothing
meanwhile: results go on to be written, and no micro-batch ends.

It is asked only while the query neither hands on a batch nor waits for records, so that a healthy job costs no
requests. Only this module reports such an outage: one line after seconds, one a minute, and one when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge

from lowmark.helpers import Helper

__all__ = ["CheckpointReach"]

_LOG = logging.getLogger("lowmark.job")

_LOOK_EVERY_S = 1.0
_STANDS_STILL_S = 5.0  # a query for so long: then the place is asked, and again as often
_ANSWER_WITHIN_S = 5.0
_TOLD_AGAIN_S = 60.0


class _Query(Protocol):
    @property
    def turns(self) -> int: ...
    @property
    def waits(self) -> bool: ...
    def refusal(self) -> str | None: ...


class CheckpointReach:
    """Inactive until `start`; `helper` is the thread that asks. Call `look` now and then from a thread that does not
    wait for the place: `helper` may. Counts the place as answering until it finds otherwise."""

    def __init__(self, place: str, registry: CollectorRegistry, now_s: Callable[[], float] = time.monotonic) -> None:
        self.helper = Helper("checkpoint", self._run)
        self._place = place
        self._now_s = now_s
        self._query: _Query | None = None
        self._asked_s: float | None = None  # since when it has not answered
        self._failing: tuple[str, float] | None = None  # why, and since when
        self._told_s: float | None = None  # when the outage was last logged; None: there is none
        unreachable = Gauge(
            "lowmark_checkpoint_unreachable_seconds",
            "Seconds for which the place of the checkpoint has taken no file; 0 while it takes them.",
            registry=registry,
        )  # fmt: skip
        unreachable.set_function(lambda: 0.0 if (found := self._problem) is None else now_s() - found[1])

    def start(self, query: _Query) -> None:
        self._query = query
        self.helper.start()

    @property
    def ok(self) -> bool:
        return self._problem is None

    @property
    def detail(self) -> dict[str, str]:
        """Text for the readiness page."""
        found = self._problem
        return {} if found is None else {"checkpoint": self._sentence(found)}

    def look(self) -> None:
        """Log what is to be said."""
        found, now_s = self._problem, self._now_s()
        if found is None:
            if self._told_s is not None:
                _LOG.warning("the checkpoint at %s takes files again", self._place)
                self._told_s = None
        elif self._told_s is None or now_s - self._told_s >= _TOLD_AGAIN_S:
            self._told_s = now_s
            _LOG.warning(
                "the checkpoint at %s %s. Results are written, but no micro-batch ends until it does. Nothing is lost",
                self._place, self._sentence(found),
            )  # fmt: skip

    def _sentence(self, found: tuple[str, float]) -> str:
        return f"has taken no file for {self._now_s() - found[1]:.0f} s: {found[0]}"

    @property
    def _problem(self) -> tuple[str, float] | None:
        """Why it takes no files, and since when."""
        failing, asked_s = self._failing, self._asked_s
        if failing is None and asked_s is not None and self._now_s() - asked_s > _ANSWER_WITHIN_S:
            return "it does not answer", asked_s
        return failing

    def _run(self, stopping: threading.Event) -> None:
        query, seen, since_s = self._query, -1, self._now_s()
        assert query is not None, "not started"
        while not stopping.wait(_LOOK_EVERY_S):
            turns = query.turns
            if turns != seen or query.waits:
                seen, since_s, self._failing = turns, self._now_s(), None
            elif self._now_s() - since_s > _STANDS_STILL_S:
                self._ask(query)
                since_s = self._now_s()

    def _ask(self, query: _Query) -> None:
        self._asked_s = began_s = self._now_s()
        refusal = query.refusal()
        if refusal is None:
            self._failing = None
        else:
            self._failing = refusal, began_s if self._failing is None else self._failing[1]
        self._asked_s = None
