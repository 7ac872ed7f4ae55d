"""Batches of partials, or of selected tuples: the data that crosses between stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["PANE", "TUPLES", "Origin", "PartialBatch"]

PANE = "pane"
"""First column of every batch between stages: the index of the row's pane (selections: of its granule)."""

TUPLES = "tuples"
"""Second column: how many tuples the row stands for (selections: 1)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sent a record: the sequence numbers of one origin are dense in each partition."""

    stage: str  # fingerprint of the stage whose output this is
    source: str  # a capture point, or "bucket-<n>" of an upstream stage
    epoch: int  # offset of the source's registration; of a bucket, the job's generation
    node: str  # the low-level node, or the output port of an operator


@dataclass(frozen=True, slots=True, eq=False)
class PartialBatch:
    """Rows that may mix panes. `late` rows lie outside the promises: never merged into a closed window."""

    origin: Origin
    sequence: int
    rows: pa.RecordBatch
    tuples: Mapping[int, int]  # tuples in each pane of the batch
    late: bool = False
