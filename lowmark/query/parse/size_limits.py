"""Limits on the size of a query: every limit on a text and on the plan made from it, with its reason.

No query that a person writes reaches them. They exist so that every text is answered or refused at once, with a
message: the passes after the parser may walk a query recursively, and compile it to native code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lowmark.query.parse.syntax import Span
from lowmark.wire.rows.schema import MOST_COLUMNS, TooManyColumns

__all__ = [
    "CHARACTERS", "COLUMNS", "DIGITS", "ENTRIES", "INPUTS", "LEVELS", "LIMITS", "MEMBERS", "NESTING", "NODES",
    "OPERATIONS", "ROW", "STAGES", "STEPS", "WORDS", "Limit", "TooLarge", "placed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    name: str  # as messages and the guide call it
    most: int
    of: str  # the thing that is counted
    reason: str


class TooLarge(Exception):
    """A query beyond a limit. The message says which part is too large, without the limit; `span` is None until the
    place is known."""

    def __init__(self, limit: Limit, what: str, span: Span | None = None, hint: str | None = None) -> None:
        super().__init__(limit, what, span, hint)
        self.limit = limit
        self.what = what
        self.span = span
        self.hint = hint

    @property
    def message(self) -> str:
        return f"{self.what}; the limit of {self.limit.name} is {self.limit.most:,}"


CHARACTERS = Limit(
    "characters", 8_000_000, "Characters of a query's text, comments included.", "Room for the longest lists."
)
WORDS = Limit(
    "words",
    10_000,
    "Names, constants, signs and words of the language in a text. Constants in a list are one.",
    "So many are read and analysed in a second.",
)
ENTRIES = Limit("entries", 250_000, "Constants in the list of an IN.", "Reading so many takes some seconds.")
DIGITS = Limit("digits", 100, "Digits of a number.", "What is computed of constants is computed exactly.")
NESTING = Limit(
    "nesting",
    100,
    "Expressions, subqueries and joins inside one another. `a + b - c …` is one level, as is `a AND b AND c …`.",
    "Analysis walks a query by recursion.",
)
INPUTS = Limit(
    "inputs",
    32,
    "Inputs of one FROM.",
    "Each of them has a band with every other one, and an order is chosen in which its rows meet theirs.",
)
MEMBERS = Limit(
    "members",
    128,
    "Members of a union, those of unions inside it included. Streams of packets side by side are one member.",
    "Each is planned by itself, and read by a node or a step of its own.",
)
COLUMNS = Limit(
    "columns", 60, "Columns of a SELECT.", "One word of 64 bits says which of a row are null; its window takes some."
)
ROW = Limit(
    "row columns",
    MOST_COLUMNS,
    "Columns of a row inside: two of its pane, keys, what aggregates keep (a sum one, a variance three), what is read "
    "of a join.",
    "One word of 64 bits says which of them are null.",
)
OPERATIONS = Limit(
    "operations",
    10_000,
    "Operations of one expression, computed through all selections down to the input's columns.",
    "Stages that double an expression would reach any size. Native code takes some milliseconds for each.",
)
LEVELS = Limit(
    "levels",
    150,
    "Operations of one expression inside one another, computed through all selections. AND, OR, and sums and the "
    "like of whole numbers that cannot leave 64 bits are flat.",
    "Expressions are walked by recursion.",
)
STAGES = Limit(
    "stages",
    48,
    "SELECTs that group or join, each of which reads the one before.",
    "The rows of a step are handed to the next one by a call.",
)
NODES = Limit(
    "nodes",
    64,
    "Nodes of the plan, as `explain` shows them: what capture processes do for it, each with its filter and groups.",
    "The native code of a source is made of all of them: each takes a tenth of a second to compile.",
)
STEPS = Limit(
    "steps",
    512,
    "Steps of the plan, with the nodes that feed them.",
    "Each is an operator with state of its own in every bucket.",
)

LIMITS = (
    CHARACTERS, WORDS, ENTRIES, DIGITS, NESTING, INPUTS, MEMBERS, COLUMNS, ROW, OPERATIONS, LEVELS, STAGES, NODES,
    STEPS,
)  # fmt: skip


@contextmanager
def placed(span: Span | None) -> Iterator[None]:
    """Give a TooLarge raised inside this block the place `span`, unless it already has a nearer one."""
    try:
        yield
    except TooLarge as error:
        error.span = error.span or span
        raise
    except TooManyColumns as error:
        raise TooLarge(ROW, f"a row of this would have {error.count} columns inside", span) from None
