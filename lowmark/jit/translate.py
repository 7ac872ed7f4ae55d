"""Translates functions of a small Python into LLVM's language, without numba: a kernel of some hundred lines takes
milliseconds, where numba takes seconds.

The Python: numbers of 64 bits, booleans, tuples of them, and C-contiguous arrays; functions that call each other and
`Primitive`s; `if`, `while`, `for … in range(…)`. A name has one type in a function. An index is at least 0 and within
its array: nothing checks that. Anything else raises TranslationError at compile time.

A function is translated once for each combination of argument types. An argument stays a constant if the function, or
one that it calls, passes it to a primitive as a width.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lowmark.jit.llvm_values import (
    FLOAT,
    LLVM_TYPES,
    SIGNED,
    UNSIGNED,
    Array,
    Const,
    Scalar,
    TranslationError,
    Tuple,
    Value,
    Writer,
    common_type,
    key_of,
    operands_of,
    returned_type,
    sign_of,
)

__all__ = ["Module", "Primitive"]

_NUMPY = {"nan": Const(math.nan), "inf": Const(math.inf)}
_CASTS = {"int64": SIGNED, "uint64": UNSIGNED, "float64": FLOAT}
_LARGE = 200
"""Instructions. A larger function stays a call. LLVM would copy one that is called once into its caller, whose loops
then have fewer registers: a kernel took 4% more time a packet, and 20% more to compile."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A function that is written as instructions. `widths`: the positions of arguments that must be constants."""

    write: Callable[[Writer, Sequence[Value]], Value]
    widths: frozenset[int] = frozenset()


class Module:
    """The functions and constants of a source text, and the LLVM functions made from them."""

    def __init__(self, text: str, primitives: Mapping[str, Primitive]) -> None:
        self.primitives = primitives
        self.functions: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, Const] = {}
        for statement in ast.parse(text).body:
            match statement:
                case ast.FunctionDef(name=name):
                    self.functions[name] = statement
                case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(int() | float() as value)):
                    self.constants[name] = Const(value)
                case ast.Assign(targets=[ast.Name(name)], value=ast.UnaryOp(ast.USub(), ast.Constant(int() as value))):
                    self.constants[name] = Const(-value)
        self._made: dict[tuple[object, ...], tuple[str, str]] = {}  # name and returned type
        self._widths = {name: primitive.widths for name, primitive in primitives.items()}
        self._within: list[str] = []  # the functions that are being translated, each called by the one before
        self._texts: list[str] = []

    def text(self) -> str:
        """Everything translated so far."""
        return "\n".join([*self._texts, "!0 = !{}", ""])

    def add(self, function: str) -> None:
        """Add a function that is already LLVM text."""
        self._texts.append(function)

    def call(self, writer: Writer, name: str, arguments: Sequence[Value]) -> Value:
        """Write a call; translate the function at its first call with these types."""
        if name in self.primitives:
            return self.primitives[name].write(writer, arguments)
        if name not in self.functions:
            raise TranslationError(f"there is no function {name}")
        widths = self._places_of_widths(name)
        arguments = [
            writer.scalar(value) if isinstance(value, Const) and place not in widths else value
            for place, value in enumerate(arguments)
        ]
        key = (name, *map(key_of, arguments))
        if key not in self._made:
            if name in self._within:
                raise TranslationError(f"{name} calls itself")
            self._within.append(name)
            self._made[key] = self._translated(name, arguments)
            self._within.pop()
        called, returned = self._made[key]
        given = ", ".join(f"{type_} {text}" for value in arguments for type_, text in operands_of(value))
        if returned == "":
            writer.do(f"call void @{called}({given})")
            return None
        result = writer.let(f"call {returned_type(returned)} @{called}({given})")
        kinds = returned.split(",")
        if len(kinds) == 1:
            return Scalar(returned, result)
        part = f"extractvalue {returned_type(returned)} {result}"
        return Tuple(tuple(Scalar(kind, writer.let(f"{part}, {place}")) for place, kind in enumerate(kinds)))

    def _places_of_widths(self, name: str) -> frozenset[int]:
        """The positions of a function's arguments that must be constants."""
        if name not in self._widths:
            self._widths[name] = frozenset()  # stops at a function that calls itself; `call` refuses it
            function = self.functions[name]
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            fixed = {
                argument.id
                for call in calls
                if isinstance(call.func, ast.Name)
                and (call.func.id in self.functions or call.func.id in self.primitives)
                for place, argument in enumerate(call.args)
                if isinstance(argument, ast.Name) and place in self._places_of_widths(call.func.id)
            }
            names = [argument.arg for argument in function.args.args]
            self._widths[name] = frozenset(place for place, each in enumerate(names) if each in fixed)
        return self._widths[name]

    def _translated(self, name: str, arguments: Sequence[Value]) -> tuple[str, str]:
        called = f"{name}.{len(self._made)}"
        self._made[(called,)] = (called, "")  # the next function gets another number
        function = _Function(self, self.functions[name])
        parameters: list[str] = []

        def parameter(value: Value) -> Value:
            match value:
                case Const():
                    return value
                case Scalar(type_):
                    parameters.append(f"{LLVM_TYPES[type_]} %a{len(parameters)}")
                    return Scalar(type_, f"%a{len(parameters) - 1}")
                case Array(element, constant, _, shape):
                    parameters.append(f"ptr %a{len(parameters)}")
                    data = f"%a{len(parameters) - 1}"
                    sizes = tuple(parameter(size) for size in shape)
                    return Array(element, constant, data, sizes)  # type: ignore[arg-type]
                case Tuple(items):
                    return Tuple(tuple(map(parameter, items)))
            raise TranslationError(f"{name}: an argument has no value")

        body, returned = function.translated([parameter(value) for value in arguments])
        attributes = "nounwind noinline" if len(body) > _LARGE else "nounwind"
        head = f"define internal {returned_type(returned)} @{called}({', '.join(parameters)}) {attributes} {{"
        self._texts.append("\n".join([head, *body, "}"]))
        return called, returned


