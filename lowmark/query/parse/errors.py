"""Errors in a query: what is wrong, where in the text, and what would be right."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from lowmark.query.parse.size_limits import TooLarge
from lowmark.query.parse.syntax import Span, written

_LINE_WIDTH = 100  # columns of the query's line shown around the place


class QueryError(Exception):
    """A query that cannot run. Every pass raises this class, and no other, for mistakes that its author can fix."""

    def __init__(
        self, message: str, text: str, span: Span, expected: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, text, span, expected, hint)
        self.message = message
        self.text = text
        self.span = span
        self.expected = expected
        self.hint = hint

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.span.start) + 1

    @property
    def column(self) -> int:
        """Column in characters, from 1."""
        return self.span.start - self._line_start + 1

    def __str__(self) -> str:
        return _printable(f"line {self.line}, column {self.column}: {self.message}")

    def render(self) -> str:
        """The message, the line with marks under the place (its part on the first line), and what is valid there."""
        lines = [str(self), *self._marked_line()]
        if self.expected:
            valid = f"valid here: {', '.join(self.expected)}"
            lines += textwrap.wrap(valid, _LINE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        if self.hint:
            lines.append(_printable(f"hint: {self.hint}"))
        return "\n".join(lines)

    @property
    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.span.start) + 1

    def _marked_line(self) -> tuple[str, str]:
        line = self.text[self._line_start :].split("\n", 1)[0].rstrip()
        start = self.column - 1
        end = min(self.span.end - self._line_start, len(line))
        first = max(0, start - _LINE_WIDTH // 2) if len(line) > _LINE_WIDTH else 0
        last = first + _LINE_WIDTH
        lead = "… " if first else ""
        shown = lead + _printable(line[first:last]) + (" …" if len(line) > last else "")
        # An error at the end of the text may stand after the line's last visible character.
        indent = _columns(lead + line[first:start].ljust(start - first))
        return f"    {shown}", f"    {' ' * indent}{'^' * max(1, _columns(line[start : min(end, last)]))}"


def too_large(error: TooLarge, text: str, span: Span) -> QueryError:
    """The error for a query beyond a limit, at the place that `error` knows, else at `span`."""
    return QueryError(error.message, text, error.span or span, hint=error.hint)


class BadEntryPoint(Exception):
    """An installed package offers an aggregate that cannot be used: the message says which and why."""


def unknown_word(what: str, word: str, text: str, span: Span, choices: Sequence[str]) -> QueryError:
    """The error for an unknown name: `what` is the sort of thing meant, `choices` are the names that exist."""
    close = closest(word, choices)
    hint = f"did you mean {written(close)}?" if close else None
    return QueryError(f"there is no {what} called {word}", text, span, tuple(map(written, choices)), hint)


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice closest to a misspelt word, ignoring case; None if none is close."""
    by_folded = {choice.casefold(): choice for choice in choices}
    close = get_close_matches(word.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def _printable(line: str) -> str:
    """The same columns without characters that move the cursor or control the terminal."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "�" for char in line)


def _columns(line: str) -> int:
    """Terminal columns that a piece of a line takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line
    )


# Syntax errors. Terminals have the names that grammar.lark gives them.

_EXPRESSION = frozenset(
    {"NAME", "INTEGER", "DECIMAL", "DURATION", "STRING", "ADDRESS", "TRUE", "FALSE"}
    | {"MINUS", "PLUS", "TILDE", "_LPAR", "NOT", "_EXISTS"}
)
_SIZE = frozenset({"INTEGER", "DECIMAL", "DURATION", "ROWS"})
_ARITHMETIC = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "AMPERSAND", "BAR", "CARET", "SHIFT"})
_NOUNS = {
    "NAME": "a name",
    "INTEGER": "a whole number",
    "STRING": "a quoted text",
    "ALIAS": "a name of your own",
    "ADDRESS": "an address or prefix",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "STAR": "*",
    "_CREATE": "CREATE STREAM",
    "_COMMA": '","',
    "_DOT": '"."',
    "_SEMICOLON": '";"',
    "_HINT_CLOSE": '"*/"',
    "_LPAR": '"("',
    "_RPAR": '")"',
    "_LBRACKET": 'a window "[…]"',
    "_RBRACKET": '"]"',
    "$END": "the end of the query",
}
_CLAUSES = ("_WHERE", "_GROUP_BY", "_HAVING", "_ORDER_BY", "_LIMIT", "_PUNCTUATE")
_NAME_AFTER = {
    "_HINT_OPEN": "a hint: algorithm, buffer, bucket, memory, probe, release, schedule or strategy",
    "_AS": "a name",
    "_DOT": "a field's name",
    "_STREAM": "a name for the stream",
}
_UNITS = ("ns", "us", "ms", "seconds", "minutes", "hours", "days", "weeks", "rows")
_OTHER_LANGUAGES = {
    "==": "equality is written =",
    "&&": "write AND",
    "||": "write OR",
    "!": "write NOT, or <> for unequal",
}
_OTHER_JOINS = {
    "CROSS": "a comma joins inputs with all others in their windows: FROM A [RANGE …], B [RANGE …]",
    "NATURAL": "say what must be equal: JOIN B [RANGE …] ON A.srcIP = B.srcIP",
    "USING": "say what must be equal: ON A.srcIP = B.srcIP",
}
_HINT_PLACE = "it stands behind SELECT, as in SELECT /*+ probe(A, B, C) */ …"
_IN_EXPRESSIONS = {
    "_NULL": "write IS NULL or IS NOT NULL",
    "_SELECT": "a subquery stands in FROM (SELECT …) AS name, or in EXISTS (SELECT …)",
}


