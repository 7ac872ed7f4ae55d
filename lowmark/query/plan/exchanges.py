"""Plans of the exchanges between buckets of a stage: if the keys of two steps differ, rows change buckets.

… → Reduce → Send ⇒ exchange ⇒ the step that needs them      rows by the hash of other keys
… → Reduce → Send ⇒ one bucket ⇒ Gather → Finish             all rows of a window: ORDER BY, LIMIT, DISTINCT
… → Reduce → Send ⇒ all buckets ⇒ Totals → Finish            each bucket's part of total()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowmark.query.windows.window import Window
from lowmark.wire.rows.schema import Schema

if TYPE_CHECKING:
    from lowmark.query.plan.nodes import AggregateCall, Fold, Node

__all__ = ["Exchange", "Exchanges", "Gather", "Send", "Totals"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows on their way from every bucket to the buckets that need them. They arrive as rows of `node`, whose sources
    are the buckets. They go to the bucket that its `bucket_by` chooses; without it to one bucket, or to all."""

    node: Node
    to_all: bool
    reason: str  # why its rows cannot stay where they are


@dataclass(frozen=True, slots=True)
class Exchanges:
    """All exchanges of a query: one topic, named by the fingerprint, with a partition for each bucket."""

    fingerprint: str
    each: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Sends partials to the node of an exchange, which has their schema. Rows of one group and pane that it sends
    together become one row if `folds` can be merged; `keys` are the group's keys."""

    input: Schema
    node: str
    keys: tuple[str, ...]
    folds: tuple[Fold, ...]
    grouped: bool


@dataclass(frozen=True, slots=True)
class Gather:
    """Collects all rows of a window, from all buckets of an exchange or all members of a union, and emits them together
    when no more can follow. Pane k of the input has the rows of window k."""

    input: Schema  # (pane, tuples, columns…)
    window: Window
    output: Schema  # the columns alone


@dataclass(frozen=True, slots=True)
class Totals:
    """Adds totals to the rows of a window. Port 0 brings the parts from all buckets: partials without keys, one column
    for each total. Port 1 brings the bucket's own rows, (pane, tuples, columns…). Pane k belongs to window k.
    """

    input: Schema  # of port 0
    folds: tuple[Fold, ...]
    calls: tuple[AggregateCall, ...]  # a sum for each total; their columns follow those of the rows
    rows: Schema  # of port 1
    window: Window

    @property
    def output(self) -> Schema:
        return Schema((*self.rows.columns[2:], *(call.column for call in self.calls)), self.rows.strings)
