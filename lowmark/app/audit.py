"""The audit of a local run: what became of every frame, and which windows can say that they are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from ingest.damage import Damage
from lowlevel.pressure import Crowded
from lowmark.wire.results import Complete, Reason

__all__ = ["Audit"]


@dataclass(slots=True)
class Audit:
    """Frames: received = skipped + decoded, over all sources. Tuples: of all nodes together."""

    received: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # frames by reason
    decoded: int = 0
    filtered: int = 0
    late: int = 0
    dropped: int = 0  # frames that the kernel had no room for, of interfaces
    rows: int = 0
    windows: int = 0  # that hold tuples
    partial: int = 0  # of those, the ones that began before their sources
    lossy: int = 0
    reasons: Counter[Reason] = field(default_factory=Counter)
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of what the counts leave out
    crowded: Crowded | None = None  # of the tables that are too small, the one that is by most

    def complete(self, complete: Complete) -> None:
        if complete.windows is not None and (complete.merged or not complete.verdict.exact):
            self.windows += 1
            self.partial += complete.verdict.partial
        if not complete.verdict.exact:
            self.lossy += 1
            self.reasons.update(complete.verdict.reasons)

    def show(self, console: Console) -> None:
        skipped = _counts(self.skipped)
        dropped = f"{self.dropped:,} frames dropped by the kernel; " if self.dropped else ""
        console.print(
            f"{dropped}{self.received:,} frames received, {sum(self.skipped.values()):,} skipped{skipped}; "
            f"{self.decoded:,} packets, {self.filtered:,} filtered, {self.late:,} late"
        )
        partial = f" ({self.partial:,} of them partial: begun before the capture was)" if self.partial else ""
        windows = f"{self.windows:,} windows{partial}, " if self.windows else ""
        console.print(f"{windows}{self.rows:,} rows: {self._verdict()}")
        for note in self.notes:
            console.print(f"[yellow]note:[/] {escape(note)}")
        if self.crowded is not None:
            console.print(f"{self.crowded}; --table {self.crowded.wanted} would be faster, the answer is the same")
        for damage in self.damage:
            console.print(f"[bold red]{damage.kind}:[/] {escape(str(damage))}")

    def _verdict(self) -> str:
        if not self.lossy:
            return "[bold green]exact[/]"
        reasons = ", ".join(reason.value for reason in Reason if reason in self.reasons)
        of = f"{self.lossy:,} of them " if self.windows else ""
        return f"[bold red]{of}lossy: {reasons}[/]"


def _counts(counts: Mapping[str, int]) -> str:
    named = [f"{name} {count:,}" for name, count in sorted(counts.items()) if count]
    return f" ({', '.join(named)})" if named else ""
