"""Parses query text to the syntax tree.

`parse` is the only entry. The first call loads the grammar, importing does not; a query takes a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lark import ParseTree, Token
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.visitors import v_args

from lowmark.query.parse import syntax as s
from lowmark.query.parse.errors import QueryError, misspelt, no_unit, syntax_error, too_large
from lowmark.query.parse.expression_parser import ExpressionBuilder, first_constant, with_span
from lowmark.query.parse.grammar import grammar
from lowmark.query.parse.size_limits import CHARACTERS, NESTING, WORDS, TooLarge
from lowmark.query.parse.syntax import Span

_WORD_PRIORITY = 5  # priority of the language's words in grammar.lark


def parse(text: str) -> s.Script:
    """The statements of a query. Raises QueryError, with the place in the text, for anything that is wrong."""
    try:
        script = _Builder(text).transform(_tree(text))
        _check_nesting(script)
    except TooLarge as error:
        raise too_large(error, text, Span(0, len(text))) from None
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, QueryError):
            raise error.orig_exc from None
        raise
    return script


def _tree(text: str) -> ParseTree:
    """Parse the text, and stop at the first word beyond the limit: reading them all is the slow part."""
    if len(text) > CHARACTERS.most:
        raise TooLarge(CHARACTERS, f"this query has {len(text):,} characters", Span(CHARACTERS.most, len(text)))
    reading = grammar().parse_interactive(text)
    token = None
    tokens = reading.lexer_thread.lex(reading.parser_state)  # type: ignore[no-untyped-call]  # lark declares no type here
    for words, token in enumerate(tokens):
        if words == WORDS.most:
            start = token.start_pos or 0
            raise TooLarge(WORDS, "this query has too many words", Span(start, start + len(token)))
        reading.feed_token(token)
    tree: ParseTree = reading.feed_eof(token)  # type: ignore[no-untyped-call]  # lark declares no type here
    return tree


def _syntax_error(text: str, error: UnexpectedInput) -> QueryError:
    start = len(text) if error.pos_in_stream is None else error.pos_in_stream
    terminal = None
    word = re.compile(r"\w+|.|$", re.DOTALL).match(text, start)
    end = word.end() if word else start
    if isinstance(error, UnexpectedToken):
        terminal = _word(error.token) if error.token.type == "ALIAS" else error.token.type
        end = start + len(error.token)
        if terminal == "CONSTANTS":  # outside of a list, only the first constant counts
            terminal, end = first_constant(text, start)
        elif terminal == "$END":
            start = end = len(text)
    history, valid = _before(text[:start])
    if history and history[-1].type == "ALIAS":  # it may be a misspelt word of the language
        spot = history[-1].start_pos or 0
        meant = misspelt(text, Span(spot, spot + len(history[-1])), _before(text[:spot])[1])
        if meant is not None:
            return meant
    return syntax_error(text, Span(start, end), terminal, [token.type for token in history], valid)


def _word(token: Token) -> str:
    """The terminal that a word is elsewhere: the lexer takes words for an alias in more places than the parser does."""
    words = (item for item in grammar().terminals if item.priority == _WORD_PRIORITY)
    return next((item.name for item in words if re.fullmatch(item.pattern.to_regexp(), token)), "NAME")


def _before(text: str) -> tuple[list[Token], set[str]]:
    """The tokens of the beginning of a query, and what the parser accepts after them. The text is parsed again up to
    the error, because LALR may already have reduced when it saw the wrong token."""
    parser = grammar().parse_interactive(text)
    tokens = list(parser.exhaust_lexer())
    return tokens, parser.accepts()  # type: ignore[no-untyped-call]  # lark declares no type here


def _check_nesting(script: s.Script) -> None:
    level: list[s.SyntaxNode] = [script]
    for _ in range(NESTING.most):
        level = [child for node in level for child in _deeper(node)]
    if level:
        hint = "compute a part of it in a CREATE STREAM before"
        raise TooLarge(NESTING, "this is nested too deep", level[0].span, hint)


def _deeper(node: s.SyntaxNode) -> Iterator[s.SyntaxNode]:
    """The nodes one level deeper. An operation on the left of another one adds no level: `a + b + c` is read so."""
    while isinstance(node, s.Binary) and isinstance(node.left, s.Binary):
        yield node.right
        node = node.left
    yield from s.children(node)


class _SelectItem(NamedTuple):
    item: s.SelectItem
    windows: tuple[s.WindowClause | None, ...]  # windows written around it


class _SelectList(NamedTuple):
    items: tuple[s.SelectItem, ...]
    window: s.WindowClause | None


class _Parameter(NamedTuple):
    """One parameter of a window: RANGE and SLIDE have a size, the others an attribute."""

    name: str
    span: Span
    size: s.Size | None = None
    everything: s.Everything | None = None
    attribute: s.Expression | None = None
    tumbling: bool = False


@v_args(wrapper=with_span)
class _Builder(ExpressionBuilder):
    """The rules above expressions: statements, their clauses and windows."""

    def script(self, span: Span, *statements: s.Statement | None) -> s.Script:
        present = tuple(statement for statement in statements if statement is not None)
        if not present:
            spot = Span(len(self._text), len(self._text))
            raise QueryError("there is no query here", self._text, spot, ("SELECT", "CREATE STREAM"))
        return s.Script(present, span=span)

    def create_stream(self, span: Span, name: s.Identifier, select: s.Select) -> s.CreateStream:
        return s.CreateStream(name, select, span=span)

    def select(
        self,
        span: Span,
        hints: tuple[s.Hint, ...] | None,
        distinct: Token | None,
        selected: _SelectList,
        sources: tuple[s.Source, ...],
        where: s.Expression | None,
        group_by: tuple[s.GroupItem, ...] | None,
        having: s.Expression | None,
        order_by: tuple[s.OrderItem, ...] | None,
        limit: s.IntegerLiteral | None,
        punctuate: s.Punctuate | None,
    ) -> s.Select:
        return s.Select(
            distinct is not None, *selected, sources, where, group_by or (), having, order_by or (), limit, hints or (),
            punctuate, span=span,
        )  # fmt: skip

    def punctuate(self, span: Span, *parts: s.FieldRef | s.Expression | None) -> s.Punctuate:
        *fields, linger = parts
        assert linger is None or isinstance(linger, s.DurationLiteral)
        return s.Punctuate(tuple(ref for ref in fields if isinstance(ref, s.FieldRef)), linger, span=span)

    def hints(self, _span: Span, *hints: s.Hint) -> tuple[s.Hint, ...]:
        return hints

    def hint(self, span: Span, word: s.Identifier, *names: s.FieldRef) -> s.Hint:
        return s.Hint(word, names, span=span)

    def select_list(self, _span: Span, *items: _SelectItem) -> _SelectList:
        windows = [window for item in items for window in item.windows if window]
        if len(windows) > 1:
            raise self._error("this SELECT has a window already: all its aggregates share one", windows[1].span)
        return _SelectList(tuple(item.item for item in items), windows[0] if windows else None)

    def select_item(
        self,
        _span: Span,
        before: s.WindowClause | None,
        expression: s.Expression | s.Star,
        behind: s.WindowClause | None,
        named: tuple[s.Identifier, s.WindowClause | None] | None,
    ) -> _SelectItem:
        alias, last = named or (None, None)
        self._check_unit(expression, alias)
        span = Span(expression.span.start, (alias or expression).span.end)
        return _SelectItem(s.SelectItem(expression, alias, span=span), (before, behind, last))

    def alias(self, span: Span, word: Token) -> s.Identifier:
        return self.identifier(span, word)

    def alias_window(
        self, _span: Span, alias: s.Identifier, window: s.WindowClause | None
    ) -> tuple[s.Identifier, s.WindowClause | None]:
        return alias, window

    def group_by(self, _span: Span, *items: s.GroupItem) -> tuple[s.GroupItem, ...]:
        return items

    def group_item(self, span: Span, expression: s.Expression, alias: s.Identifier | None) -> s.GroupItem:
        self._check_unit(expression, alias)
        return s.GroupItem(expression, alias, span=span)

    def _check_unit(self, expression: s.Expression | s.Star, alias: s.Identifier | None) -> None:
        """Refuse an alias without AS after a number: a word there is a unit."""
        if alias is None or alias.quoted or self._text[expression.span.end : alias.span.start].strip():
            return
        end = expression.span.end
        if any(isinstance(n, s.IntegerLiteral | s.DecimalLiteral) and n.span.end == end for n in s.walk(expression)):
            raise no_unit(alias.text, self._text, alias.span)

    def order_by(self, _span: Span, *items: s.OrderItem) -> tuple[s.OrderItem, ...]:
        return items

    def order_item(self, span: Span, expression: s.Expression, direction: Token | None) -> s.OrderItem:
        return s.OrderItem(expression, direction is not None and direction.type == "DESC", span=span)

    def sources(self, _span: Span, *sources: s.Source) -> tuple[s.Source, ...]:
        return sources

    def join(
        self, span: Span, left: s.Source, kind: s.JoinKind, right: s.Input, condition: s.Expression
    ) -> s.JoinSource:
        return s.JoinSource(kind, left, right, condition, span=span)

    def join_kind(self, _span: Span, *words: Token | None) -> s.JoinKind:
        types = {word.type for word in words if word}
        # LEFT may stand before SEMI and ANTI, so SEMI and ANTI are looked for first.
        named = (s.JoinKind[name] for name in ("SEMI", "ANTI", "LEFT", "RIGHT", "FULL") if name in types)
        return next(named, s.JoinKind.INNER)

    def input(
        self, span: Span, relation: s.Relation, window: s.WindowClause | None, alias: s.Identifier | None
    ) -> s.Input:
        return s.Input(relation, alias, window, span=span)

    def input_alias_first(
        self, span: Span, relation: s.Relation, alias: s.Identifier, window: s.WindowClause
    ) -> s.Input:
        return s.Input(relation, alias, window, span=span)

    def relation(self, span: Span, *members: s.Relation) -> s.Union:
        return s.Union(members, span=span)

    def stream(self, span: Span, name: s.Identifier) -> s.StreamRef:
        return s.StreamRef(name, span=span)

    def subquery(self, span: Span, select: s.Select) -> s.Subquery:
        return s.Subquery(select, span=span)

    # Windows

    def window(self, span: Span, *parameters: _Parameter) -> s.WindowClause:
        given: dict[str, _Parameter] = {}
        for parameter in parameters:
            if parameter.name in given and parameter.name != "PA_MORE":
                raise self._error(f"this window has {parameter.name} already", parameter.span)
            given[parameter.name] = parameter
        none = _Parameter("", span)
        extent = given.get("RANGE", none)
        return s.WindowClause(
            range=extent.everything or extent.size,
            tumbling=extent.tumbling,
            slide=given.get("SLIDE", none).size,
            wa=given.get("WA", none).attribute,
            rattr=given.get("RATTR", none).attribute,
            sattr=given.get("SATTR", none).attribute,
            pa=tuple(item.attribute for item in parameters if item.name in {"PA", "PA_MORE"} and item.attribute),
            span=span,
        )

    def range(self, span: Span, size: s.Size) -> _Parameter:
        return _Parameter("RANGE", span, size=size)

    def range_tumbling(self, span: Span, size: s.Size) -> _Parameter:
        return _Parameter("RANGE", span, size=size, tumbling=True)

    def range_all(self, span: Span) -> _Parameter:
        return _Parameter("RANGE", span, everything=s.Everything(span=span))

    def slide(self, span: Span, size: s.Size) -> _Parameter:
        return _Parameter("SLIDE", span, size=size)

    def wa(self, span: Span, attribute: s.Expression) -> _Parameter:
        return _Parameter("WA", span, attribute=attribute)

    def rattr(self, span: Span, attribute: s.Expression) -> _Parameter:
        return _Parameter("RATTR", span, attribute=attribute)

    def sattr(self, span: Span, attribute: s.Expression) -> _Parameter:
        return _Parameter("SATTR", span, attribute=attribute)

    def pa(self, span: Span, attribute: s.Expression) -> _Parameter:
        return _Parameter("PA", span, attribute=attribute)

    def pa_more(self, span: Span, attribute: s.Expression) -> _Parameter:
        return _Parameter("PA_MORE", span, attribute=attribute)
