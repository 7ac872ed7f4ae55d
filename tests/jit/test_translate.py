"""Translated functions give what Python gives, and what cannot be translated is refused in a sentence."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowmark.jit.llvm_compiler import compile_function
from lowmark.jit.llvm_values import SIGNED, Scalar, TranslationError, Writer
from lowmark.jit.native_code import NativeFunction
from lowmark.jit.translate import Module

WORDS = ("int64", 1, False)
SEEN = ("int64", 1, True)

_WORD = st.integers(-(1 << 63), (1 << 63) - 1)
_DOUBLE = st.floats(width=64)


def _native(text: str, parameters: list[tuple[str, int, bool] | str]) -> NativeFunction:
    return cast(NativeFunction, compile_function(text, "run", parameters, {}).load())


def _python(text: str) -> Callable[..., object]:
    names: dict[str, object] = {"np": np}
    exec(text, names)
    return cast(Callable[..., object], names["run"])


def _wrapped(word: int) -> int:
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


_INTEGERS = """
def run(a, b, out):
    out[0] = a + b
    out[1] = a - b
    out[2] = a * b
    out[3] = a & b
    out[4] = a | b
    out[5] = a ^ b
    out[6] = ~a
    out[7] = -a
    out[8] = a >> (b & 63)
    out[9] = a << (b & 63)
    out[10] = 1 if a < b <= 7 else 0
    out[11] = min(a, b)
    out[12] = max(a, b, 3)
    if b != 0 and b != -1:
        out[13] = a // b
        out[14] = a % b
    out[15] = np.int64(not a == b)
    return a > b
"""


@pytest.fixture(scope="module")
def integers() -> NativeFunction:
    return _native(_INTEGERS, ["int64", "int64", WORDS])


@given(_WORD, _WORD | st.integers(-8, 8))
@example(-(1 << 63), -1)
@example(-(1 << 63), 1)
@example(-7, 2)
@example(7, -2)
def test_integers_are_those_of_python_cut_to_64_bits(integers: NativeFunction, a: int, b: int) -> None:
    wide: dict[int, int] = {}
    expected = _python(_INTEGERS)(a, b, wide)
    out = np.zeros(16, np.int64)
    assert integers(a, b, out) is expected
    assert out.tolist() == [_wrapped(int(wide.get(place, 0))) for place in range(16)]


_DOUBLES = """
def run(a, b):
    rest = a % b if b != 0.0 else a
    return a + b, a - b * 2, (a / b if b != 0.0 else 0.0), rest, -a, np.float64(np.int64(3)) / 2
"""


@given(_DOUBLE, _DOUBLE)
@example(-0.0, 3.0)
@example(-6.0, 3.0)
@example(6.0, -3.0)
@example(-1.0, math.inf)
@example(math.inf, 2.0)
def test_doubles_are_those_of_numpy(doubles: NativeFunction, a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        expected = cast(tuple[float, ...], _python(_DOUBLES)(np.float64(a), np.float64(b)))
    got = cast(tuple[float, ...], doubles(a, b))
    for one, other in zip(got, expected, strict=True):
        assert (math.isnan(one) and math.isnan(other)) or struct.pack("d", one) == struct.pack("d", other)


@pytest.fixture(scope="module")
def doubles() -> NativeFunction:
    return _native(_DOUBLES, ["float64", "float64"])


_CONTROL = """
LEAST = -2

def first_even(values, start):
    for at in range(start, values.shape[0]):
        if values[at] % 2 != 0:
            continue
        return at, True
    return -1, False

def last_of(items, at):
    return items[at]

def run(values, matrix):
    at, found = first_even(values, 1)
    steps, total = 0, LEAST
    while True:
        steps += 1
        if steps > 3 or (found and values[at] == 4):
            break
    for place in range(values.shape[0] - 1, -1, -2):
        total += values[place] if place != 0 and (place < 9 or values[1 << 40] == 1) else 1_000
    for row in range(np.uint64(matrix.shape[0])):
        matrix[row, 1] += 5
    return at, found, steps, total, last_of((total, 8, at), steps % 3)
"""


def test_loops_tuples_and_operands_that_are_not_needed_are_not_evaluated() -> None:
    run = _native(_CONTROL, [SEEN, ("int64", 2, False)])
    matrix = np.zeros((2, 3), np.int64)
    assert run(np.array([3, 4, 7], np.int64), matrix) == (1, True, 1, -2 + 7 + 1_000, 8)
    assert matrix.tolist() == [[0, 5, 0], [0, 5, 0]]
    assert run(np.array([3, 5, 7, 9], np.int64), matrix) == (-1, False, 4, -2 + 9 + 5, 8)
    assert run(np.array([3, 5, 8], np.int64), matrix) == (2, True, 4, -2 + 8 + 1_000, 8)


_ELEMENTS = """
def run(bytes, codes, slots):
    slots[1] = codes[0]
    return bytes[0], codes[0], slots[0], np.uint64(codes[0]) >> np.uint64(60)
