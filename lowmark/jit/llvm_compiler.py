"""Compiles a translated function to native code: LLVM optimises it for this processor and writes its object code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from lowmark.jit.llvm_values import LLVM_TYPES, SIGNED, Array, Scalar, Tuple, Value, Writer
from lowmark.jit.native_code import ENTRY, NativeCode
from lowmark.jit.translate import Module, Primitive

__all__ = ["compile_function"]

_LETTERS = {"int64": "q", "uint64": "Q", "float64": "d", "bool": "?"}


def compile_function(
    text: str, name: str, parameters: Sequence[tuple[str, int, bool] | str], primitives: Mapping[str, Primitive]
) -> NativeCode:
    """The function of this name in the text. A parameter is an array (type of its elements, dimensions, whether it is
    constant while the function runs) or a number ("int64", "float64")."""
    module = Module(text, primitives)
    results = _add_entry(module, name, parameters)
    return NativeCode(results, len(results) == 1, (_object_code(module.text()),))


def _add_entry(module: Module, name: str, parameters: Sequence[tuple[str, int, bool] | str]) -> str:
    """The entry point: it reads the arguments as `native_code` lays them out, behind the words for the results."""
    body = Writer()
    arguments: list[Value] = []
    at = 0

    def word(place: int, type_: str = "i64") -> str:
        pointer = body.let(f"getelementptr i64, ptr %arguments, i64 {place}")
        return body.let(f"load {type_}, ptr {pointer}")

    for parameter in parameters:
        if isinstance(parameter, str):
            arguments.append(Scalar(parameter, word(at, LLVM_TYPES[parameter])))
            at += 1
        else:
            element, dimensions, constant = parameter
            sizes = tuple(Scalar(SIGNED, word(at + 5 + dimension)) for dimension in range(dimensions))
            arguments.append(Array(element, constant, word(at + 4, "ptr"), sizes))
            at += 5 + 2 * dimensions
    returned = module.call(body, name, arguments)
    values = [] if returned is None else returned.items if isinstance(returned, Tuple) else (returned,)
    results = ""
    for place, value in enumerate(values):
        scalar = body.scalar(value)
        results += _LETTERS[scalar.type]
        text = body.let(f"zext i1 {scalar.text} to i64") if scalar.type == "bool" else scalar.text
        pointer = body.let(f"getelementptr i64, ptr %words, i64 {place}")
        body.do(f"store {'double' if scalar.type == 'float64' else 'i64'} {text}, ptr {pointer}")
    head = f"define i32 @{ENTRY}(ptr %words) nounwind {{"
    skip = f"  %arguments = getelementptr i64, ptr %words, i64 {len(results)}"
    module.add("\n".join([head, "entry:", skip, *body.lines, "  ret i32 0", "}"]))
    return results


def _object_code(text: str) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    return bytes(machine.emit_object(module))
