"""Compiled functions give what Python's would, from the compiler and from disk alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lowmark.jit.compiled import Compiled, compiled
from lowmark.jit.native_code import NativeCode

_FIRST = 3


@compiled
def _add(values: npt.NDArray[np.int64], more: int) -> int:
    total = more
    for value in values:
        total += value
    return total


@compiled
def _pieces(matrix: npt.NDArray[np.float64], word: np.uint64, yes: bool, half: float) -> tuple[int, np.uint64, float]:
    matrix[1, 2] += half
    return (matrix.shape[1] if yes else _FIRST), word + np.uint64(1), matrix[1, 2]


@compiled
def _outer(values: npt.NDArray[np.int64]) -> int:
    return _add(values, 1) + _constant()


@compiled
def _constant() -> int:
    return _FIRST


@compiled
def _is_large(value: float) -> bool:
    return value > 10


@compiled
def _allocates(count: int) -> int:
    return int(np.zeros(count, np.int64).sum()) + count


@compiled
def _nothing(target: npt.NDArray[np.int32]) -> None:
    target[0] = 7


def test_arguments_and_results_of_all_kinds() -> None:
    values = np.arange(10, dtype=np.int64)
    assert _add(values, -2) == 43
    assert _add(values[::3], 0) == 18
    values.flags.writeable = False
    assert _add(values, 0) == 45
    matrix = np.zeros((2, 3))
    assert _pieces(matrix, np.uint64(2**64 - 2), True, 0.5) == (3, 2**64 - 1, 0.5)
    assert _pieces(matrix, np.uint64(0), False, -1.0) == (_FIRST, 1, -0.5)
    assert _outer(values) == 46 + _FIRST
    assert _is_large(10.5) is True
    assert _is_large(2) is False
    target = np.zeros(1, np.int32)
    assert _nothing(target) is None  # type: ignore[func-returns-value]
    assert target[0] == 7


def test_what_allocates_runs_as_well() -> None:
    assert _allocates(5) == 5


def test_the_name_of_the_code_follows_everything_that_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts() -> list[list[bytes]]:
        functions = (_pieces, _outer, _is_large)
        return [list(function.parts()) for function in functions if isinstance(function, Compiled)]

    before = parts()
    monkeypatch.setattr(sys.modules[__name__], "_FIRST", 4)
    assert [old == new for old, new in zip(before, parts(), strict=True)] == [False, False, True]


def test_a_damaged_file_is_none() -> None:
    code = NativeCode("qd", False, (b"first", b"second"))
    content = code.to_bytes()
    assert NativeCode.from_bytes(content) == code
    assert NativeCode.from_bytes(b"") is None
    for place in (0, 20, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        assert NativeCode.from_bytes(bytes(damaged)) is None
        assert NativeCode.from_bytes(content[:place]) is None


_RUN = """
import sys
import numpy as np
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.schema import Column, Kind, Schema
writer = json_writer(Schema((Column("a", Kind.INT), Column("t", Kind.TIME))))
print(bytes(writer.write(np.array([[0, 5, 10**9]], np.uint64)).data).decode().strip(), "numba" in sys.modules)
"""


@pytest.mark.slow
def test_a_second_process_does_without_the_compiler(tmp_path: Path) -> None:
    def run() -> str:
        environment = {**os.environ, "LOWMARK_CACHE": str(tmp_path)}
        command = [sys.executable, "-c", _RUN]
        return subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True).stdout

    row = '{"a":5,"t":"1970-01-01T00:00:01Z"}'
    assert [run(), run()] == [f"{row} True\n", f"{row} False\n"]
