"""Lowered expressions as text, with the language's own signs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lowmark.query.expr.constant_sets import blocks, value_of
from lowmark.query.expr.constants import prefix_mask
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, Ranges
from lowmark.query.windows.panes import Pane
from lowmark.query.windows.progressing import Progress
from lowmark.wire.rows.schema import Kind
from lowmark.wire.rows.values import address, address_version, community_id, mac, seconds, time

__all__ = ["length_text", "pane_text", "span_text", "text_of"]

_SIGNS = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.FLOOR_DIV: "/", Op.MOD: "%",
    Op.BIT_AND: "&", Op.BIT_OR: "|", Op.BIT_XOR: "^", Op.SHIFT_LEFT: "<<", Op.SHIFT_RIGHT: ">>",
    Op.FLOAT_ADD: "+", Op.FLOAT_SUB: "-", Op.FLOAT_MUL: "*", Op.FLOAT_DIV: "/", Op.FLOAT_MOD: "%",
    Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">=",
    Op.IN: "IN", Op.AND: "AND", Op.OR: "OR",
}  # fmt: skip
_FUNCTIONS = {Op.PREFIX, Op.HASH, Op.COARSE}
_SHOWN = 8  # constants of a list
_PREFIXES = {Op.NEG: "-", Op.FLOAT_NEG: "-", Op.INVERT: "~", Op.NOT: "NOT "}


def text_of(expr: Expr, strings: tuple[str, ...] = ()) -> str:
    """The expression as text, with every operation but the outermost in parentheses. `strings`: its schema's texts."""
    match expr:
        case Field(name=name):
            return name
        case Literal():
            return _literal(expr, strings)
        case Ranges():
            return _listed(expr, strings)
        case Call(op=op, args=args):
            return _call(op, args, strings)


def _call(op: Op, args: tuple[Expr, ...], strings: tuple[str, ...]) -> str:
    texts = [text_of(arg, strings) for arg in args]
    parts = [f"({text})" if _compound(arg) else text for arg, text in zip(args, texts, strict=True)]
    match op, args:
        case Op.FLOOR_DIV | Op.MOD, (time_of, Literal(value=int(ns))) if time_of.kind is Kind.TIME:
            parts[1] = span_text(ns)
    match op:
        case Op.TO_FLOAT:
            return parts[0]
        case Op.IS_NULL:
            return f"{parts[0]} IS NULL"
        case Op.PREFIX:
            four, six = (int(mask.value or 0) for mask in args[1:] if isinstance(mask, Literal))
            return f"prefix({texts[0]}, {_length(four, 4)}, {_length(six, 6)})"
        case Op.HASH | Op.COARSE:
            return f"{op.name.lower()}({', '.join(texts)})"
    if op in _PREFIXES:
        return _PREFIXES[op] + parts[0]
    return f" {_SIGNS[op]} ".join(parts)


def _compound(expr: Expr) -> bool:
    while isinstance(expr, Call) and expr.op is Op.TO_FLOAT:
        expr = expr.args[0]
    return isinstance(expr, Call) and expr.op not in _FUNCTIONS


def _listed(ranges: Ranges, strings: tuple[str, ...]) -> str:
    """A set as a prefix if it is one, else as a list, which is cut if it is long."""
    texts = _address_texts(ranges) if ranges.kind is Kind.IP else _range_texts(ranges, strings)
    shown = [*islice(texts, _SHOWN)]
    more = sum(1 for _ in texts)
    if len(shown) == 1 and "/" in shown[0]:
        return shown[0]
    return f"({', '.join(shown)}{f', … {more:,} more' if more else ''})"


def _range_texts(ranges: Ranges, strings: tuple[str, ...]) -> Iterator[str]:
    for span in ranges.spans:
        first, last = (_literal(Literal(value_of(ranges.kind, key), ranges.kind), strings) for key in span)
        if span[1] - span[0] > 1:
            yield f"{first} to {last}"
        else:
            yield from (first, last)[: span[1] - span[0] + 1]


def _address_texts(ranges: Ranges) -> Iterator[str]:
    for span in ranges.spans:
        for first, last in blocks(span):
            length = (32 if address_version(first) == 4 else 128) - (last - first).bit_length()
            yield address(first) if first == last else f"{address(first)}/{length}"


def _length(mask: int, version: int) -> int:
    """The length of the prefixes of this version that have a mask from `prefix_mask`."""
    return mask.bit_count() - prefix_mask(version, 0).bit_count()


def _literal(literal: Literal, strings: tuple[str, ...]) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return repr(value)
    match literal.kind:
        case Kind.BOOL:
            return "true" if value else "false"
        case Kind.TIME:
            return f"'{time(value)}'"
        case Kind.DURATION:
            return span_text(value)
        case Kind.IP:
            return address(value)
        case Kind.MAC:
            return mac(value)
        case Kind.COMMUNITY_ID:
            return f"'{community_id(value)}'"
        case Kind.STR:
            return f"'{strings[value]}'"
    return str(value)


def span_text(ns: int) -> str:
    """A length of time in the greatest unit that divides it."""
    for unit, name in ((60 * 10**9, "min"), (10**9, "s"), (10**6, "ms")):
        if ns and ns % unit == 0:
            return f"{ns // unit} {name}"
    return f"{seconds(ns)} s" if abs(ns) >= 10**9 else f"{ns} ns"


def length_text(value: int, kind: Kind) -> str:
    """A length of an attribute of this kind."""
    return span_text(value) if kind is Kind.TIME else str(value)


def pane_text(pane: Pane, kind: Kind) -> str:
    """A pane as text; `kind`: that of the attribute that panes are cut from."""
    origin = f", beginning at {length_text(pane.origin, kind)}" if pane.origin % pane.width else ""
    counted = Progress("n", pane.steps).over(Field("n", Kind.INT), Kind.INT)
    numbered = f"; the n-th is of pane {text_of(counted)}" if pane.steps else ""
    return f"{length_text(pane.width, kind)} of {pane.attribute}{origin}{numbered}"
