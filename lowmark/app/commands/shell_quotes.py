"""Detects a query that the shell has split into words; the error shows the command with quotes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

__all__ = ["QueryCommand"]

_LIVES_IN_DOUBLE_QUOTES = set("$`\\!")


class QueryCommand(typer.core.TyperCommand):
    """A command whose only argument, `sql`, is a query."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, unexpected, _ = self.make_parser(ctx).parse_args(list(args))
        if unexpected:
            words = [given["sql"], *unexpected]
            options = _without(args, words)
            command = " ".join((ctx.command_path, *map(shlex.quote, options), _quoted(" ".join(words))))
            ctx.fail(f"the query is one argument, and it has come as {len(words)}: put it in quotes.\n\n  {command}")
        return super().parse_args(ctx, args)


def _without(args: Sequence[str], words: Sequence[str]) -> list[str]:
    rest = list(args)
    for word in reversed(words):
        at = len(rest) - 1 - rest[::-1].index(word)
        del rest[at]
    return rest


def _quoted(text: str) -> str:
    if "'" in text and not _LIVES_IN_DOUBLE_QUOTES & {*text} and '"' not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text else shlex.quote(text)
