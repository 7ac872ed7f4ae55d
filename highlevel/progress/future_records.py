"""Detects records that are too far ahead of the time at which they were appended."""

from __future__ import annotations

from highlevel.operators.incoming import panes_of
from highlevel.progress.granules import ROW_NUMBER, promised_granule
from highlevel.progress.records import Arrival, Batch
from lowmark.query.plan.nodes import Node
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["MAX_AHEAD_NS", "is_future"]

MAX_AHEAD_NS = 600 * 10**9
"""How far a live source's panes and promises may lie ahead of the time at which their record was appended."""


def is_future(record: Batch | Punctuation, arrival: Arrival, node: Node) -> bool:
    """Whether a pane of the record's rows, or its promise, lies too far ahead. `node` is the record's node."""
    pane = node.reduction.pane
    if arrival.kind is not SourceKind.LIVE or arrival.appended_ns is None or pane.attribute == ROW_NUMBER:
        return False
    if isinstance(record, Batch):
        last = int(panes_of(record.rows).max()) if len(record.rows) else NEVER
    else:
        granule = promised_granule(record.promise, pane)
        last = NEVER if granule is None else granule
    return last == FOREVER or pane.start(last) > arrival.appended_ns + MAX_AHEAD_NS
