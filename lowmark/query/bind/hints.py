"""Hints of a SELECT, `/*+ probe(A, B, C) strategy(wid) bucket(srcIP) */`: each makes one choice in place of the
planner.

The code that makes a choice takes the hints for it. A hint that is left over is an error."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from lowmark.query.options import Buffering, Memory, Strategy
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, unknown_word
from lowmark.query.plan.joins import Algorithm, Release, Scheduling

__all__ = ["ALGORITHM", "BUCKET", "BUFFER", "MEMORY", "PROBE", "RELEASE", "SCHEDULE", "STRATEGY", "Hints"]

PROBE = "probe"
STRATEGY = "strategy"
BUCKET = "bucket"
RELEASE = "release"
SCHEDULE = "schedule"
ALGORITHM = "algorithm"
MEMORY = "memory"
BUFFER = "buffer"

E = TypeVar("E", bound=Enum)

_WORDS = (PROBE, STRATEGY, BUCKET, RELEASE, SCHEDULE, ALGORITHM, MEMORY, BUFFER)


class Hints:
    """The hints of one SELECT that no choice has taken yet."""

    def __init__(self, hints: Sequence[s.Hint], text: str) -> None:
        self._left = list(hints)
        self._all = tuple(hints)
        self._text = text
        self._algorithm: s.Hint | None = None  # the hint that `algorithm` has taken
        for hint in hints:
            if hint.word.text.casefold() not in _WORDS:
                raise unknown_word("hint", hint.word.text, text, hint.word.span, _WORDS)

    def refuse(self, word: str, why: str) -> None:
        """Raise QueryError if a hint with this word is left: here is nothing to choose, for the reason `why`."""
        for hint in self._of(word):
            raise QueryError(f"{word} has no effect here: {why}", self._text, hint.span)

    def probes(self, parts: Sequence[Sequence[str]]) -> tuple[tuple[int, ...], ...]:
        """Take the probe hints of one inner join, which are those that name each of its parts once. Returns their
        orders as part numbers. `parts`: the labels of each part's inputs; any of them names the part."""
        found: dict[int, tuple[int, ...]] = {}
        for hint in self._of(PROBE):
            order = tuple(number for name in _words(hint) for number in _places(name, parts))
            if len(hint.names) < len(parts) or sorted(order) != list(range(len(parts))):
                continue
            if order[0] in found:
                named = hint.names[0].name.text
                raise QueryError(f"{PROBE} has already given the order for rows of {named}", self._text, hint.span)
            found[order[0]] = order
            self._left.remove(hint)
        return tuple(found.values())

    def check_probes(self, joins: Sequence[Sequence[Sequence[str]]], labels: Sequence[str]) -> None:
        """Refuse probe hints that are left after all inner joins of FROM took theirs. `labels`: of all inputs."""
        ordered = {label.casefold() for parts in joins for part in parts for label in part}
        folded = [label.casefold() for label in labels]
        for hint in self._of(PROBE):
            if not joins:
                self.refuse(PROBE, "an outer, semi or anti join has two inputs, which meet in one order")
            for ref in hint.names:
                if ref.input is not None:
                    raise QueryError(f"{PROBE} names inputs, not fields", self._text, ref.span, tuple(labels))
                if ref.name.text.casefold() not in folded:
                    raise unknown_word("input", ref.name.text, self._text, ref.span, labels)
                if ref.name.text.casefold() not in ordered:
                    why = f"{ref.name.text} is in no inner join; other joins have two inputs, which meet in one order"
                    raise QueryError(why, self._text, ref.span, tuple(n for n in labels if n.casefold() in ordered))
            how = "first the input of the new row, then the others in the order in which the row meets them"
            there = tuple(f"{PROBE}({', '.join(part[0] for part in parts)})" for parts in joins)
            which = "every input once" if len(joins) == 1 else "every input of one inner join once"
            raise QueryError(f"{PROBE} names {which}", self._text, hint.span, there, how)

    def strategy(self) -> Strategy:
        """The window strategy that a hint names; AUTO if none does."""
        return self._one_of(STRATEGY, Strategy) or Strategy.AUTO

    def release(self) -> Release | None:
        """How a join emits its rows in order of time; None if no hint says."""
        return self._one_of(RELEASE, Release)

    def schedule(self) -> Scheduling | None:
        """How a shared join orders its work, or that the join is not to be shared; None if no hint says."""
        return self._one_of(SCHEDULE, Scheduling)

    def algorithm(self) -> Algorithm | None:
        """The algorithm of a join; None if no hint says."""
        found = self._of(ALGORITHM)
        self._algorithm = found[0] if found else None
        return self._one_of(ALGORITHM, Algorithm)

    def memory(self) -> Memory | None:
        """How long a join without windows keeps a row; None if no hint says."""
        return self._one_of(MEMORY, Memory)

    def buffer(self) -> Buffering | None:
        """How rows wait before they enter a join without windows; None if no hint says."""
        return self._one_of(BUFFER, Buffering)

    def refuse_algorithm(self, why: str) -> None:
        """Raise QueryError if a hint asks for an algorithm that cannot run."""
        if self._algorithm is not None:
            raise QueryError(f"{ALGORITHM} has no effect here: {why}", self._text, self._algorithm.span)

    def refuse_memory(self, why: str) -> None:
        """Raise QueryError if a hint asks for an algorithm or for memory, but the join has no choice of it."""
        for hint in self._all:
            if hint.word.text.casefold() in (ALGORITHM, MEMORY, BUFFER):
                raise QueryError(f"{hint.word.text.casefold()} has no effect here: {why}", self._text, hint.span)

    def bucket(self) -> tuple[s.FieldRef, ...]:
        """The keys that should choose the bucket; () if none are named."""
        found: tuple[s.FieldRef, ...] = ()
        for hint in self._taken(BUCKET):
            if found:
                raise QueryError(f"{BUCKET} is given once, and names all keys", self._text, hint.span)
            found = hint.names
        return found

    def _one_of(self, word: str, kinds: type[E]) -> E | None:
        """Take the hint with this word; returns the member of `kinds` that it names, None if there is no hint."""
        found: E | None = None
        for hint in self._taken(word):
            name, *more = hint.names
            choices = tuple(str(kind.value) for kind in kinds)
            if more or found is not None:
                raise QueryError(f"{word} is given once, and names one", self._text, hint.span, choices)
            if name.input is not None or name.name.text.casefold() not in choices:
                raise unknown_word(word, self._text[slice(*name.span)], self._text, name.span, choices)
            found = kinds(name.name.text.casefold())
        return found

    def _of(self, word: str) -> list[s.Hint]:
        return [hint for hint in self._left if hint.word.text.casefold() == word]

    def _taken(self, word: str) -> list[s.Hint]:
        taken = self._of(word)
        self._left = [hint for hint in self._left if hint not in taken]
        return taken


def _words(hint: s.Hint) -> list[str]:
    return [ref.name.text.casefold() for ref in hint.names if ref.input is None]


def _places(name: str, parts: Sequence[Sequence[str]]) -> list[int]:
    return [number for number, part in enumerate(parts) if name in {label.casefold() for label in part}]