def syntax_error(
    text: str, span: Span, terminal: str | None, before: Sequence[str], valid: Collection[str]
) -> QueryError:
    """The error for text that the grammar does not accept.

    At `span` stands a `terminal` (None: no known terminal), after the terminals `before`. The parser would have
    accepted one of the terminals `valid`.
    """
    previous = before[-1] if before else ""
    word = text[slice(*span)]
    if terminal == "$END":
        end = len(text.rstrip())
        return QueryError("the query ends too soon", text, Span(end, end), _expected(previous, valid))
    if terminal is None and word in {"'", '"'}:
        end = span.start + len(text[span.start :].split("\n", 1)[0].rstrip())
        what = "text" if word == "'" else "name"
        return QueryError(f"this {what} has no closing quote", text, Span(span.start, end))
    # Where a division is valid, the first character was read as a division sign.
    pair = text[max(0, span.start - 1) : span.end]
    if "/*" in {pair, text[span.start : span.start + 2]}:
        start = text.rindex("/*", 0, span.start + 2)
        if text.startswith("/*+", start):
            return QueryError("a hint cannot stand here", text, Span(start, start + 3), hint=_HINT_PLACE)
        return QueryError("this comment has no end", text, Span(start, start + 2), hint="it ends with */")
    if terminal == "NAME" and previous in {"INTEGER", "DECIMAL"} and before[-2] in {"_RANGE", "_SLIDE", "_TUMBLING"}:
        if word.casefold() in {"row", "rows"}:
            return QueryError("a number of rows is a whole number", text, span, hint="for example 100 rows")
        return unknown_word("unit", word, text, span, _UNITS)
    hint = _OTHER_LANGUAGES.get(pair) or _OTHER_LANGUAGES.get(word) or _hint(word, terminal, before, valid)
    return _misplaced(text, span, _expected(previous, valid), hint)


def misspelt(text: str, span: Span, valid: Collection[str]) -> QueryError | None:
    """The error for a name that is close to one of the words `valid`; None if it is close to none."""
    words = _words(valid)
    close = closest(text[slice(*span)], words)
    return _misplaced(text, span, _expected("", valid), f"did you mean {words[close]}?") if close else None


def no_unit(word: str, text: str, span: Span) -> QueryError:
    """The error for a word after a number that is no unit."""
    error = unknown_word("unit", word, text, span, _UNITS[:-1])
    hint = error.hint or f"a name of your own is given with AS behind a number: AS {word}"
    return QueryError(error.message, text, span, error.expected, hint)


def _misplaced(text: str, span: Span, expected: tuple[str, ...], hint: str | None) -> QueryError:
    word = text[slice(*span)]
    shown = word if len(word) <= 40 else word[:39] + "…"
    return QueryError(f"{shown} cannot stand here", text, span, expected, hint)


def _hint(word: str, terminal: str | None, before: Sequence[str], valid: Collection[str]) -> str | None:
    previous = before[-1] if before else ""
    if {"JOIN", "_ON"} & set(valid) and word.upper() in _OTHER_JOINS:
        return _OTHER_JOINS[word.upper()]
    if terminal == "_SELECT" and tuple(before[-2:]) == ("_IN", "_LPAR"):
        return "write EXISTS (SELECT … WHERE … = …): what is sought is compared in its WHERE"
    if terminal in _IN_EXPRESSIONS and {"INTEGER", "NAME"} <= set(valid):
        return _IN_EXPRESSIONS[terminal]
    if previous in _NAME_AFTER and word.isidentifier():
        return f'{word} is a word of the language: choose another name, or quote it: "{word}"'
    if terminal in _CLAUSES and {"_FROM", "$END"} & set(valid):
        return (
            "a SELECT has each clause once: FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, PUNCTUATE ON in this order"
        )
    words = _words(valid)
    if previous in _SIZE and "PLUS" in valid:
        words |= {unit.upper(): unit for unit in _UNITS[:-1]}
    if close := closest(word, words):
        return f"did you mean {words[close]}?"
    return f"as a name of your own it is given with AS: AS {word}" if word.isidentifier() and "ALIAS" in valid else None


def _words(valid: Collection[str]) -> dict[str, str]:
    """The valid words of the language. In two words such as GROUP BY, the first one is checked for misspelling."""
    names = [name for name in map(_name, sorted(valid)) if name.isupper()]
    return {name.split()[0]: name for name in names}


def _expected(previous: str, valid: Collection[str]) -> tuple[str, ...]:
    """The valid terminals in words, with terminals of one sort named once."""
    # QUOTED is valid wherever a name is, and after IN; CONSTANTS wherever an expression is.
    left = set(valid) - {"_STRAY_COMMA", "_HINT_OPEN", "QUOTED", "CONSTANTS"}
    names: list[str] = []
    if {"NAME", "INTEGER"} <= left:
        names += ["a field", "a literal", "a function"]
        left -= _EXPRESSION
    elif "NAME" in left:
        names.append(_NAME_AFTER.get(previous, "a stream's name"))
        left.discard("NAME")
    if {"DURATION", "ROWS"} <= left:
        names.append("a size such as 10 minutes or 100 rows")
        left -= _SIZE
    if {"PLUS", "SLASH"} <= left:
        names.append("an operator (+ - * / % & | ^ << >>)")
        left -= _ARITHMETIC
    return (*names, *sorted((_name(terminal) for terminal in left), key=lambda name: (not name.isupper(), name)))


def _name(terminal: str) -> str:
    return _NOUNS.get(terminal) or terminal.strip("_").replace("_", " ")
