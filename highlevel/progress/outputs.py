"""The outputs of a bucket at the end of a micro-batch, in order, and its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from highlevel.interface import Words
from highlevel.progress.records import Batch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.record import BadReason
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason
from lowmark.wire.rows.schema import Schema

__all__ = ["Counts", "Forward", "Outcome", "Output", "Rejection", "ResultRows"]

_TOGETHER = 1 << 16
"""Small parts are joined up to this number of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class ResultRows:
    """Final rows of a query, as words of `schema` (the query's output). `window` is the id of their window, whose
    completion follows later in the same outcome, or, of `early` rows, in a later one; None for a query without
    windows."""

    query: str
    window: int | None
    rows: Words
    schema: Schema
    early: bool = False

    @classmethod
    def together(cls, query: str, parts: Iterable[Words], schema: Schema) -> Iterator[ResultRows]:
        """Join the parts of a windowless query into fewer pieces, because each piece is encoded separately."""
        waiting: list[Words] = []
        for part in parts:
            if waiting and sum(map(len, waiting)) + len(part) > _TOGETHER:
                yield cls(query, None, np.concatenate(waiting), schema)
                waiting = []
            waiting.append(part)
        if waiting:
            yield cls(query, None, np.concatenate(waiting), schema)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The record at this position could not be used. It becomes a dead letter and changes only its lane's sequence."""

    reason: BadReason
    detail: str
    position: int


@dataclass(frozen=True, slots=True)
class Forward:
    """A record for an exchange, for the bucket `partition`. A batch's rows have the layout `schema`."""

    query: str
    exchange: str  # fingerprint of the exchange
    partition: int
    record: Batch | Punctuation
    schema: Schema


Output = ResultRows | Forward | Complete | Amendment | Correction | LateRow | Rejection


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened since the previous outcome. All counts are increments."""

    rows_in: int = 0  # rows (partials) merged
    merged: int = 0  # tuples in these rows
    late: int = 0  # tuples that came late and were not merged
    late_here: int = 0  # those of them that their source had not counted as late
    duplicates: int = 0  # records at or below the last sequence number of their lane
    gaps: int = 0  # sequence numbers that are missing
    fenced: int = 0  # records of an epoch that a later epoch has ended
    replayed: int = 0  # tuples that a restarted finite source sent again, in granules that it had promised before
    unlisted: int = 0  # tuples in granules for which the stream does not list their source
    dead: Mapping[BadReason, int] = field(default_factory=dict)  # rejections
    rows_out: Mapping[str, int] = field(default_factory=dict)  # result rows by query
    exchanged: Mapping[str, int] = field(default_factory=dict)  # rows sent into exchanges, by query
    late_rows: Mapping[str, int] = field(default_factory=dict)  # late rows by query
    corrections: Mapping[str, int] = field(default_factory=dict)  # corrections by query
    windows: Mapping[tuple[str, Reason | None], int] = field(default_factory=dict)
    """Windows completed by query and reason; None: exact. A window with two reasons counts under both."""
    amended: Mapping[tuple[str, Reason], int] = field(default_factory=dict)
    """Windows that amendments declare lossy, by query and reason; a window counts once per amendment."""

    shed: Mapping[tuple[str, Reason], int] = field(default_factory=dict)  # rows that operators gave up

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.rows_in + other.rows_in,
            self.merged + other.merged,
            self.late + other.late,
            self.late_here + other.late_here,
            self.duplicates + other.duplicates,
            self.gaps + other.gaps,
            self.fenced + other.fenced,
            self.replayed + other.replayed,
            self.unlisted + other.unlisted,
            Counter(self.dead) + Counter(other.dead),
            Counter(self.rows_out) + Counter(other.rows_out),
            Counter(self.exchanged) + Counter(other.exchanged),
            Counter(self.late_rows) + Counter(other.late_rows),
            Counter(self.corrections) + Counter(other.corrections),
            Counter(self.windows) + Counter(other.windows),
            Counter(self.amended) + Counter(other.amended),
            Counter(self.shed) + Counter(other.shed),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outputs of one micro-batch. A window's rows precede its completion; a query's completions are contiguous."""

    outputs: tuple[Output, ...]
    counts: Counts
    retired: bool = False  # the stage is no longer read: the runner drops all state of the bucket
