"""Granules: the grid of a node on which its sources promise and account."""

from __future__ import annotations

from lowmark.query.plan.nodes import Pane
from lowmark.wire.records.partials import PANE
from lowmark.wire.records.punctuations import Promise
from lowmark.wire.rows.values import FOREVER

__all__ = ["ROW_NUMBER", "granule_of_time", "promised_granule"]

ROW_NUMBER = "row_num"
"""The only attribute of panes that is not a time."""


def promised_granule(promise: Promise, pane: Pane) -> int | None:
    """The first granule that this promise leaves open. None: the promise is joint, or about values or another column,
    and moves no frontier of the pane's attribute."""
    if promise.last:
        return FOREVER
    below = promise.below(PANE)
    if below is not None:
        return below
    value = promise.below(pane.attribute)
    if value is None or value == FOREVER:
        return value
    return pane.index(value)


def granule_of_time(pane: Pane, time: int) -> int:
    """The first granule that begins at this time of the attribute or later."""
    return pane.index(time - 1) + 1
