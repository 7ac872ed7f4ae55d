"""Turns lowered expressions into source text over scalars. Each has a flag that says whether it is null and, if a check
can fail, one that says whether it is lost.

A value is one Python expression per word (a variable or a literal). Here FLOAT is a double and BOOL a boolean;
`row_words` converts them to their form in rows. Until then a null value's words are arbitrary.

No statement branches: conditions are joined by & and |, and choices are made in functions of their own. The compiler's
time grows faster than the number of blocks between branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowlevel.kernel.codegen.literals import Literals
from lowlevel.kernel.codegen.membership import SectionNames
from lowlevel.kernel.codegen.source_text import SourceText
from lowmark.query.expr.expressions import Call, Expr, Field, Literal, Op, Ranges, inside_out
from lowmark.wire.rows.schema import Kind

__all__ = ["Scalars", "Value", "less"]

_SIGN = "-0x8000000000000000"
_WORD_FORMS = {
    Op.ADD: "wrap_add({}, {})",
    Op.SUB: "wrap_sub({}, {})",
    Op.MUL: "wrap_mul({}, {})",
    Op.BIT_AND: "{} & {}",
    Op.BIT_OR: "{} | {}",
    Op.BIT_XOR: "{} ^ {}",
}
_LEAVES = {
    Op.NEG: "difference_leaves(0, {})",
    Op.ADD: "sum_leaves({}, {})",
    Op.SUB: "difference_leaves({}, {})",
    Op.MUL: "product_leaves({}, {})",
    Op.FLOOR_DIV: "quotient_leaves({}, {})",
    Op.SHIFT_LEFT: "shifted_leaves({}, {} & 63)",
}
_FLOAT_OPERATORS = {Op.FLOAT_ADD: "+", Op.FLOAT_SUB: "-", Op.FLOAT_MUL: "*"}
_COMPARISONS = {Op.EQ: "==", Op.NE: "!=", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


@dataclass(frozen=True, slots=True)
class Value:
    words: tuple[str, ...]
    null: str | None = None  # a boolean variable, or "True"; None: never null
    lost: str | None = None  # a boolean variable: an overflow affects the value (`evaluate.Values`); None: never


class Scalars:
    """Writes the statements that compute expressions, each expression once."""

    def __init__(
        self, source: SourceText, fields: Mapping[str, tuple[str, ...]], nulls: Mapping[str, str],
        sets: Mapping[Ranges, Sequence[SectionNames]], literals: Literals,
    ) -> None:  # fmt: skip
        """The variables that hold each field's words, those that say whether a field is null, and those that hold the
        sets to search. Constants go to `literals`."""
        self._source = source
        self._fields = fields
        self._nulls = nulls
        self._sets = sets
        self._literals = literals
        self._done: dict[Expr, Value] = {}

    def lost(self, exprs: Iterable[Expr]) -> str | None:
        """Source of a boolean: one of these expressions, already written, is lost. None: no expression can be lost."""
        lost = dict.fromkeys(value.lost for value in map(self.value, exprs) if value.lost is not None)
        return " | ".join(lost) or None

    def value(self, expr: Expr) -> Value:
        for part in inside_out(expr, self._done):
            self._done[part] = self._write(part)
        return self._done[expr]

    def holds(self, condition: Expr) -> str:
        """Source of a boolean: the condition is true, not false and not null."""
        value = self.value(condition)
        return value.words[0] if value.null is None else f"({value.words[0]} & (not {value.null}))"

    def row_words(self, expr: Expr, canonical: bool) -> Value:
        """Convert a value to its form in rows: int64 words, all 0 for a null. `canonical`: one form for all zeros and
        one for all NaNs, so that equal values have equal words."""
        value = self.value(expr)
        words = value.words
        if expr.kind is Kind.FLOAT:
            words = (f"word_of(canonical_double({words[0]}))" if canonical else f"word_of({words[0]})",)
        elif expr.kind is Kind.BOOL:
            words = (f"np.int64({words[0]})",)
        if value.null is None:
            return value if words is value.words else Value(tuple(self._source.let(word) for word in words))
        if value.null == "True":
            return Value(("0",) * len(words), "True")
        return Value(tuple(self._source.let(f"chosen({value.null}, 0, {word})") for word in words), value.null)

    def _write(self, expr: Expr) -> Value:
        match expr:
            case Field(name, kind):
                words = self._fields[name]
                if len(words) != kind.words:
                    raise ValueError(f"field {name} is no {kind.value}")
                return Value(words, self._nulls.get(name))
            case Literal(value, kind):
                return self._literal(value, kind)
            case Ranges():
                raise ValueError("a set is no value")
            case Call(op, args, checked=False):
                return _WRITERS[op](self, op, args)
            case Call(op, args):
                return self._checked(op, args, _WRITERS[op](self, op, args))

    def _checked(self, op: Op, args: tuple[Expr, ...], wrapped: Value) -> Value:
        leaves = self._source.let(_LEAVES[op].format(*map(self._integer, args)))
        if wrapped.null is None:
            return Value(wrapped.words, leaves, leaves)
        lost = f"(not {wrapped.null}) & {leaves}"
        if wrapped.lost is not None:
            lost = f"{wrapped.lost} | ({lost})"
        null = self._source.let(f"{wrapped.null} | {leaves}")
        return Value(wrapped.words, null, self._source.let(lost))

    # One method per family of operations.

    def words(self, op: Op, args: tuple[Expr, ...]) -> Value:
        a, b = (self._integer(arg) for arg in args)
        return self._result(_WORD_FORMS[op].format(a, b), args)

    def negated(self, op: Op, args: tuple[Expr, ...]) -> Value:
        word = self._integer(args[0])
        return self._result(f"wrap_sub(0, {word})" if op is Op.NEG else f"~{word}", args)

    def floored(self, op: Op, args: tuple[Expr, ...]) -> Value:
        a, b = (self._integer(arg) for arg in args)
        divisor = args[1]
        if isinstance(divisor, Literal) and divisor.value is not None and divisor.value > 0:
            whole = f"quotient({a}, {self._literals.divisor(int(divisor.value))})"
            if op is Op.MOD:
                whole = f"wrap_sub({a}, wrap_mul({self._source.let(whole)}, {b}))"
            return self._result(whole, args)
        function = "floor_div" if op is Op.FLOOR_DIV else "floor_mod"
        return self._result(f"{function}({a}, {b})", args, f"({b} == 0)")

    def shifted(self, op: Op, args: tuple[Expr, ...]) -> Value:
        a, b = (self._integer(arg) for arg in args)
        sign = "<<" if op is Op.SHIFT_LEFT else ">>"
        distance = args[1]
        if isinstance(distance, Literal) and distance.value is not None and 0 <= distance.value <= 63:
            return self._result(f"{a} {sign} {b}", args)
        return self._result(f"{a} {sign} ({b} & 63)", args, f"(({b} < 0) | ({b} > 63))")

    def to_float(self, op: Op, args: tuple[Expr, ...]) -> Value:
        return self._result(f"np.float64({self._integer(args[0])})", args)

    def floats(self, op: Op, args: tuple[Expr, ...]) -> Value:
        if op is Op.FLOAT_NEG:
            return self._result(f"-{self._word(args[0])}", args)
        a, b = (self._word(arg) for arg in args)
        return self._result(f"{a} {_FLOAT_OPERATORS[op]} {b}", args)

    def float_divided(self, op: Op, args: tuple[Expr, ...]) -> Value:
        a, b = (self._word(arg) for arg in args)
        sign = "/" if op is Op.FLOAT_DIV else "%"
        divisor = self._source.let(f"chosen({b} == 0.0, 1.0, {b})")
        return self._result(f"{a} {sign} {divisor}", args, f"({b} == 0.0)")

    def compared(self, op: Op, args: tuple[Expr, ...]) -> Value:
        kind = args[0].kind
        if kind.words == 1:
            a, b = (self._word(arg) for arg in args)
            return self._result(f"{a} {_COMPARISONS[op]} {b}", args)
        left, right = (self.value(arg).words for arg in args)
        equal = f"({' & '.join(f'({a} == {b})' for a, b in zip(left, right, strict=True))})"
        text = {
            Op.EQ: equal,
            Op.NE: f"not {equal}",
            Op.LT: less(kind, left, right),
            Op.GT: less(kind, right, left),
            Op.LE: f"not {less(kind, right, left)}",
            Op.GE: f"not {less(kind, left, right)}",
        }[op]
        return self._result(text, args)

    def prefix(self, op: Op, args: tuple[Expr, ...]) -> Value:
        match args:
            case (_, Literal(int(mask4)), Literal(int(mask6))):
                value = self.value(args[0])
                version, high, low = value.words  # for IPv4 the high one is 0, under any mask
                word = self._literals.word
                mask = f"chosen({version} == 4, {word(mask4)}, {word(mask6)})"
                words = (f"{high} & {word(mask6 >> 64)}", f"{low} & {mask}")
                return Value((version, *(self._source.let(word) for word in words)), value.null, value.lost)
        raise ValueError("the masks of a prefix are literals")

    def among(self, op: Op, args: tuple[Expr, ...]) -> Value:
        """Compare with the bounds of a small set; search a larger one."""
        match args:
            case (operand, Ranges() as ranges):
                words = self.row_words(operand, canonical=True).words
                key = [f"({word} ^ {_SIGN})" for word in words] if len(words) > 1 else [*words]
                if (sections := self._sets.get(ranges)) is not None:
                    tests = [_in_section(key, section) for section in sections]
                else:
                    rows = ranges.matrix.tolist()
                    tests = [f"({self._between(key, row[: len(key)], row[len(key) :])})" for row in rows]
                return self._result(" | ".join(tests) or "False", (operand,))
        raise ValueError("IN asks for a value in a set")

    def _between(self, words: Sequence[str], first: Sequence[int], last: Sequence[int]) -> str:
        """Source of a boolean: the words, compared in turn, lie between two constants (included)."""
        word = self._literals.word
        if first == last:
            return " & ".join(f"({each} == {word(value)})" for each, value in zip(words, first, strict=True))
        if first[0] == last[0]:
            return f"({words[0]} == {word(first[0])}) & {self._between(words[1:], first[1:], last[1:])}"
        return f"{_not_before(words, [*map(word, first)])} & {_not_before([*map(word, last)], words)}"

    def hashed(self, op: Op, args: tuple[Expr, ...]) -> Value:
        text = "0"
        for arg in args:
            for word in self.row_words(arg, canonical=True).words:
                text = f"mixed({text}, {word})"
        return self._result(text, args)

    def coarse(self, op: Op, args: tuple[Expr, ...]) -> Value:
        function = "coarse_double" if args[0].kind is Kind.FLOAT else "coarse_word"
        return self._result(f"{function}({self._word(args[0])}, {self._word(args[1])})", args)

    def both(self, op: Op, args: tuple[Expr, ...]) -> Value:
        """AND and OR: a deciding operand makes the result false or true, even if the other is null."""
        values = [self.value(arg) for arg in args]
        decides = "not " if op is Op.AND else ""
        if all(value.null is None for value in values):
            sign = " & " if op is Op.AND else " | "
            both = self._source.let(sign.join(value.words[0] for value in values))
            return Value((both,), None, self._undecided(decides, values))
        decided = self._source.let(
            " | ".join(
                f"({decides}{value.words[0]})"
                if value.null is None
                else f"(({decides}{value.words[0]}) & (not {value.null}))"
                for value in values
            )
        )
        some_null = " | ".join(value.null for value in values if value.null is not None)
        null = self._source.let(f"(not {decided}) & ({some_null})")
        return Value((f"(not {decided})" if op is Op.AND else decided,), null, self._undecided(decides, values))

    def _undecided(self, decides: str, values: Sequence[Value]) -> str | None:
        """Source of a boolean: one value is lost, and no other value decides the result."""
        lost = [value.lost for value in values if value.lost is not None]
        if not lost:
            return None
        surely = []
        for value in values:
            flags = (f"(not {flag})" for flag in (value.null, value.lost) if flag is not None)
            surely.append(" & ".join((f"({decides}{value.words[0]})", *flags)))
        return self._source.let(f"({' | '.join(lost)}) & (not ({' | '.join(f'({each})' for each in surely)}))")

    def inverted(self, op: Op, args: tuple[Expr, ...]) -> Value:
        return self._result(f"not {self._word(args[0])}", args)

    def is_null(self, op: Op, args: tuple[Expr, ...]) -> Value:
        value = self.value(args[0])
        return Value((value.null or "False",), None, value.lost)

    def _result(self, text: str, args: tuple[Expr, ...], or_null: str | None = None) -> Value:
        """A value of one word; null if an argument is, or if `or_null` is true for the second one."""
        nulls = [null for arg in args if (null := self.value(arg).null) is not None]
        word = self._source.let(text)
        if or_null is not None:
            nulls.append(or_null)
        lost = self._inherited(args, or_null)
        return Value((word,), self._source.let(" | ".join(nulls)) if nulls else None, lost)

    def _inherited(self, args: tuple[Expr, ...], or_null: str | None) -> str | None:
        """Source of a boolean: one argument is lost, and no argument is null for another reason."""
        values = [self.value(arg) for arg in args]
        lost = [value.lost for value in values if value.lost is not None]
        if not lost:
            return None
        possible = [(value.null, value) for value in values if value.null is not None]
        possible += [] if or_null is None else [(or_null, values[1])]
        nulls = [null for each in possible if (null := _not_lost(*each)) is not None]
        by_itself = f" & (not ({' | '.join(nulls)}))" if nulls else ""
        return self._source.let(f"({' | '.join(lost)}){by_itself}")

    def _literal(self, value: int | float | None, kind: Kind) -> Value:
        """Write a constant. A null or a boolean shapes the text; all other constants are data."""
        if value is None:
            zero = "0.0" if kind is Kind.FLOAT else "False" if kind is Kind.BOOL else "0"
            return Value((zero,) * kind.words, "True")
        if kind is Kind.FLOAT:
            return Value((self._literals.double(float(value)),))
        if kind is Kind.BOOL:
            return Value((str(bool(value)),))
        shifts = range(64 * kind.words - 64, -1, -64)
        return Value(tuple(self._literals.word(int(value) >> shift) for shift in shifts))

    def _word(self, expr: Expr) -> str:
        return self.value(expr).words[0]

    def _integer(self, expr: Expr) -> str:
        word = self._word(expr)
        return f"np.int64({word})" if expr.kind is Kind.BOOL else word


def _not_lost(null: str, value: Value) -> str | None:
    """Source of a boolean: it is null, and not because the value is lost."""
    if value.lost is None:
        return null
    return None if null == value.lost else f"({null} & (not {value.lost}))"


_Writer = Callable[[Scalars, Op, tuple[Expr, ...]], Value]

_WRITERS: dict[Op, _Writer] = {
    **dict.fromkeys(_WORD_FORMS, Scalars.words),
    **dict.fromkeys(_FLOAT_OPERATORS, Scalars.floats),
    **dict.fromkeys(_COMPARISONS, Scalars.compared),
    Op.NEG: Scalars.negated,
    Op.INVERT: Scalars.negated,
    Op.FLOOR_DIV: Scalars.floored,
    Op.MOD: Scalars.floored,
    Op.SHIFT_LEFT: Scalars.shifted,
    Op.SHIFT_RIGHT: Scalars.shifted,
    Op.TO_FLOAT: Scalars.to_float,
    Op.FLOAT_NEG: Scalars.floats,
    Op.FLOAT_DIV: Scalars.float_divided,
    Op.FLOAT_MOD: Scalars.float_divided,
    Op.PREFIX: Scalars.prefix,
    Op.IN: Scalars.among,
    Op.HASH: Scalars.hashed,
    Op.COARSE: Scalars.coarse,
    Op.AND: Scalars.both,
    Op.OR: Scalars.both,
    Op.NOT: Scalars.inverted,
    Op.IS_NULL: Scalars.is_null,
}


def _in_section(key: Sequence[str], section: SectionNames) -> str:
    known = (f"({word} == {section.directory}[{place}])" for place, word in enumerate(key[: section.common]))
    asked = " & ".join(known) or "True"
    value = f"({', '.join(key[section.common :])},)"
    return f"among({section.rows}, {section.directory}, {section.common}, {asked}, {value})"


def _not_before(left: Sequence[str], right: Sequence[str]) -> str:
    if len(left) == 1:
        return f"({left[0]} >= {right[0]})"
    return f"(({left[0]} > {right[0]}) | (({left[0]} == {right[0]}) & {_not_before(left[1:], right[1:])}))"


def less(kind: Kind, left: tuple[str, ...], right: tuple[str, ...]) -> str:
    """Source of a boolean: `left` before `right`, in the order of the kind, both in the form of rows."""
    if kind.words > 1:
        return f"number_less({', '.join((*left, *right))})"
    if kind is Kind.FLOAT:
        return f"double_less(double_of({left[0]}), double_of({right[0]}))"
    return f"{left[0]} < {right[0]}"
