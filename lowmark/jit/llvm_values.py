"""Values of the small Python that `translate` understands, and the operations on them as LLVM instructions.

Integers are of 64 bits and wrap; `//`, `%` and `>>` of signed ones round down, as Python's do. An operation has
operands of one type: only constants, and integers beside doubles, are converted.
"""

from __future__ import annotations

import ast
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "BOOL", "FLOAT", "LLVM_TYPES", "SIGNED", "UNSIGNED", "Array", "Const", "Scalar", "TranslationError", "Tuple",
    "Value", "Writer", "common_type", "key_of", "operands_of", "returned_type", "sign_of",
]  # fmt: skip

SIGNED, UNSIGNED, FLOAT, BOOL = "int64", "uint64", "float64", "bool"
LLVM_TYPES = {SIGNED: "i64", UNSIGNED: "i64", FLOAT: "double", BOOL: "i1"}

_ELEMENTS = {"uint8": ("i8", "zext"), "int32": ("i32", "sext"), "uint32": ("i32", "zext"), "int64": ("i64", "")}
"""By element type of an array: the type in memory, and the instruction that widens it to 64 bits."""

_RANGES = {SIGNED: (-(1 << 63), (1 << 63) - 1), UNSIGNED: (0, (1 << 64) - 1)}

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_FOLDS: dict[str, Callable[..., int | float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_INTEGER = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor", "<<": "shl"}
_DOUBLE = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_EQUAL = {"==": "eq", "!=": "ne"}
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class TranslationError(Exception):
    """A function uses something that cannot be translated."""

    def __init__(self, problem: str, statement: str | None = None) -> None:
        super().__init__(problem if statement is None else f"{problem}, in {statement}")
        self.has_place = statement is not None


@dataclass(frozen=True, slots=True)
class Const:
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Scalar:
    type: str
    text: str  # an LLVM operand


@dataclass(frozen=True, slots=True)
class Array:
    """C-contiguous, of one or two dimensions. `constant`: nothing writes to it while the code runs."""

    element: str
    constant: bool
    data: str
    shape: tuple[Const | Scalar, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    items: tuple[Value, ...]


Value = Const | Scalar | Array | Tuple | None


class Writer:
    """The body of one LLVM function, written instruction by instruction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.label = "entry"
        self.open = True  # the current block has no terminator yet
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def new_label(self) -> str:
        self._names += 1
        return f"b{self._names}"

    def let(self, instruction: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def end(self, terminator: str) -> None:
        if self.open:
            self.do(terminator)
            self.open = False

    def jump(self, label: str) -> None:
        self.end(f"br label %{label}")

    def begin(self, label: str) -> None:
        """Start a block; a block that is still open jumps to it."""
        self.jump(label)
        self.lines.append(f"{label}:")
        self.label, self.open = label, True

    # Conversions.

    def scalar(self, value: Value, type_: str | None = None) -> Scalar:
        """The value as an operand, of `type_` if given. Converts only constants, and integers to doubles."""
        if isinstance(value, Const):
            return _operand(value.value, type_ or _type_of(value.value))
        if not isinstance(value, Scalar):
            raise TranslationError("a number is needed here")
        if type_ in (None, value.type):
            return value
        if type_ == FLOAT and value.type in (SIGNED, UNSIGNED):
            return self.as_double(value)
        raise TranslationError(f"{value.type} where {type_} is needed")

    def as_double(self, value: Scalar) -> Scalar:
        if value.type == FLOAT:
            return value
        sign = "sitofp" if value.type == SIGNED else "uitofp"
        return Scalar(FLOAT, self.let(f"{sign} {LLVM_TYPES[value.type]} {value.text} to double"))

    def as_integer(self, value: Value, type_: str) -> Scalar:
        """The value as np.int64 or np.uint64 converts it."""
        if isinstance(value, Const):
            return _operand(_whole(value.value), type_)
        given = self.scalar(value)
        if given.type == BOOL:
            return Scalar(type_, self.let(f"zext i1 {given.text} to i64"))
        if given.type == FLOAT:
            return Scalar(type_, self.let(f"{'fptosi' if type_ == SIGNED else 'fptoui'} double {given.text} to i64"))
        return Scalar(type_, given.text)

    def whole(self, value: Value) -> Const | Scalar:
        """The value as `int` converts it."""
        if isinstance(value, Const):
            return Const(_whole(value.value))
        given = self.scalar(value)
        return given if given.type == UNSIGNED else self.as_integer(given, SIGNED)

    def truth(self, value: Value) -> Const | Scalar:
        if isinstance(value, Const):
            return Const(bool(value.value))
        given = self.scalar(value)
        return given if given.type == BOOL else self.scalar(self.compared("!=", given, Const(0)))

    def alike(self, a: Value, b: Value) -> tuple[Scalar, Scalar]:
        """Both as operands of one type."""
        if isinstance(a, Const) and isinstance(b, Const):
            type_ = FLOAT if FLOAT in (_type_of(a.value), _type_of(b.value)) else _type_of(a.value)
            return self.scalar(a, type_), self.scalar(b, type_)
        if isinstance(a, Const):
            other, given = self.alike(b, a)
            return given, other
        first = self.scalar(a)
        if isinstance(b, Const) and isinstance(b.value, float):
            return self.scalar(first, FLOAT), self.scalar(b, FLOAT)
        if isinstance(b, Scalar) and b.type == FLOAT:
            return self.scalar(first, FLOAT), b
        return first, self.scalar(b, first.type)

    # Arithmetic.

    def computed(self, sign: str, a: Value, b: Value) -> Const | Scalar:
        if isinstance(a, Const) and isinstance(b, Const):
            return Const(_folded(sign, a.value, b.value))
        left, right = self.alike(a, b)
        if sign == "/":
            left, right = self.as_double(left), self.as_double(right)
        type_ = left.type
        if type_ == FLOAT:
            if sign == "%":
                return self._double_rest(left.text, right.text)
            if sign not in _DOUBLE:
                raise TranslationError(f"{sign} of doubles")
            return Scalar(FLOAT, self.let(f"{_DOUBLE[sign]} double {left.text}, {right.text}"))
        if type_ == BOOL and sign not in ("&", "|", "^"):
            raise TranslationError(f"{sign} of booleans")
        operands = f"{LLVM_TYPES[type_]} {left.text}, {right.text}"
        if sign == ">>":
            return Scalar(type_, self.let(f"{'ashr' if type_ == SIGNED else 'lshr'} {operands}"))
        if sign in ("//", "%"):
            return Scalar(type_, self._divided(sign, type_, left.text, right.text))
        return Scalar(type_, self.let(f"{_INTEGER[sign]} {operands}"))

    def _divided(self, sign: str, type_: str, a: str, b: str) -> str:
        if type_ == UNSIGNED:
            return self.let(f"{'udiv' if sign == '//' else 'urem'} i64 {a}, {b}")
        rest = self.let(f"srem i64 {a}, {b}")
        turned = self.let(f"icmp slt i64 {self.let(f'xor i64 {rest}, {b}')}, 0")
        off = self.let(f"and i1 {turned}, {self.let(f'icmp ne i64 {rest}, 0')}")
        if sign == "//":
            return self.let(f"sub i64 {self.let(f'sdiv i64 {a}, {b}')}, {self.let(f'zext i1 {off} to i64')}")
        return self.let(f"add i64 {rest}, {self.let(f'select i1 {off}, i64 {b}, i64 0')}")

    def _double_rest(self, a: str, b: str) -> Scalar:
        """The remainder as in Python: it has the sign of the divisor, even if it is zero."""
        rest = self.let(f"frem double {a}, {b}")
        negative, turned = (self.let(f"fcmp olt double {of}, 0.0") for of in (b, rest))
        off = self.let(f"xor i1 {negative}, {turned}")
        moved = self.let(f"select i1 {off}, double {self.let(f'fadd double {rest}, {b}')}, double {rest}")
        zero = self.let(f"select i1 {negative}, double -0.0, double 0.0")
        none = self.let(f"fcmp oeq double {rest}, 0.0")
        return Scalar(FLOAT, self.let(f"select i1 {none}, double {zero}, double {moved}"))

    def negated(self, value: Value) -> Const | Scalar:
        if isinstance(value, Const):
            return Const(-value.value)
        given = self.scalar(value)
        if given.type == BOOL:
            raise TranslationError("- of a boolean")
        if given.type == FLOAT:
            return Scalar(FLOAT, self.let(f"fneg double {given.text}"))
        return Scalar(given.type, self.let(f"sub i64 0, {given.text}"))

    def inverted(self, value: Value) -> Const | Scalar:
        if isinstance(value, Const):
            return Const(~_whole(value.value))
        given = self.scalar(value)
        if given.type not in (SIGNED, UNSIGNED):
            raise TranslationError(f"~ of {given.type}")
        return Scalar(given.type, self.let(f"xor i64 {given.text}, -1"))

    def untrue(self, value: Value) -> Const | Scalar:
        given = self.truth(value)
        if isinstance(given, Const):
            return Const(not given.value)
        return Scalar(BOOL, self.let(f"xor i1 {given.text}, true"))

    def compared(self, sign: str, a: Value, b: Value) -> Const | Scalar:
        if isinstance(a, Const) and isinstance(b, Const):
            return Const(bool(_FOLDS[sign](a.value, b.value)))
        left, right = self.alike(a, b)
        if left.type == FLOAT:
            test = "une" if sign == "!=" else f"o{(_EQUAL | _ORDER)[sign]}"
            return Scalar(BOOL, self.let(f"fcmp {test} double {left.text}, {right.text}"))
        test = _EQUAL.get(sign) or f"{'s' if left.type == SIGNED else 'u'}{_ORDER[sign]}"
        return Scalar(BOOL, self.let(f"icmp {test} {LLVM_TYPES[left.type]} {left.text}, {right.text}"))

    def either(self, condition: Value, one: Value, other: Value) -> Const | Scalar:
        """One value or the other; both are computed."""
        test = self.truth(condition)
        a, b = self.alike(one, other)
        if isinstance(test, Const):
            return a if test.value else b
        type_ = LLVM_TYPES[a.type]
        return Scalar(a.type, self.let(f"select i1 {test.text}, {type_} {a.text}, {type_} {b.text}"))

    # Memory.

    def place(self, array: Array, indices: tuple[Value, ...]) -> str:
        """A pointer to an element. Negative indices do not count from the end."""
        if len(indices) != len(array.shape):
            raise TranslationError(f"{len(indices)} indices into an array of {len(array.shape)} dimensions")
        at = self.as_integer(indices[0], SIGNED).text
        if len(indices) == 2:
            row = self.let(f"mul i64 {at}, {self.scalar(array.shape[1]).text}")
            at = self.let(f"add i64 {row}, {self.as_integer(indices[1], SIGNED).text}")
        return self.let(f"getelementptr inbounds {_ELEMENTS[array.element][0]}, ptr {array.data}, i64 {at}")

    def load(self, array: Array, indices: tuple[Value, ...]) -> Scalar:
        memory, widen = _ELEMENTS[array.element]
        always = ", !invariant.load !0" if array.constant else ""
        word = self.let(f"load {memory}, ptr {self.place(array, indices)}{always}")
        return Scalar(SIGNED, self.let(f"{widen} {memory} {word} to i64") if widen else word)

    def store(self, array: Array, indices: tuple[Value, ...], value: Value) -> None:
        if array.constant:
            raise TranslationError("a store into an array that is only read")
        memory, widen = _ELEMENTS[array.element]
        word = self.as_integer(value, SIGNED).text
        if widen:
            word = self.let(f"trunc i64 {word} to {memory}")
        self.do(f"store {memory} {word}, ptr {self.place(array, indices)}")


def _type_of(value: int | float | bool) -> str:
    return BOOL if isinstance(value, bool) else SIGNED if isinstance(value, int) else FLOAT


def _folded(sign: str, a: int | float, b: int | float) -> int | float:
    try:
        return _FOLDS[sign](a, b)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise TranslationError(f"{a} {sign} {b}: {error}") from None


def _whole(value: int | float) -> int:
    """The constant as an integer, truncated towards 0 as Python does."""
    try:
        return int(value)
    except (ArithmeticError, ValueError):
        raise TranslationError(f"{value} is no integer") from None


def _operand(value: int | float | bool, type_: str) -> Scalar:
    if type_ == BOOL:
        if not isinstance(value, bool):
            raise TranslationError(f"{value} is no boolean")
        return Scalar(BOOL, "true" if value else "false")
    if type_ == FLOAT:
        return Scalar(FLOAT, f"0x{struct.unpack('>Q', struct.pack('>d', float(value)))[0]:016X}")
    if isinstance(value, float):
        raise TranslationError(f"{value} is no integer")
    least, most = _RANGES[type_]
    if not least <= value <= most:
        raise TranslationError(f"{value} is outside {type_}")
    return Scalar(type_, str(int(value)))


def key_of(value: Value) -> object:
    """A key that is equal for arguments that share one translation of a function."""
    match value:
        case Const(number):
            return repr(number)
        case Scalar(type_):
            return type_
        case Array(element, constant, _, shape):
            return element, constant, *map(key_of, shape)
        case Tuple(items):
            return tuple(map(key_of, items))
    return None


def operands_of(value: Value) -> list[tuple[str, str]]:
    """The operands, with their types, that pass a value to a function."""
    match value:
        case Scalar(type_, text):
            return [(LLVM_TYPES[type_], text)]
        case Array(_, _, data, shape):
            return [("ptr", data), *(pair for size in shape for pair in operands_of(size))]
        case Tuple(items):
            return [pair for item in items for pair in operands_of(item)]
    return []


def returned_type(returned: str) -> str:
    """The LLVM return type for `returned`: types separated by commas."""
    if returned == "":
        return "void"
    kinds = [LLVM_TYPES[kind] for kind in returned.split(",")]
    return kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"


def common_type(values: Sequence[Value]) -> str | None:
    """The type of alternative values: that of the first that is not constant, else one that fits all constants."""
    types = [value.type for value in values if isinstance(value, Scalar)]
    if types:
        return types[0]
    numbers = [value.value for value in values if isinstance(value, Const)]
    if all(isinstance(number, bool) for number in numbers):
        return BOOL
    return FLOAT if any(isinstance(number, float) for number in numbers) else SIGNED


def sign_of(op: ast.operator | ast.cmpop) -> str:
    if (sign := _SIGNS.get(type(op))) is None:
        raise TranslationError(f"{type(op).__name__} is not understood")
    return sign
