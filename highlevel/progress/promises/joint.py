"""Combines the joint promises (Li 7.2) of several inputs into those that hold for all of them.

The bounds of a joint promise name a box of column values in which no later row lies. No later row of any input lies in
the intersection of their boxes. It is a box again: its bound on a column is the least of theirs. For an input without a
joint promise the box is its ended panes. No joint promise moves a frontier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Bound, Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["JointPromises", "JointRow", "joint_promises"]

_MOST = 8
"""Most promises kept per input. Each join before the input adds one. Beyond this limit promises are lost, never
rows."""

JointRow = list[tuple[str, int]]
"""A joint promise in state: the columns, ascending, with their bounds."""


class JointPromises:
    """The joint promises of one input: for each set of columns, the last one that was stronger in some column."""

    def __init__(self, rows: Iterable[JointRow] = ()) -> None:
        self._boxes: dict[tuple[str, ...], dict[str, int]] = {}
        for row in rows:
            self._keep(dict(row))

    def take(self, promise: Promise) -> None:
        """Keep a joint promise; ignore promises of other kinds, or about values."""
        box: dict[str, int] = {}
        for bound in promise.bounds:
            if bound.below is None or isinstance(bound.column, tuple):
                return
            box[bound.column] = min(bound.below, box.get(bound.column, FOREVER))
        if len(box) > 1:
            self._keep({column: box[column] for column in sorted(box)})

    def promises(self) -> Iterator[Promise]:
        return map(_promise, self._boxes.values())

    def columns(self) -> Iterator[tuple[str, ...]]:
        """The columns of each promise."""
        return iter(self._boxes)

    def box(self, columns: tuple[str, ...]) -> Mapping[str, int] | None:
        """The bounds of the promise on these columns; else of the last one on some of them; else of the last one."""
        if columns in self._boxes:
            return self._boxes[columns]
        latest = [*reversed(self._boxes)]
        within = [known for known in latest if {*known} <= {*columns}]
        return self._boxes[(within or latest)[0]] if latest else None

    def rows(self) -> list[JointRow]:
        return [list(box.items()) for box in self._boxes.values()]

    def _keep(self, box: dict[str, int]) -> None:
        columns = tuple(box)
        known = self._boxes.get(columns)
        if known is not None and all(box[column] <= known[column] for column in columns):
            return
        self._boxes.pop(columns, None)
        self._boxes[columns] = box
        if len(self._boxes) > _MOST:
            self._boxes.pop(next(iter(self._boxes)))

    def __bool__(self) -> bool:
        return bool(self._boxes)


def joint_promises(inputs: Sequence[tuple[int, JointPromises]]) -> list[Promise]:
    """The joint promises that hold for all inputs, each given with its first pane that has not ended. The result has
    one promise for each set of columns that some input has promised, if it says more than that all panes before the
    least one have ended."""
    waiting = [(front, joint) for front, joint in inputs if front < FOREVER]
    ended = min((front for front, _ in waiting), default=FOREVER)
    found: dict[Promise, None] = {}
    for columns in dict.fromkeys(columns for _, joint in waiting for columns in joint.columns()):
        least: dict[str, int] = {}
        for front, joint in waiting:
            for column, below in (joint.box(columns) or {PANE: front}).items():
                least[column] = min(below, least.get(column, FOREVER))
        if least.get(PANE, FOREVER) > ended:
            found[_promise(least)] = None
    return list(found)


def _promise(box: Mapping[str, int]) -> Promise:
    return Promise(tuple(Bound(column, below=box[column]) for column in sorted(box)))
