"""Where a query stands, as `lowmark watch --progress` tells it: the names are those of its JSON and of its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lowmark.wire.records.json_fields import Json
from lowmark.wire.rows import values

__all__ = ["ROWS", "TIME", "OpenWindow", "QueryProgress", "SourceProgress", "Waiting"]

_NS = 10**9

Shown = int | str | None
"""A value of an attribute, as rows show it."""


TIME, ROWS = "time", "rows"
"""What windows wait for that nobody holds up."""


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS


def _time(ns: int | None) -> str | None:
    return None if ns is None else values.time(ns)


def _span(ns: int) -> str:
    """For people: what is below a tenth of a second they do not act on."""
    return f"{round(ns / _NS, 1):,.10g} s"


@dataclass(frozen=True, slots=True)
class Waiting:
    """`who`: a source, `the job`, or `time` or `rows` where the window is short of them: then nobody holds it up.
    `up_to`: how far a source has promised, or buckets have come; `behind_ns`: how far that is behind what is waited
    for. `heard_ns`: when a source promised last; `silent_ns`: how long ago that is."""

    who: str
    why: str
    up_to: Shown = None
    behind_ns: int | None = None
    heard_ns: int | None = None
    silent_ns: int | None = field(default=None, compare=False)  # as time goes on nothing has changed

    @property
    def healthy(self) -> bool:
        return self.who in (TIME, ROWS)

    @property
    def text(self) -> str:
        if self.who == TIME and self.behind_ns is not None:
            return f"{self.who}: {_span(self.behind_ns)} more must come"
        parts = [] if self.up_to is None else [f"up to {self.up_to}"]
        parts += [] if self.behind_ns is None else [f"{_span(self.behind_ns)} behind"]
        parts += [] if self.silent_ns is None else [f"last promise {_span(self.silent_ns)} ago"]
        return f"{self.who}: {self.why}" + (f" ({', '.join(parts)})" if parts else "")

    @property
    def brief(self) -> str:
        """In less than a line."""
        if self.who == TIME or self.silent_ns is None:
            return replace(self, up_to=None).text
        return f"{self.who}: {self.why} (last promise {_span(self.silent_ns)} ago)"

    @property
    def json(self) -> Json:
        return {
            "who": self.who, "why": self.why, "up_to": self.up_to, "behind_s": _seconds(self.behind_ns),
            "heard": _time(self.heard_ns),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Its bounds as rows show them; `start` is None of a landmark window."""

    start: Shown
    end: int | str
    waiting: tuple[Waiting, ...]

    @property
    def json(self) -> Json:
        return {"start": self.start, "end": self.end, "waiting": [item.json for item in self.waiting]}


_STATES = {
    "never seen": "never seen", "silent": "has promised nothing yet", "overdue": "overdue", "stopped": "has stopped",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """`state`: never seen, silent (it has promised nothing in its present life), promising, overdue (it has promised
    nothing for longer than its pane), stopped or ended; or unlisted: it is configured, and the job, which began without
    it, neither waits for it nor counts it."""

    source: str
    state: str
    promised_ns: int | None = None  # the least of what its nodes have; None: nothing, or it has ended
    behind_ns: int | None = None  # the query's source that has promised most, and has not ended
    heard_ns: int | None = None  # when its last promise was written
    silent_ns: int | None = field(default=None, compare=False)  # how long ago that is

    @property
    def json(self) -> Json:
        return {
            "source": self.source, "state": self.state, "promised": _time(self.promised_ns),
            "behind_s": _seconds(self.behind_ns), "heard": _time(self.heard_ns),
        }  # fmt: skip

    @property
    def text(self) -> str:
        """What there is to say of the source that holds the frontier."""
        if self.silent_ns is None:
            return f"{self.source}, {_STATES[self.state]}"
        said = "" if self.state == "promising" else f"{_STATES[self.state]}, "
        return f"{self.source}, {said}last promise {_span(self.silent_ns)} ago"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Counts are over the records that were read."""

    query: str
    complete_to: Shown  # in all buckets; None: nothing is known to be complete
    frontier: str | None  # the least promise of its sources; None: one has promised nothing, or all have ended
    sources: tuple[SourceProgress, ...]
    tuples_ahead: int  # tuples beyond the frontier that sources have promised
    open: tuple[OpenWindow, ...]  # the oldest first: the next one, and those that have begun besides
    open_windows: int | None  # how many of them there are at most; None: not known, or there are no windows
    open_partitions: int | None  # of so many partitions, where each numbers its rows; None: not known, or none does
    waiting: tuple[Waiting, ...]  # what the next window waits for, or the answer where it has no windows
    ended: bool  # all sources have
    rows: int
    tuples: int
    late: int
    dropped: int
    lossy_windows: int  # by completions and amendments, each once for all buckets

    @property
    def holders(self) -> tuple[SourceProgress, ...]:
        """The sources that hold the frontier: those that have promised nothing, else the one that has promised
        least."""
        unheard = tuple(at for at in self.sources if at.state in ("never seen", "silent"))
        promised = [at for at in self.sources if at.promised_ns is not None]
        return unheard or tuple(sorted(promised, key=lambda at: at.promised_ns or 0)[:1])

    @property
    def is_over(self) -> bool:
        """All sources have ended, and all that they sent is answered."""
        return self.ended and not self.waiting and not self.open

    @property
    def json(self) -> dict[str, Json]:
        return {
            "query": self.query,
            "complete_to": self.complete_to,
            "frontier": self.frontier,
            "sources": _json(self.sources),
            "tuples_ahead": self.tuples_ahead,
            "open": _json(self.open),
            "open_windows": self.open_windows,
            "open_partitions": self.open_partitions,
            "waiting": _json(self.waiting),
            "ended": self.ended,
            "rows": self.rows,
            "tuples": self.tuples,
            "late": self.late,
            "dropped": self.dropped,
            "lossy_windows": self.lossy_windows,
        }


def _json(items: Sequence[SourceProgress | OpenWindow | Waiting]) -> Json:
    return [item.json for item in items]
