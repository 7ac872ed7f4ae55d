"""Lowered expressions: typed trees over a small set of primitive operations.

Analysis lowers a query's expressions once, without aliases, BETWEEN, whole seconds and prefixes. The kernel generator
and the evaluator over columns (`evaluate.py`) both use this form, so they agree on its meaning:

- integers are int64. A `checked` operation whose result leaves int64 gives null and is reported as an overflow; what
  depends on it is *lost* (`evaluate.Values`). Results of other operations fit, or wrap (in the lifts of sums of squares
  and of sketches, which are designed for that);
- FLOOR_DIV and MOD round down and give null for division by zero, as FLOAT_DIV and FLOAT_MOD do;
- any null argument gives null, except in AND, OR (three-valued logic) and IS_NULL;
- shifts are by 0…63, any other distance gives null; SHIFT_RIGHT keeps the sign;
- addresses compare IPv4 before IPv6, each numerically (a literal address is its version above its 128 bits);
- IN means EQ with one of its constants: -0.0 is 0.0, and NaN is in no set;
- HASH and COARSE are what sketches count by: they are part of the meaning of partials, and never change.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from lowmark.query.expr.constant_sets import Ranges
from lowmark.query.parse.size_limits import LEVELS, OPERATIONS, TooLarge
from lowmark.wire.rows.schema import Column, Kind

__all__ = [
    "Call",
    "Expr",
    "Field",
    "Interval",
    "Literal",
    "Named",
    "Op",
    "Ranges",
    "fields",
    "inside_out",
    "is_checked",
]

Interval = tuple[int, int]
"""The least and the greatest value, both included."""


class Op(Enum):
    # int64 words: INT, BOOL, TIME, DURATION, MAC, STR
    NEG = auto()
    INVERT = auto()
    ADD = auto()
    SUB = auto()
    MUL = auto()
    FLOOR_DIV = auto()
    MOD = auto()
    BIT_AND = auto()
    BIT_OR = auto()
    BIT_XOR = auto()
    SHIFT_LEFT = auto()
    SHIFT_RIGHT = auto()
    # doubles
    TO_FLOAT = auto()
    FLOAT_NEG = auto()
    FLOAT_ADD = auto()
    FLOAT_SUB = auto()
    FLOAT_MUL = auto()
    FLOAT_DIV = auto()
    FLOAT_MOD = auto()
    # two arguments of one form: words, doubles or addresses
    EQ = auto()
    NE = auto()
    LT = auto()
    LE = auto()
    GT = auto()
    GE = auto()
    PREFIX = auto()  # an address, then the masks for IPv4 and for IPv6 (literals)
    IN = auto()  # a value, and Ranges of its kind
    # sketches
    HASH = auto()  # any arguments to one word; -0.0 is 0.0, all NaNs are one
    COARSE = auto()  # a word or a double to its leading bits; the second argument (a literal, 1 to 52) is their number.
    # Fewer values result, each within 2^-bits of the values it stands for; whole numbers below 2^bits are unchanged
    # truth values
    AND = auto()
    OR = auto()
    NOT = auto()
    IS_NULL = auto()


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the input, by its name there."""

    name: str
    kind: Kind
    nullable: bool = False
    range: Interval | None = field(default=None, compare=False, repr=False)
    """For integers: the range in which it lies, if known. Ranges do not count in comparisons of fields."""

    @classmethod
    def of(cls, column: Column) -> Field:
        return cls(column.name, column.kind, column.nullable)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant in its column form; None is null."""

    value: int | float | None
    kind: Kind
    beside_null: bool = False  # it is in a column in which other rows are null

    @property
    def nullable(self) -> bool:
        return self.value is None or self.beside_null


@dataclass(frozen=True, slots=True)
class Call:
    """An operation. One part may occur many times in an expression, so an expression may be larger than the memory it
    takes; size and hash are computed when it is made. TooLarge if it exceeds a limit."""

    op: Op
    args: tuple[Expr, ...]
    kind: Kind
    nullable: bool
    checked: bool = field(default=False, repr=False)  # for int64 words: null if the result leaves int64
    range: Interval | None = field(default=None, compare=False, repr=False)  # as in Field
    operations: int = field(init=False, repr=False, compare=False)  # counted at every occurrence
    levels: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        operations = levels = 1
        for arg in self.args:
            if isinstance(arg, Call):
                operations += arg.operations
                levels = arg.levels + 1 if arg.levels >= levels else levels
        if operations > OPERATIONS.most:
            raise TooLarge(OPERATIONS, f"this comes to {operations:,} operations", hint=_SMALLER)
        if levels > LEVELS.most:
            raise TooLarge(LEVELS, f"this comes to {levels:,} operations inside one another", hint=_SMALLER)
        object.__setattr__(self, "operations", operations)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "_hash", hash((id(self.op), self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Call], tuple[object, ...]]:
        """Pickle without the hash: another process has other hashes."""
        names: tuple[str, ...] = self.__match_args__
        return Call, tuple(getattr(self, name) for name in names)


_SMALLER = "group or join in between: a stage's columns are computed once"


Expr = Field | Literal | Call | Ranges


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    expr: Expr


def fields(expr: Expr) -> Iterator[str]:
    """Names of the input's columns that an expression reads, repeated at every occurrence."""
    for column in columns_of(expr):
        yield column.name


def columns_of(expr: Expr) -> Iterator[Field]:
    """The input's columns that an expression reads, repeated at every occurrence."""
    pending = [expr]
    while pending:
        item = pending.pop()
        if isinstance(item, Field):
            yield item
        elif isinstance(item, Call):
            pending.extend(reversed(item.args))


def is_checked(expr: Expr) -> bool:
    """Whether an overflow can make one of its values lost."""
    return isinstance(expr, Call) and (expr.checked or any(map(is_checked, expr.args)))


def inside_out(expr: Expr, done: Container[Expr]) -> Iterator[Expr]:
    """The parts of an expression that are not in `done`, and the expression itself, each after its own parts. Callers
    add each one to `done` before they take the next. Sets are no parts: they have no value."""
    pending = [expr]
    while pending:
        item = pending[-1]
        args = item.args if isinstance(item, Call) else ()
        missing = [arg for arg in args if not isinstance(arg, Ranges) and arg not in done]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if item not in done:
            yield item
