"""Names of inputs and columns in one SELECT, and the names of expressions in results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowmark.query.bind.relations import Relation
from lowmark.query.catalog import packet_field
from lowmark.query.expr.constants import parse_quoted
from lowmark.query.expr.expressions import Field
from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, unknown_word
from lowmark.wire.rows.schema import Column

__all__ = ["Scope", "extreme_name", "shown_name"]

_LONGEST_NAME = 255  # characters: an expression may hold a list of any length
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that FROM gives to a SELECT. `label`: the name that may stand before the columns of a single input.
    For a join, `inputs` are the names of its inputs, and the relation's columns are called Input.column."""

    text: str
    label: str | None
    relation: Relation
    inputs: tuple[str, ...] = ()
    nearest: str | None = None  # the input in which a name without an input is looked up first

    def field(self, ref: s.FieldRef) -> Field:
        """The column with this name, in any case; QueryError if there is none, or one in several inputs."""
        found = self._columns(ref)
        if len(found) > 1:
            names = tuple(column.name for column in found)
            message = f"{ref.name.text} is in more than one input"
            raise QueryError(message, self.text, ref.span, names, f"write {' or '.join(names)}")
        if not found:
            raise self._unknown(ref)
        return self.relation.field(found[0])

    def has(self, ref: s.FieldRef) -> bool:
        try:
            self.field(ref)
        except QueryError:
            return False
        return True

    def literal(self, ref: s.FieldRef) -> s.Literal | None:
        """The literal that `"…"` stands for if it names no column; None if it is a name. Papers write addresses like
        this."""
        if not ref.name.quoted or ref.input is not None or self.has(ref):
            return None
        return parse_quoted(ref.name)

    def expanded(self, item: s.Expression | s.Star) -> tuple[s.Expression, ...]:
        """The expressions of a SELECT item: `*` becomes all columns, `conn` the fields of a connection."""
        if not isinstance(item, s.Star):
            return self.parts(item) or (item,)
        if item.input is not None:
            self.check_input(item.input)
        names = (s.Identifier(name, span=item.span) for name in self._whole_names(item.input))
        return tuple(s.FieldRef(None, name, span=item.span) for name in names)

    def extreme(self, call: s.FunctionCall) -> Field:
        """The hidden column of `greatest(A.ts, B.ts)`; QueryError if the join has none for these times."""
        word = call.function.text.lower()
        refs = [item for item in call.arguments if isinstance(item, s.FieldRef)]
        if len(refs) == len(call.arguments) and not call.distinct:
            found = self.relation.column(extreme_name(word, [self.field(ref).name for ref in refs]))
            if found is not None:
                return Field(found.name, found.kind)
        message = f"{word} takes the window times of an inner join's inputs, of two inputs or more"
        raise QueryError(message, self.text, call.span, hint=f"for example {word}(A.ts, B.ts)")

    def parts(self, item: s.Expression) -> tuple[s.Expression, ...]:
        """The fields that a name such as `conn` stands for together; () for anything else."""
        if not isinstance(item, s.FieldRef) or self._columns(item):
            return ()
        whole = item.name.text
        if item.input is not None and (self.inputs or not self.is_label(item.input)):
            whole = f"{item.input.text}.{whole}"
        elif item.input is None and self.nearest is not None:
            whole = f"{self.nearest}.{whole}"
        names = (s.Identifier(name, span=item.span) for name in self.relation.group(whole))
        return tuple(s.FieldRef(None, name, span=item.span) for name in names)

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.inputs or ((self.label,) if self.label else ())

    def is_label(self, name: s.Identifier) -> bool:
        return name.text.casefold() in {label.casefold() for label in self._labels}

    def check_input(self, name: s.Identifier) -> None:
        if not self.is_label(name):
            raise unknown_word("input", name.text, self.text, name.span, self._labels)

    def _columns(self, ref: s.FieldRef) -> list[Column]:
        """The columns that a name can mean. The part before the point may belong to the column's name: it may name a
        group of fields, or an input of a join that an earlier stage selected from."""
        alias = packet_field(ref.name.text)
        words = (ref.name.text, *((alias.name,) if alias else ()))
        for prefixes in self._prefixes(ref.input):
            found = [column for prefix in prefixes if (column := self._first(prefix, words)) is not None]
            if found:
                return found
        return []

    def _prefixes(self, name: s.Identifier | None) -> Iterator[tuple[str, ...]]:
        if name is None:
            yield ("",)
            yield () if self.nearest is None else (f"{self.nearest}.",)
            yield tuple(f"{label}." for label in self.inputs)
            return
        folded = name.text.casefold()
        if self.inputs:
            yield tuple(f"{label}." for label in self.inputs if label.casefold() == folded)
        elif self.is_label(name):
            yield ("",)
        yield tuple(f"{label}.{name.text}." for label in self.inputs) or (f"{name.text}.",)

    def _first(self, prefix: str, words: tuple[str, ...]) -> Column | None:
        return next((found for word in words if (found := self.relation.column(prefix + word)) is not None), None)

    def _whole_names(self, name: s.Identifier | None) -> tuple[str, ...]:
        if name is None or not self.inputs:
            return self.relation.names
        prefix = f"{name.text}.".casefold()
        return tuple(known for known in self.relation.names if known.casefold().startswith(prefix))

    def _unknown(self, ref: s.FieldRef) -> QueryError:
        """The error for an unknown name, with the columns of the input or group before the point, if there is one."""
        if parts := self.parts(ref):
            names = tuple(part.name.text for part in parts if isinstance(part, s.FieldRef))
            hint = "it stands by itself in SELECT, GROUP BY, PA and count(DISTINCT …), and in A.conn = B.conn"
            return QueryError(f"{ref.name.text} stands for several fields here", self.text, ref.span, names, hint)
        word, choices = ref.name.text, self.relation.names
        if ref.input is not None and not self.is_label(ref.input) and (group := self.relation.group(ref.input.text)):
            word, choices = f"{ref.input.text}.{word}", group
        elif ref.input is not None:
            self.check_input(ref.input)
            if self.inputs:
                choices = tuple(name[len(ref.input.text) + 1 :] for name in self._whole_names(ref.input))
        if self.relation.derived and packet_field(ref.name.text) is not None:
            hint = "a created stream or subquery has the columns that it selects, and no others"
            return QueryError(f"{word} was not selected", self.text, ref.name.span, choices, hint)
        error = unknown_word("field", word, self.text, ref.name.span, choices)
        if not ref.name.quoted or ref.input is not None:
            return error
        quoted = word.replace("'", "''")
        hint = f"double quotes hold a name, address, MAC or time; a text is written '{quoted}'"
        hint = f"{error.hint} {hint[0].upper()}{hint[1:]}" if error.hint else hint
        return QueryError(error.message, self.text, ref.name.span, error.expected, hint)


