"""Names of inputs and columns in one SELECT, and what expressions are called in results."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowmark.query import syntax as s
from lowmark.query.catalog import packet_field
from lowmark.query.errors import QueryError, unknown_word
from lowmark.query.expressions import Field
from lowmark.query.relations import Relation

__all__ = ["Scope", "shown_name"]

_COMMENT_OR_TEXT = re.compile(r"--[^\n]*|/\*.*?\*/|('(?:[^'\n]|'')*'|\"(?:[^\"\n]|\"\")*\")", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scope:
    """The one input of a SELECT. `label` is the name that may stand before its columns."""

    text: str
    label: str | None
    relation: Relation

    def field(self, ref: s.FieldRef) -> Field:
        """The column of a name, whatever its case; QueryError when there is none."""
        word, choices = ref.name.text, self.relation.names
        if ref.input is not None and not self._is_label(ref.input) and (group := self.relation.group(ref.input.text)):
            word, choices = f"{ref.input.text}.{word}", group
        elif ref.input is not None:
            self.check_input(ref.input)
        alias = packet_field(word)
        column = self.relation.column(word) or (self.relation.column(alias.name) if alias else None)
        if column is None:
            raise unknown_word("field", word, self.text, ref.name.span, choices)
        return Field(column.name, column.kind, column.nullable)

    def has(self, ref: s.FieldRef) -> bool:
        try:
            self.field(ref)
        except QueryError:
            return False
        return True

    def expanded(self, item: s.Expression | s.Star) -> tuple[s.Expression, ...]:
        """The expressions of a SELECT item: `*` is all columns, `conn` those of a connection, each at its place."""
        if isinstance(item, s.FieldRef) and item.input is None and self.relation.column(item.name.text) is None:
            parts = (name.split(".") for name in self.relation.group(item.name.text))
            refs = tuple(
                s.FieldRef(*(s.Identifier(part, span=item.span) for part in pair), span=item.span) for pair in parts
            )
            return refs or (item,)
        if not isinstance(item, s.Star):
            return (item,)
        if item.input is not None:
            self.check_input(item.input)
        names = (s.Identifier(name, span=item.span) for name in self.relation.names)
        return tuple(s.FieldRef(None, name, span=item.span) for name in names)

    def _is_label(self, name: s.Identifier) -> bool:
        return self.label is not None and name.text.casefold() == self.label.casefold()

    def check_input(self, name: s.Identifier) -> None:
        if not self._is_label(name):
            raise unknown_word("input", name.text, self.text, name.span, (self.label,) if self.label else ())


def shown_name(node: s.Expression, scope: Scope) -> str:
    """The name of a result column without an alias: its field, or its text with every run of other characters than
    letters, digits and _ as one _. Fields are called as the catalog calls them, functions in lower case."""
    if isinstance(node, s.FieldRef):
        return scope.field(node).name if scope.has(node) else node.name.text
    pieces, end = [], node.span.start
    for start, stop, word in _renamed(node, scope):
        pieces += [scope.text[end:start], word]
        end = stop
    text = "".join((*pieces, scope.text[end : node.span.end]))
    without_comments = _COMMENT_OR_TEXT.sub(lambda match: match[1] or " ", text)
    return re.sub(r"\W+", "_", without_comments).strip("_")


def _renamed(node: s.Expression, scope: Scope) -> list[tuple[int, int, str]]:
    """The words of an expression that are shown otherwise than written, with their places in the text."""
    words = []
    for item in s.walk(node):
        match item:
            case s.FieldRef(span=span) if scope.has(item):
                words.append((span.start, span.end, scope.field(item).name))
            case s.FunctionCall(function=function):
                words.append((*function.span, function.text.lower()))
    return sorted(words)
