"""The range of results to watch: `--since`, `--until`."""

from __future__ import annotations

from dataclasses import dataclass

from lowmark.app.errors import OutputError
from lowmark.app.local.late_lines import LateNews
from lowmark.app.watch.window_board import FinishedWindow
from lowmark.query.expr.constants import parse_time
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Complete
from lowmark.wire.rows import values
from lowmark.wire.rows.schema import Kind

__all__ = ["EVERYTHING", "Edge", "WatchRange", "edge_of"]


@dataclass(frozen=True, slots=True)
class Edge:
    kind: Kind
    value: int


def edge_of(text: str, option: str) -> Edge:
    """Parses a time, or a row number for windows over rows. OutputError for anything else."""
    if text.isdecimal():
        return Edge(Kind.INT, int(text))
    try:
        return Edge(Kind.TIME, int(parse_time(text).value or 0))
    except ValueError:
        what = "a time such as 2024-05-01T12:00:00Z, or a row's number where windows are over rows"
        raise OutputError(f"{option} {text!r}: it takes {what}") from None


@dataclass(frozen=True, slots=True)
class WatchRange:
    """Windows that begin at `since` or later and end at `until` or earlier; landmark windows that end after `since`;
    rows without windows whose completion lies at least partly between. None: no limit on that side."""

    since: Edge | None = None
    until: Edge | None = None

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    def check(self, complete: Complete) -> None:
        for option, edge in (("--since", self.since), ("--until", self.until)):
            if edge is not None and edge.kind is not complete.kind:
                kinds = {Kind.TIME: "a time", Kind.INT: "a row's number"}
                raise OutputError(
                    f"{option}: results of {complete.query} go by {complete.attribute}: it takes {kinds[complete.kind]}"
                )

    def shows(self, event: ResultRow | FinishedWindow | LateNews) -> bool:
        match event:
            case FinishedWindow():
                return self.holds(event)
            case ResultRow():
                return not self  # its window decides whether it is in the range
        return self.touches(event)

    def holds(self, window: FinishedWindow) -> bool:
        start, end = window.start, window.end
        if window.window is None:  # its rows may be of any time between
            return (self.since is None or end > self.since.value) and (
                self.until is None or start is None or start < self.until.value
            )
        begun = self.since is None or (end > self.since.value if start is None else start >= self.since.value)
        return begun and (self.until is None or end <= self.until.value)

    def touches(self, news: LateNews) -> bool:
        """Whether any part of it lies in the range."""
        start, end = _value(news.start), _value(news.end)
        above = self.since is None or end is None or end > self.since.value
        return above and (self.until is None or start is None or start < self.until.value)

    def is_over(self, complete_to: int | None) -> bool:
        """Whether all buckets are complete up to `until`."""
        return self.until is not None and complete_to is not None and complete_to >= self.until.value


EVERYTHING = WatchRange()


def _value(shown: int | str | None) -> int | None:
    return values.parse_time(shown) if isinstance(shown, str) else shown
