"""Native code compiled earlier: stored in files, and called without the compiler that made it.

A file holds object code whose entry point takes one pointer to 64-bit words: first the results, then the arguments as
`_lay` lays them out. It refers to no symbol that a process without numba lacks.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from lowmark.jit.cache_folder import load_cached, store_cached

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine

__all__ = [
    "ENTRY", "Argument", "Laid", "NativeCode", "NativeFunction", "Result", "digest_of", "flat",
    "load_native", "mark_of", "store_native",
]  # fmt: skip

Argument = np.ndarray[tuple[int, ...], np.dtype[np.generic]] | np.generic | int | float | bool
Result = int | float | bool | tuple[int | float | bool, ...] | None
NativeFunction = Callable[..., Result]


class Laid:
    """Arguments that are equal in many calls, laid out once: laying out an array takes half a microsecond."""

    def __init__(self, *arguments: Argument) -> None:
        self.arguments = arguments  # keeps the arrays alive
        self.words = array("q")
        _lay(arguments, self.words)
        self.mark = _MARKS.setdefault(tuple(map(mark_of, arguments)), object())


_MARKS: dict[tuple[object, ...], object] = {}
_IN_ORDER, _FORTRAN, _TOLD_APART = 0x1, 0x2, 0x503
"""numpy's flags of arrays: contiguous in C's order; in Fortran's; these two, with aligned and writeable."""


def mark_of(argument: Argument | Laid) -> object:
    """Cheap to compute; changes whenever the compiled code would change."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags.num & _TOLD_APART
        return argument.dtype, argument.ndim, flags & ~_FORTRAN if flags & _IN_ORDER else flags
    if isinstance(argument, Laid):
        return argument.mark
    if type(argument) is int:
        return -(1 << 63) <= argument < 1 << 63
    return type(argument)


def flat(arguments: Iterable[Argument | Laid]) -> Iterator[Argument]:
    """The arguments one by one, those of a `Laid` included."""
    for argument in arguments:
        if isinstance(argument, Laid):
            yield from argument.arguments
        else:
            yield argument


ENTRY = "lowmark_entry"
_FORMAT = b"lowmark-native-1\n"


@dataclass(frozen=True, slots=True)
class NativeCode:
    """`results` has a letter for each: q int64, Q uint64, d double, ? bool. `single`: a value, not a tuple of one."""

    results: str
    single: bool
    objects: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        head = {"results": self.results, "single": self.single, "objects": [len(code) for code in self.objects]}
        body = json.dumps(head).encode() + b"\n" + b"".join(self.objects)
        return _FORMAT + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, content: bytes) -> NativeCode | None:
        """The code in a file; None if the file is damaged or of another format."""
        digest, body = content[len(_FORMAT) : len(_FORMAT) + 32], content[len(_FORMAT) + 32 :]
        if not content.startswith(_FORMAT) or hashlib.sha256(body).digest() != digest:
            return None
        line, _, rest = body.partition(b"\n")
        head = json.loads(line)
        objects = []
        for size in head["objects"]:
            objects.append(rest[:size])
            rest = rest[size:]
        return cls(head["results"], head["single"], tuple(objects))

    def load(self) -> NativeFunction:
        """The function. It releases Python's lock while it runs."""
        import llvmlite.binding as llvm

        engine = _engine()
        for code in self.objects:
            engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        engine.finalize_object()
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(engine.get_function_address(ENTRY))
        _engines.append(engine)
        return _caller(entry, self.results, self.single)


_engines: list[ExecutionEngine] = []  # own all loaded code, which is never unloaded


def _engine() -> ExecutionEngine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _caller(entry: Callable[[int], int], results: str, single: bool) -> NativeFunction:
    count = len(results)
    nothing = array("q", [0] * count)
    numbers = set(results) <= {"q"}

    def call(*arguments: Argument | Laid) -> Result:
        words = nothing[:]
        _lay(arguments, words)
        status = entry(words.buffer_info()[0])
        if status != 0:
            raise RuntimeError(f"compiled code stopped with status {status}")
        if not count:
            return None
        found = words[:count]
        values = tuple(found) if numbers else tuple(map(_value, results, found))
        return values[0] if single else values

    return call


def _lay(arguments: tuple[Argument | Laid, ...], words: array[int]) -> None:
    """Append the arguments to the words."""
    for argument in arguments:
        if isinstance(argument, Laid):
            words += argument.words
        elif isinstance(argument, np.ndarray):
            data = _pointer(id(argument) + _DATA).value
            words.fromlist([0, 0, argument.size, argument.itemsize, data, *argument.shape, *argument.strides])
        else:
            words.append(_word(argument))


# An array is a Python object that begins with the address of its data (numpy's C interface: PyArrayObject). Any other
# way to get the address takes longer than many kernels.
_DATA = object.__basicsize__
_pointer = ctypes.c_int64.from_address


def _word(argument: np.generic | float) -> int:
    if type(argument) is int and -(1 << 63) <= argument < 1 << 63:
        return argument
    if isinstance(argument, (float, np.floating)):
        return int(np.float64(argument).view(np.int64))
    word = int(argument)
    return word - (1 << 64) if word >= 1 << 63 else word


def _value(letter: str, word: int) -> int | float | bool:
    if letter == "q":
        return word
    if letter == "?":
        return word & 1 == 1
    if letter == "Q":
        return word % (1 << 64)
    return float(np.int64(word).view(np.float64))


_MAKERS = ("native_code.py", "compiler.py", "llvm_compiler.py", "llvm_values.py", "translate.py")


@cache
def _circumstances() -> bytes:
    """What native code depends on besides its source: compiler, processor, and calling convention."""
    import llvmlite.binding as llvm

    compilers = (version("numba"), version("llvmlite"), sys.version_info[:2])
    features = llvm.get_host_cpu_features().flatten()
    calling = [(files("lowmark.jit") / name).read_bytes() for name in _MAKERS]
    return repr((compilers, llvm.get_process_triple(), llvm.get_host_cpu_name(), features, calling)).encode()


def digest_of(*parts: bytes) -> str:
    """A name for native code made from these parts, by these versions, for this processor."""
    whole = hashlib.sha256()
    for part in (*parts, _circumstances()):
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()[:24]


def load_native(digest: str) -> NativeCode | None:
    content = load_cached("kernels", f"{digest}.native")
    return None if content is None else NativeCode.from_bytes(content)


def store_native(digest: str, code: NativeCode) -> None:
    store_cached("kernels", f"{digest}.native", code.to_bytes())