def extreme_name(word: str, times: Sequence[str]) -> str:
    """The join's name for the greatest or the least of these columns; their order does not matter."""
    return f"{word}({', '.join(sorted(times))})"


def shown_name(node: s.Expression, scope: Scope) -> str:
    """The name of a result column without an alias: its field, or its text with each run of characters other than
    letters, digits and _ replaced by one _, and cut if it is too long. Fields are named as in the catalog; functions
    and all words of the language are in lower case."""
    if isinstance(node, s.FieldRef) and scope.literal(node) is None:
        return scope.field(node).name if scope.has(node) else node.name.text
    pieces, end = [], node.span.start
    for start, stop, word in _leaves(node, scope):
        pieces += [_COMMENT.sub(" ", scope.text[end:start]).lower(), word]
        end = stop
    pieces.append(_COMMENT.sub(" ", scope.text[end : node.span.end]).lower())
    return re.sub(r"\W+", "_", "".join(pieces)).strip("_")[:_LONGEST_NAME].rstrip("_")


def _leaves(node: s.Expression, scope: Scope) -> list[tuple[int, int, str]]:
    """The names and literals of an expression as shown, with their places in the text. Signs, comments and words of the
    language stand between them."""
    leaves = []
    for item in s.walk(node):
        if isinstance(item, s.FunctionCall):
            leaves.append((*item.function.span, item.function.text.lower()))
        elif isinstance(item, s.FieldRef) and scope.has(item):
            leaves.append((*item.span, scope.field(item).name))
        elif isinstance(item, s.Literal | s.FieldRef):
            text = scope.text[slice(*item.span)]
            of_the_language = isinstance(item, s.BooleanLiteral | s.DurationLiteral)
            leaves.append((*item.span, text.lower() if of_the_language else text))
    return sorted(leaves)
