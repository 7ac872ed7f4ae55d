"""Plans of what passes between the buckets of a stage: where the keys of two steps disagree, rows change buckets.

… → Reduce → Send ⇒ exchange ⇒ the step that needs them      rows by the hash of other keys
… → Reduce → Send ⇒ one bucket ⇒ Gather → Finish             all rows of a window: ORDER BY, LIMIT, DISTINCT
… → Reduce → Send ⇒ all buckets ⇒ Totals → Finish            what each bucket has for total()
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
    """Rows on their way from every bucket to those that need them. They come back as rows of `node`, whose sources are
    the buckets: to the bucket of its `bucket_by`, without any to one bucket, or to all."""

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
    """Partials to the node of an exchange, which names their schema. What it sends at a time of one group and pane is
    one row where `folds` can be merged; `keys` are those of the group."""

    input: Schema
    node: str
    keys: tuple[str, ...]
    folds: tuple[Fold, ...]
    grouped: bool


@dataclass(frozen=True, slots=True)
class Gather:
    """All rows of a window, of all buckets behind an exchange or of all members of a union, given out together when
    none can follow. Pane k of the input has the rows of window k."""

    input: Schema  # (pane, tuples, columns…)
    window: Window
    output: Schema  # the columns


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals beside the rows of a window. Port 0 brings from all buckets what each has for them: partials without
    keys, a column for each. Port 1 brings the bucket's own rows, (pane, tuples, columns…). Pane k is that of window k.
    """

    input: Schema  # of port 0
    folds: tuple[Fold, ...]
    calls: tuple[AggregateCall, ...]  # a sum for each total: columns behind those of the rows
    rows: Schema  # of port 1
    window: Window

    @property
    def output(self) -> Schema:
        return Schema((*self.rows.columns[2:], *(call.column for call in self.calls)), self.rows.strings)
