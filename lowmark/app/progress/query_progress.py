"""The progress of a query, as `lowmark watch --progress` shows it. Names are those of its JSON and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lowmark.wire.records.json_fields import Json
from lowmark.wire.rows import values

__all__ = ["ROWS", "TIME", "OpenWindow", "QueryProgress", "SourceProgress", "Waiting"]

_NS = 10**9

Shown = int | str | None
"""An attribute value in the form that rows use."""


TIME, ROWS = "time", "rows"
"""What a window waits for when no source and no bucket holds it up."""


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS


def _time(ns: int | None) -> str | None:
    return None if ns is None else values.time(ns)


def _span(ns: int) -> str:
    """Seconds for people, rounded to tenths: a smaller difference changes no decision."""
    return f"{round(ns / _NS, 1):,.10g} s"


@dataclass(frozen=True, slots=True)
class Waiting:
    """`who`: a source or `the job`; or `time` or `rows` if the window lacks those: then nobody holds it up. `up_to`:
    how far a source has promised, or buckets have come. `behind_ns`: how far that is behind what is waited for.
    `heard_ns`: when a source promised last. `silent_ns`: how long ago that is."""

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
        """The text, short enough for part of a line."""
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
    """Bounds as rows show them; `start` is None for a landmark window. `early_rows`: rows that have left already, since
    their connections have closed."""

    start: Shown
    end: int | str
    waiting: tuple[Waiting, ...]
    early_rows: int = 0

    @property
    def json(self) -> Json:
        early: dict[str, Json] = {"early_rows": self.early_rows} if self.early_rows else {}
        return {"start": self.start, "end": self.end, "waiting": [item.json for item in self.waiting], **early}


_STATES = {
    "never seen": "never seen", "silent": "has promised nothing yet", "overdue": "overdue", "stopped": "has stopped",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """`state`: never seen; silent (has promised nothing in its present life); promising; overdue (has promised nothing
    for longer than its pane and 5 s); stopped; ended; excluded (no window waits for it); unlisted (configured, but the
    job neither waits for it nor counts it yet)."""

    source: str
    state: str
    promised_ns: int | None = None  # the least promise of its nodes; None: none, or it has ended
    behind_ns: int | None = None  # distance from the source that has promised most and has not ended
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
        """Text about the source that holds the frontier."""
        if self.silent_ns is None:
            return f"{self.source}, {_STATES[self.state]}"
        said = "" if self.state == "promising" else f"{_STATES[self.state]}, "
        return f"{self.source}, {said}last promise {_span(self.silent_ns)} ago"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The progress of one query. Counts cover the records that were read."""

    query: str
    complete_to: Shown  # complete up to here in all buckets; None: nothing is known to be complete
    frontier: str | None  # the least promise of its sources; None: one has promised nothing, or all have ended
    sources: tuple[SourceProgress, ...]
    tuples_ahead: int  # tuples beyond the frontier that sources have promised
    open: tuple[OpenWindow, ...]  # oldest first: the next one, and others that have begun
    open_windows: int | None  # upper bound of their number; None: not known, or no windows
    open_partitions: int | None  # partitions that hold them, if each numbers its rows; None: not known, or none does
    waiting: tuple[Waiting, ...]  # what the next window, or an answer without windows, waits for
    ended: bool  # all sources have ended
    rows: int
    tuples: int
    late: int
    dropped: int
    lossy_windows: int  # by completions and amendments, each counted once for all buckets

    @property
    def holders(self) -> tuple[SourceProgress, ...]:
        """The sources that hold the frontier: all that have promised nothing, else the one with the least promise."""
        unheard = tuple(at for at in self.sources if at.state in ("never seen", "silent"))
        promised = [at for at in self.sources if at.promised_ns is not None]
        return unheard or tuple(sorted(promised, key=lambda at: at.promised_ns or 0)[:1])

    @property
    def is_over(self) -> bool:
        """Whether all sources have ended and everything that they sent is answered."""
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
