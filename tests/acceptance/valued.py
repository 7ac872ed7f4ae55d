"""Sources that also promise values: what a lane sends, with promises between its records that hold, or need not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from highlevel.progress.records import Batch, Record
from lowmark.query.plan.nodes import Join, Node, NodeInput, QueryPlan
from lowmark.wire.records.punctuations import Bound, LaneLedger, Promise, Punctuation
from lowmark.wire.rows.schema import Kind, Schema
from lowmark.wire.rows.value_sets import ValueSet
from lowmark.wire.rows.words import Words

__all__ = ["with_values"]


def with_values(plan: QueryPlan, lane: Sequence[Record], random: Random, lying: bool = False) -> list[Record]:
    """What one lane sends to a bucket. `lying`: rows that a promise excludes may follow."""
    (name,) = {record.origin.node for record in lane}
    node = next(node for node in plan.stage.nodes if node.name == name)
    made: list[Record] = []
    for at, record in enumerate(lane):
        for columns in _keys(plan, name):
            if random.random() < 0.5 and (promise := _promise(node, columns, lane, at, random, lying)) is not None:
                made.append(Punctuation(record.origin, 0, promise, LaneLedger()))
        made.append(record)
    return [replace(record, sequence=number) for number, record in enumerate(made)]


def _keys(plan: QueryPlan, node: str) -> Iterator[tuple[str, ...]]:
    """The columns of the node's rows that must be equal in a join."""
    for step in plan.steps:
        if isinstance(step.plan, Join):
            for number, source in enumerate(step.inputs):
                if source == NodeInput(node) and (keys := tuple(dict.fromkeys(step.plan.keys(step.port(number))))):
                    yield keys


def _promise(
    node: Node, columns: tuple[str, ...], lane: Sequence[Record], at: int, random: Random, lying: bool
) -> Promise | None:  # fmt: skip
    schema, pane = node.reduction.schema, node.reduction.pane
    if {Kind.FLOAT, Kind.STR} & {schema.column(column).kind for column in columns}:
        return None
    batches = [record.rows for record in lane if isinstance(record, Batch)]
    if not batches:
        return None
    rows = np.concatenate(batches)
    chosen = _words(schema, columns, rows[[random.randrange(len(rows))]])
    later = [record.rows for record in lane[at:] if isinstance(record, Batch)]
    panes = rows[:, 1].view(np.int64)
    below = int(panes.max()) + 3
    if lying:
        below = random.randint(int(panes.min()), below)
    elif later:
        follow = np.concatenate(later)
        same = (np.concatenate(_words(schema, columns, follow), 1) == np.concatenate(chosen, 1)).all(1)
        below = int(follow[same, 1].view(np.int64).min(initial=below))
    column = columns if len(columns) > 1 else columns[0]
    return Promise((Bound(column, values=ValueSet.of_words(*chosen)), Bound(pane.attribute, below=pane.start(below))))


def _words(schema: Schema, columns: Sequence[str], rows: Words) -> list[Words]:
    starts = ((schema.offset(column), schema.column(column).kind.words) for column in columns)
    return [rows[:, start : start + words] for start, words in starts]
