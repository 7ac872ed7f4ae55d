"""The parser that lark makes from grammar.lark, cached on disk: making it takes longer than the rest of a query."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from io import BytesIO

from lark import Lark

from lowmark.jit.cache_folder import load_cached, store_cached

__all__ = ["grammar"]

_OPTIONS = {"start": "script", "parser": "lalr", "maybe_placeholders": True, "propagate_positions": True}


@cache
def grammar() -> Lark:
    source = (files("lowmark.query.parse") / "grammar.lark").read_text(encoding="utf-8")
    made_of = repr((source, sorted(_OPTIONS.items()), version("lark"))).encode()
    name = hashlib.sha256(made_of).hexdigest()[:24]
    found = _load(name)
    if found is None:
        found = Lark(source, **_OPTIONS)
        content = BytesIO()
        found.save(content)
        store_cached("grammars", name, hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    return found


def _load(name: str) -> Lark | None:
    """The stored parser; None if there is no file, or an incomplete one."""
    content = load_cached("grammars", name)
    if content is None or hashlib.sha256(content[32:]).digest() != content[:32]:
        return None
    return Lark.load(BytesIO(content[32:]))
