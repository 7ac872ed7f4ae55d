"""Hints of a SELECT, `/*+ probe(A, B, C) */`: how it is to run, where the planner is not to choose."""

from __future__ import annotations

from collections.abc import Sequence

from lowmark.query import syntax as s
from lowmark.query.errors import QueryError, unknown_word

__all__ = ["hinted_probes", "refuse_hints"]

_PROBE = "probe"


def refuse_hints(hints: Sequence[s.Hint], text: str, why: str) -> None:
    """Of a SELECT in which there is nothing to choose."""
    _check_words(hints, text)
    if hints:
        raise QueryError(f"{_PROBE} says nothing here: {why}", text, hints[0].span)


def hinted_probes(hints: Sequence[s.Hint], labels: Sequence[str], text: str) -> tuple[tuple[int, ...], ...]:
    """The orders that are asked for, as numbers of inputs."""
    _check_words(hints, text)
    folded = [label.casefold() for label in labels]
    found: dict[int, tuple[int, ...]] = {}
    for hint in hints:
        for name in hint.names:
            if name.text.casefold() not in folded:
                raise unknown_word("input", name.text, text, name.span, labels)
        order = tuple(folded.index(name.text.casefold()) for name in hint.names)
        if sorted(order) != list(range(len(labels))):
            how = "first the one whose new rows are meant, then the others in the order in which these meet them"
            raise QueryError(f"{_PROBE} names every input once", text, hint.span, tuple(labels), how)
        if order[0] in found:
            raise QueryError(f"{_PROBE} has said already what rows of {labels[order[0]]} meet", text, hint.span)
        found[order[0]] = order
    return tuple(found.values())


def _check_words(hints: Sequence[s.Hint], text: str) -> None:
    for hint in hints:
        if hint.word.text.casefold() != _PROBE:
            raise unknown_word("hint", hint.word.text, text, hint.word.span, (_PROBE,))
