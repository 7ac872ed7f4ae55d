"""The audit of a local run: what became of every frame, and which windows are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from ingest.files.errors import Damage
from lowlevel.table_pressure import Crowded
from lowmark.app.console import counted
from lowmark.app.local.lossy_windows import LossyWindows
from lowmark.query.windows.window import Window
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from lowmark.wire.rows.values import show

__all__ = ["Audit"]


@dataclass(slots=True)
class Audit:
    """Frames: received = skipped + decoded, over all sources. Tuples: over all nodes. `window`: the window of the
    answer; None: it has none."""

    window: Window | None = None
    received: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # frames by reason
    decoded: int = 0
    filtered: int = 0
    late: int = 0
    dropped: int = 0  # frames of interfaces that the kernel had no room for
    rows: int = 0
    windows: int = 0  # that hold tuples (landmark: in their own slide)
    partial: int = 0  # windows that began before their sources
    lossy: LossyWindows = field(default_factory=LossyWindows)
    reasons: set[Reason] = field(default_factory=set)  # why the answer is lossy; empty: it is exact
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the counts do not include
    crowded: Crowded | None = None  # the table that is too small by most

    def complete(self, complete: Complete) -> None:
        landmark = complete.start is None  # each holds all of the one before, and has rows only if it holds more
        if complete.windows is not None and complete.merged and (complete.rows or not landmark):
            self.windows += 1
            self.partial += complete.verdict.partial
        self._found(complete, complete.verdict.reasons)

    def amend(self, amendment: Amendment) -> None:
        """Adds reasons that became known after the window was complete."""
        self._found(amendment, amendment.reasons)

    def _found(self, record: Complete | Amendment, reasons: frozenset[Reason]) -> None:
        self.reasons |= reasons
        if reasons and record.windows is not None:
            self.lossy.add(record.windows.first, record.windows.to, reasons)

    def show(self, console: Console) -> None:
        skipped = _counts(self.skipped)
        dropped = f"{self.dropped:,} frames dropped by the kernel; " if self.dropped else ""
        console.print(
            f"{dropped}{self.received:,} frames received, {sum(self.skipped.values()):,} skipped{skipped}; "
            f"{self.decoded:,} packets, {self.filtered:,} filtered, {self.late:,} late"
        )
        partial = f" ({self.partial:,} of them partial: they began before the capture)" if self.partial else ""
        windows = f"{counted(self.windows, 'window')}{partial}, " if self.windows else ""
        console.print(f"{windows}{counted(self.rows, 'row')}: {self._verdict()}")
        for line in self._lossy_windows():
            console.print(f"[bold red]lossy:[/] {line}")
        for note in self.notes:
            console.print(f"[yellow]note:[/] {escape(note)}")
        if self.crowded is not None:
            console.print(f"{self.crowded}; --table {self.crowded.wanted} would be faster; the answer stays the same")
        for damage in self.damage:
            console.print(f"[bold red]{damage.kind}:[/] {escape(str(damage))}")

    def _verdict(self) -> str:
        if not self.reasons:
            return "[bold green]exact[/]"
        count = self.lossy.count
        least = "at least " if self.lossy.at_least else ""
        of = f"{least}{counted(count, 'window')} " if count else ""
        return f"[bold red]{of}lossy: {_named(self.reasons)}[/]"

    def _lossy_windows(self) -> Iterator[str]:
        """The first lossy windows, and how many more there are."""
        for number, reasons in self.lossy.first:
            assert self.window is not None, "there are windows"
            start, end, kind = self.window.start(number), self.window.end(number), self.window.axis.kind
            yield f"{'the beginning' if start is None else show(kind, start)} … {show(kind, end)}: {_named(reasons)}"
        more = self.lossy.count - len(self.lossy.first)
        if more > 0:
            yield f"and {'at least ' if self.lossy.at_least else ''}{more:,} more"


def _named(reasons: Collection[Reason]) -> str:
    return ", ".join(reason.value for reason in Reason if reason in reasons)


def _counts(counts: Mapping[str, int]) -> str:
    named = [f"{name} {count:,}" for name, count in sorted(counts.items()) if count]
    return f" ({', '.join(named)})" if named else ""
