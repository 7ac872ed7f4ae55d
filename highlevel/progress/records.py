"""A bucket's input: wire records with their rows in word form, and how each record arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from highlevel.interface import Words
from lowmark.wire.records.partials import PANE, TUPLES, Origin, PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import Control
from lowmark.wire.rows.by_bucket import tuples_by_pane
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.words import to_batch, to_words

__all__ = ["Arrival", "Batch", "Record", "batch_of_rows", "batch_of_wire", "wire_of_batch"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A `PartialBatch` whose rows are words of the node's `reduction.schema`."""

    origin: Origin
    sequence: int
    rows: Words
    tuples: Mapping[int, int]  # tuples in each pane of the batch
    late: bool = False


Record = Batch | Punctuation | Control


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a record arrived. `position` is its place in the order in which the bucket sees its records; it only appears
    in outputs. `appended_ns` is the broker's time of append, None without a broker. `kind` comes from the source's
    registration; upstream buckets and control records are FINITE."""

    position: int
    kind: SourceKind = SourceKind.FINITE
    appended_ns: int | None = None


def batch_of_wire(batch: PartialBatch, schema: Schema) -> Batch:
    """Convert from the wire form; `schema` is that of the node, with which the batch was decoded."""
    return Batch(batch.origin, batch.sequence, to_words(schema, batch.rows), batch.tuples, batch.late)


def wire_of_batch(batch: Batch, schema: Schema) -> PartialBatch:
    """The inverse of `batch_of_wire`."""
    return PartialBatch(batch.origin, batch.sequence, to_batch(schema, batch.rows), batch.tuples, batch.late)


def batch_of_rows(origin: Origin, sequence: int, rows: Words, schema: Schema, late: bool = False) -> Batch:
    """A batch made in this process; counts the tuples of each pane."""
    tuples = tuples_by_pane(rows[:, schema.offset(PANE)].view(np.int64), rows[:, schema.offset(TUPLES)].view(np.int64))
    return Batch(origin, sequence, rows, tuples, late)
