"""Outputs and counts collected until the end of the micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from highlevel.progress.outputs import Counts, Forward, Outcome, Output, Rejection, ResultRows
from highlevel.progress.records import Batch
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason

__all__ = ["Tally"]


class Tally:
    """Collects outputs and counts; the public counters are those of `Counts`."""

    def __init__(self) -> None:
        self.rows_in = 0
        self.merged = 0
        self.late = 0
        self.late_here = 0
        self.duplicates = 0
        self.gaps = 0
        self.fenced = 0
        self.replayed = 0
        self.unlisted = 0
        self._dead: Counter[BadReason] = Counter()
        self._rows_out: Counter[str] = Counter()
        self._exchanged: Counter[str] = Counter()
        self._late_rows: Counter[str] = Counter()
        self._corrections: Counter[str] = Counter()
        self._windows: Counter[tuple[str, Reason | None]] = Counter()
        self._amended: Counter[tuple[str, Reason]] = Counter()
        self._shed: Counter[tuple[str, Reason]] = Counter()
        self._outputs: list[Output] = []

    def extend(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self.put(output)

    def given_up(self, query: str, rows: Mapping[Reason, int]) -> None:
        """Rows that operators of the query gave up, by reason."""
        self._shed.update({(query, reason): count for reason, count in rows.items()})

    def put(self, output: Output) -> None:
        self._outputs.append(output)
        match output:
            case ResultRows(query, _, rows):
                self._rows_out[query] += len(rows)
            case Forward(query=query, record=Batch(rows=rows)):
                self._exchanged[query] += len(rows)
            case LateRow(query=query):
                self._late_rows[query] += 1
            case Correction(query=query):
                self._corrections[query] += 1
            case Rejection(reason=bad):
                self._dead[bad] += 1
            case Complete(query=query, windows=span, verdict=verdict) if span is not None:
                for reason in verdict.reasons or (None,):
                    self._windows[query, reason] += span.to - span.first + 1
            case Amendment(query=query, windows=amended, reasons=reasons):
                for why in reasons:
                    self._amended[query, why] += 1 if amended is None else amended.to - amended.first + 1
            case _:
                pass

    def outcome(self, retired: bool) -> Outcome:
        counts = Counts(
            self.rows_in, self.merged, self.late, self.late_here, self.duplicates, self.gaps, self.fenced,
            self.replayed, self.unlisted, dict(self._dead), dict(self._rows_out), dict(self._exchanged),
            dict(self._late_rows), dict(self._corrections), dict(self._windows), dict(self._amended), dict(self._shed),
        )  # fmt: skip
        return Outcome(tuple(self._outputs), counts, retired)