class _Function:
    """The translation of one function for one combination of arguments."""

    def __init__(self, module: Module, function: ast.FunctionDef) -> None:
        self._module = module
        self._function = function
        self._writer = Writer()
        self._names: dict[str, Value] = {}  # values known while translating: constants, arrays, tuples
        self._slots: dict[str, tuple[str, str]] = {}  # all other names: type, and address
        self._loops: list[tuple[str, str]] = []  # the blocks that `continue` and `break` go to
        self._nested = 0  # branches and loops around the statement
        self._returned: str | None = None

    def translated(self, arguments: Sequence[Value]) -> tuple[list[str], str]:
        """The body's lines, and the types that it returns, separated by commas."""
        writer, function = self._writer, self._function
        names = [argument.arg for argument in function.args.args]
        if len(names) != len(arguments):
            raise TranslationError(f"{function.name} takes {len(names)} arguments, not {len(arguments)}")
        mentions = (node for node in ast.walk(function) if isinstance(node, ast.Name))
        assigned = {node.id for node in mentions if isinstance(node.ctx, ast.Store)}
        for name, value in zip(names, arguments, strict=True):
            if name in assigned and isinstance(value, Const | Scalar):
                self._assign_name(name, value)
            else:
                self._names[name] = value
        self._statements(function.body)
        if writer.open and self._returned is None:
            self._returned = ""
        writer.end("ret void" if self._returned == "" else "unreachable")
        slots = [f"  {place} = alloca {LLVM_TYPES[type_]}" for type_, place in self._slots.values()]
        return ["entry:", *slots, *writer.lines], self._returned or ""

    # Statements.

    def _inside(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements that may run never, or many times."""
        self._nested += 1
        self._statements(statements)
        self._nested -= 1

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if not self._writer.open:
                return
            try:
                self._statement(statement)
            except TranslationError as error:
                if error.has_place:
                    raise
                line = ast.unparse(statement).splitlines()[0]
                raise TranslationError(str(error), f"`{line}` of {self._function.name}") from None

    def _statement(self, statement: ast.stmt) -> None:
        writer = self._writer
        match statement:
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value):
                self._value(value)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value))
            case ast.AugAssign(target, op, value):
                self._changed(target, sign_of(op), value)
            case ast.Return(value):
                self._return(None if value is None else self._value(value))
            case ast.If(test, body, orelse):
                self._if(test, body, orelse)
            case ast.While(test, body, []):
                self._while(test, body)
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), arguments, []), body, []):
                self._for(name, [self._value(argument) for argument in arguments], body)
            case ast.Continue():
                writer.jump(self._loops[-1][0])
            case ast.Break():
                writer.jump(self._loops[-1][1])
            case _:
                raise TranslationError(f"{type(statement).__name__} is not understood")

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(name):
                self._assign_name(name, value)
            case ast.Subscript():
                array, indices = self._element(target)
                self._writer.store(array, indices, value)
            case ast.Tuple(targets):
                if not isinstance(value, Tuple) or len(value.items) != len(targets):
                    raise TranslationError("a tuple of other length")
                for each, item in zip(targets, value.items, strict=True):
                    self._assign(each, item)
            case _:
                raise TranslationError(f"{ast.unparse(target)} cannot be assigned")

    def _changed(self, target: ast.expr, sign: str, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            array, indices = self._element(target)
            changed = self._writer.computed(sign, self._writer.load(array, indices), self._value(value))
            self._writer.store(array, indices, changed)
        else:
            self._assign(target, self._writer.computed(sign, self._value(target), self._value(value)))

    def _assign_name(self, name: str, value: Value) -> None:
        if isinstance(value, Array | Tuple):
            if name in self._slots or self._nested:
                raise TranslationError(f"{name} would not always be the same array")
            self._names[name] = value
            return
        if name in self._names:
            raise TranslationError(f"{name} would not always be an array")
        known = self._slots.get(name)
        given = self._writer.scalar(value, known[0] if known else None)
        if known is None:
            known = self._slots[name] = given.type, f"%s{len(self._slots)}"
        self._writer.do(f"store {LLVM_TYPES[given.type]} {given.text}, ptr {known[1]}")

    def _return(self, value: Value) -> None:
        writer = self._writer
        items = value.items if isinstance(value, Tuple) else () if value is None else (value,)
        scalars = [writer.scalar(item) for item in items]
        returned = ",".join(scalar.type for scalar in scalars)
        if self._returned not in (None, returned):
            raise TranslationError(f"returns {returned or 'nothing'} here and {self._returned or 'nothing'} elsewhere")
        self._returned = returned
        llvm = returned_type(returned)
        if len(scalars) <= 1:
            writer.end(f"ret {llvm} {scalars[0].text}" if scalars else "ret void")
            return
        whole = "undef"
        for place, scalar in enumerate(scalars):
            whole = writer.let(f"insertvalue {llvm} {whole}, {LLVM_TYPES[scalar.type]} {scalar.text}, {place}")
        writer.end(f"ret {llvm} {whole}")

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        writer = self._writer
        then, other, end = writer.new_label(), writer.new_label(), writer.new_label()
        if not orelse:
            other = end
        self._branch(test, then, other)
        ends = False
        for label, statements in ((then, body), (other, orelse)):
            if statements:
                writer.open = False
                writer.begin(label)
                self._inside(statements)
                ends = ends or writer.open
                writer.jump(end)
        writer.open = False
        if ends or not orelse:
            writer.begin(end)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        writer = self._writer
        again, inside, end = writer.new_label(), writer.new_label(), writer.new_label()
        writer.begin(again)
        self._branch(test, inside, end)
        writer.open = False
        writer.begin(inside)
        self._loops.append((again, end))
        self._inside(body)
        self._loops.pop()
        writer.jump(again)
        broken = any(isinstance(node, ast.Break) for each in body for node in ast.walk(each))
        if broken or not isinstance(test, ast.Constant):
            writer.begin(end)

    def _for(self, name: str, bounds: Sequence[Value], body: Sequence[ast.stmt]) -> None:
        writer = self._writer
        first, stop = (Const(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else Const(1)
        if not isinstance(step, Const):
            raise TranslationError("a step that is not constant")
        begin, limit = writer.alike(first, stop)
        counter = f"{name}.{writer.new_label()}"
        self._assign_name(counter, begin)
        check, inside, following, end = (writer.new_label() for _ in range(4))
        writer.begin(check)
        now = self._named(counter)
        more = writer.scalar(writer.compared("<" if step.value > 0 else ">", now, limit))
        writer.end(f"br i1 {more.text}, label %{inside}, label %{end}")
        writer.open = False
        writer.begin(inside)
        self._assign_name(name, now)
        self._loops.append((following, end))
        self._inside(body)
        self._loops.pop()
        writer.begin(following)
        self._assign_name(counter, writer.computed("+", self._named(counter), step))
        writer.jump(check)
        writer.begin(end)

    def _branch(self, test: ast.expr, then: str, other: str) -> None:
        """Jump to `then` or `other`. `and` and `or` evaluate only the operands that they need."""
        writer = self._writer
        match test:
            case ast.BoolOp(op, values):
                for value in values[:-1]:
                    following = writer.new_label()
                    targets = (following, other) if isinstance(op, ast.And) else (then, following)
                    self._branch(value, *targets)
                    writer.open = False
                    writer.begin(following)
                self._branch(values[-1], then, other)
            case ast.UnaryOp(ast.Not(), operand):
                self._branch(operand, other, then)
            case _:
                truth = writer.truth(self._value(test))
                if isinstance(truth, Const):
                    writer.jump(then if truth.value else other)
                else:
                    writer.end(f"br i1 {truth.text}, label %{then}, label %{other}")

    # Expressions.

    def _value(self, expr: ast.expr) -> Value:
        writer = self._writer
        match expr:
            case ast.Constant(bool() | int() | float() as value):
                return Const(value)
            case ast.Name(name):
                return self._named(name)
            case ast.Attribute(ast.Name("np"), name) if name in _NUMPY:
                return _NUMPY[name]
            case ast.Subscript(ast.Attribute(value, "shape"), index):
                return self._array(value).shape[self._constant(index)]
            case ast.Subscript(value, index) if isinstance(found := self._known(value), Tuple):
                return self._item(found, self._value(index))
            case ast.Subscript():
                return writer.load(*self._element(expr))
            case ast.Tuple(items):
                return Tuple(tuple(map(self._value, items)))
            case ast.BinOp(left, op, right):
                return writer.computed(sign_of(op), self._value(left), self._value(right))
            case ast.UnaryOp(ast.USub(), operand):
                return writer.negated(self._value(operand))
            case ast.UnaryOp(ast.Invert(), operand):
                return writer.inverted(self._value(operand))
            case ast.UnaryOp(ast.Not(), operand):
                return writer.untrue(self._value(operand))
            case ast.Compare(left, ops, comparators):
                return self._compared([left, *comparators], list(map(sign_of, ops)))
            case ast.BoolOp():
                return self._chosen(expr, lambda: Const(True), lambda: Const(False))
            case ast.IfExp(test, body, orelse):
                return self._chosen(test, lambda: self._value(body), lambda: self._value(orelse))
            case ast.Call(function, arguments, []):
                return self._called(function, [self._value(argument) for argument in arguments])
        raise TranslationError(f"{ast.unparse(expr)} is not understood")

    def _named(self, name: str) -> Value:
        if (slot := self._slots.get(name)) is not None:
            type_, place = slot
            return Scalar(type_, self._writer.let(f"load {LLVM_TYPES[type_]}, ptr {place}"))
        if name in self._names:
            return self._names[name]
        if name in self._module.constants:
            return self._module.constants[name]
        raise TranslationError(f"{name} has no value")

    def _known(self, expr: ast.expr) -> Value:
        return self._names.get(expr.id) if isinstance(expr, ast.Name) else None

    def _array(self, expr: ast.expr) -> Array:
        found = self._known(expr)
        if not isinstance(found, Array):
            raise TranslationError(f"{ast.unparse(expr)} is no array")
        return found

    def _constant(self, expr: ast.expr) -> int:
        value = self._value(expr)
        if not isinstance(value, Const):
            raise TranslationError(f"{ast.unparse(expr)} is not constant")
        return int(value.value)

    def _element(self, expr: ast.Subscript) -> tuple[Array, tuple[Value, ...]]:
        index = self._value(expr.slice)
        return self._array(expr.value), index.items if isinstance(index, Tuple) else (index,)

    def _item(self, items: Tuple, index: Value) -> Value:
        if isinstance(index, Const):
            return items.items[int(index.value)]
        chosen = items.items[-1]
        for place, item in enumerate(items.items[:-1]):
            chosen = self._writer.either(self._writer.compared("==", index, Const(place)), item, chosen)
        return chosen

    def _compared(self, operands: Sequence[ast.expr], signs: Sequence[str]) -> Value:
        values = [self._value(operand) for operand in operands]
        result: Value = None
        for sign, left, right in zip(signs, values[:-1], values[1:], strict=True):
            test = self._writer.compared(sign, left, right)
            result = test if result is None else self._writer.computed("&", result, test)
        return result

    def _chosen(self, test: ast.expr, one: Callable[[], Value], other: Callable[[], Value]) -> Value:
        """One value or the other; only the chosen one is computed."""
        writer = self._writer
        then, orelse, end = writer.new_label(), writer.new_label(), writer.new_label()
        self._branch(test, then, orelse)
        values, labels = [], []
        for label, make in ((then, one), (orelse, other)):
            writer.open = False
            writer.begin(label)
            values.append(make())
            labels.append(writer.label)
            writer.jump(end)
        alike = common_type(values)
        scalars = [writer.scalar(value, alike if isinstance(value, Const) else None) for value in values]
        if scalars[0].type != scalars[1].type:
            raise TranslationError(f"{scalars[0].type} or {scalars[1].type}")
        writer.open = False
        writer.begin(end)
        sources = ", ".join(f"[ {scalar.text}, %{label} ]" for scalar, label in zip(scalars, labels, strict=True))
        return Scalar(scalars[0].type, writer.let(f"phi {LLVM_TYPES[scalars[0].type]} {sources}"))

    def _called(self, function: ast.expr, arguments: Sequence[Value]) -> Value:
        writer = self._writer
        match function:
            case ast.Attribute(ast.Name("np"), "float64"):
                return writer.scalar(arguments[0], FLOAT)
            case ast.Attribute(ast.Name("np"), name) if name in _CASTS:
                return writer.as_integer(arguments[0], _CASTS[name])
            case ast.Name("bool"):
                return writer.truth(arguments[0])
            case ast.Name("int"):
                return writer.whole(arguments[0])
            case ast.Name("len") if isinstance(arguments[0], Tuple):
                return Const(len(arguments[0].items))
            case ast.Name("min" | "max" as name):
                first, *rest = arguments
                for other in rest:
                    test = writer.compared("<" if name == "min" else ">", other, first)
                    first = writer.either(test, other, first)
                return first
            case ast.Name(name):
                return self._module.call(writer, name, arguments)
        raise TranslationError(f"{ast.unparse(function)} cannot be called")