"""


def test_small_elements_become_64_bits() -> None:
    run = _native(_ELEMENTS, [("uint8", 1, True), ("int32", 1, True), ("uint32", 1, False)])
    slots = np.array([2**32 - 1, 0], np.uint32)
    assert run(np.array([255], np.uint8), np.array([-3], np.int32), slots) == (255, -3, 2**32 - 1, 15)
    assert slots[1] == 2**32 - 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def run(a):\n    b = 1\n    b = 2.5\n    return b", "float64 where int64 is needed|2.5 is no integer"),
        ("def run(a):\n    b = np.uint64(a)\n    return a + b", "uint64 where int64 is needed"),
        ("def run(a):\n    return [a]", "is not understood"),
        ("def run(a):\n    return other(a)", "there is no function other"),
        ("def run(a):\n    return c", "c has no value"),
        ("def run(a):\n    if a > 1:\n        return a\n    return a > 1", "returns bool here and int64 elsewhere"),
        ("def run(a):\n    try:\n        return a\n    finally:\n        a = 1", "Try is not understood"),
        (
            "def run(a):\n    while a > 9:\n        a -= 1\n    else:\n        a = 5\n    return a",
            "While is not understood",
        ),
        (
            "def run(a):\n    for b in range(3):\n        a += b\n    else:\n        a = 5\n    return a",
            "For is not understood",
        ),
        ("def run(a):\n    return max(a, 3, key=a)", "is not understood"),
        ("def run(a):\n    return a**2", "Pow is not understood"),
        ("def run(a):\n    return ~(a > 1)", "~ of bool"),
        ("def run(a):\n    return -(a > 1)", "- of a boolean"),
        ("def run(a):\n    b = 1, 2\n    if a > 1:\n        b = 3, 4\n    return b[a]", "not always be the same array"),
        ("def run(a):\n    b = 1, 2\n    b = a\n    return b", "not always be an array"),
        ("def run(a):\n    return a + 0x8000000000000000", "9223372036854775808 is outside int64, in `return a"),
        ("def run(a):\n    return a - -0x8000000000000001", "-9223372036854775809 is outside int64"),
        ("def run(a):\n    return a & 1 << 63", "9223372036854775808 is outside int64"),
        ("def run(a):\n    return np.int64(0xFFFFFFFFFFFFFFFF)", "18446744073709551615 is outside int64"),
        ("def run(a):\n    return np.uint64(a) + -1", "-1 is outside uint64"),
        ("def run(a):\n    return np.uint64(a) > 1 << 64", "18446744073709551616 is outside uint64"),
        ("def run(a):\n    return np.int64(np.nan) + a", "nan is no integer"),
        ("def run(a):\n    return a + 1 // 0", "1 // 0: .*zero"),
        ("def run(a):\n    return a + (1 << -1)", "1 << -1: negative shift"),
        ("def run(a):\n    return run(a)", "run calls itself"),
        (
            "def run(a):\n    return one(a)\ndef one(a):\n    return two(a)\ndef two(a):\n    return one(1.5)",
            "one calls itself",
        ),
    ],
)
def test_what_cannot_be_translated_is_refused(text: str, said: str) -> None:
    with pytest.raises(TranslationError, match=said):
        _native(text, ["int64"])


def test_the_least_and_the_greatest_integers_are_constants() -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    run = _native(f"def run(a):\n    return a ^ {least}, a ^ {most}, np.uint64(a) + {2**64 - 1}", ["int64"])
    assert run(5) == (5 ^ least, 5 ^ most, 4)


def test_an_array_has_one_name_on_every_way() -> None:
    with pytest.raises(TranslationError, match="not always be the same array"):
        _native("def run(a, b, c):\n    if c > 0:\n        a = b\n    return a[0]", [WORDS, WORDS, "int64"])


def test_int_rounds_to_zero() -> None:
    run = _native("def run(a):\n    return int(a), int(a > 0.0)", ["float64"])
    assert [run(value) for value in (2.9, -2.9)] == [(2, 1), (-2, 0)]


def test_what_is_only_read_is_not_written() -> None:
    with pytest.raises(TranslationError, match="only read"):
        _native("def run(a):\n    a[0] = 1", [SEEN])


def test_a_large_function_stays_a_call() -> None:
    large = "def large(a):\n" + "    a = a * 3 + 1\n" * 100 + "    return a\n"
    module = Module(f"{large}def small(a):\n    return a + 1\ndef run(a):\n    return small(large(a))\n", {})
    module.call(Writer(), "run", [Scalar(SIGNED, "%a")])
    heads = [line for line in module.text().splitlines() if line.startswith("define")]
    assert [line.split("@")[1].split(".")[0] for line in heads if "noinline" in line] == ["large"]
    assert len(heads) == 3
