"""Constants of queries are data of their kernels, and are divided by without a division."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowlevel.kernel.codegen.assemble import Build, assemble
from lowlevel.kernel.codegen.literals import Literals, reciprocal
from lowlevel.kernel.inlined import arithmetic, panes
from lowlevel.kernel.primitives import PRIMITIVES
from lowmark.jit.llvm_compiler import compile_function
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Reduction

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
_WORD = st.integers(LEAST, GREATEST) | st.integers(-100, 100)
_DIVISOR = st.integers(1, GREATEST) | st.integers(1, 100) | st.integers(0, 62).map(lambda bits: 1 << bits)

_FUNCTIONS = (
    arithmetic.quotient, panes.pane_of, panes.since_pane, panes.pane_start, panes.pane_end
)  # fmt: skip
_RUN = """
def run(value, factor, shift, grid):
    return (
        quotient(value, factor, shift), pane_of(value, grid, 0), since_pane(value, grid, 0),
        pane_start(value, grid, 0), pane_end(value, grid, 0),
    )
"""


@pytest.fixture(scope="module")
def run() -> Callable[..., tuple[int, ...]]:
    constants = [f"{name} = {value}" for name, value in panes.CONSTANTS.items()]
    text = "\n".join([*constants, *map(inspect.getsource, _FUNCTIONS), _RUN])
    code = compile_function(text, "run", ["int64", "int64", "int64", ("int64", 1, True)], PRIMITIVES)
    return cast(Callable[..., tuple[int, ...]], code.load())


@given(_WORD, _DIVISOR, st.integers(0, GREATEST))
@example(LEAST, 1, 0)
@example(GREATEST, 1, 0)
@example(LEAST, GREATEST, GREATEST - 1)
@example(GREATEST, GREATEST, 0)
@example(LEAST, (1 << 62) + 1, 0)
@example(-1, 3, 2)
def test_quotients_and_panes_are_those_of_python(
    run: Callable[..., tuple[int, ...]], value: int, divisor: int, origin: int
) -> None:
    origin %= divisor
    literals = Literals()
    literals.grid(divisor, origin)
    factor, shift = reciprocal(divisor)
    assert 0 <= factor < 1 << 64
    signed = factor - (1 << 64) if factor >> 63 else factor
    pane = (value - origin) // divisor
    start = pane * divisor + origin
    assert run(value, signed, shift, literals.array) == (
        value // divisor, pane, value - start, max(start, LEAST), min(start + divisor, GREATEST)
    )  # fmt: skip


def _reduction(sql: str) -> Reduction:
    (node,) = compile_query(sql, name="q", streams={"Main": 1}, buckets=1).stage.nodes
    return node.reduction


_PATTERNS = {
    "SELECT count(*) [RANGE 1 minute] FROM Main WHERE len > {}": ("60", "61", "1500"),
    "SELECT count(*) [RANGE {}] FROM Main": ("1 minute", "10 s", "7 s"),
    "SELECT minute, count(*) FROM Main GROUP BY ts/{} AS minute": ("60", "10"),
    "SELECT prefix(srcIP, {0}), count(*) [RANGE 1 s] FROM Main GROUP BY prefix(srcIP, {0})": ("24", "17"),
    "SELECT count(*) [RANGE 1 s] FROM Main WHERE srcIP IN {}": ("10.0.0.0/8", "192.168.0.0/16"),
    "SELECT count(*) [RANGE 1 s] FROM Main WHERE srcIP = {}": ("10.0.0.1", "2001:db8::1"),
    "SELECT count(*) [RANGE 1 s] FROM Main WHERE destPort IN (80, {})": ("443", "8080"),
    "SELECT sum(len * {}) [RANGE 1 s] FROM Main": ("1.5", "2.25"),
    "SELECT count(*) [RANGE 1 s] FROM Main WHERE ip_len / {0} % {0} = 2": ("3", "40"),
    "SELECT count(*) [RANGE 1 s] FROM Main WHERE srcMAC = '{}'": ("02:00:00:00:00:01", "fe:dc:ba:98:76:54"),
}


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_queries_that_differ_in_constants_have_one_kernel(pattern: str) -> None:
    values = _PATTERNS[pattern]
    made = [assemble([_reduction(pattern.format(value))], Build.FAST) for value in values]
    assert len({each.text for each in made}) == 1
    assert len({each.literals.tobytes() for each in made}) == len(values)


def test_what_changes_the_form_is_text() -> None:
    """As many ranges, addresses and not ports, another width."""
    pattern = "SELECT count(*) [RANGE 1 s] FROM Main WHERE {}"
    conditions = ("destPort = 80", "destPort IN (80, 443)", "srcIP = 10.0.0.1", "destPort = 80 OR TRUE")
    texts = {assemble([_reduction(pattern.format(condition))], Build.FAST).text for condition in conditions}
    assert len(texts) == len(conditions)


def test_constants_of_any_size_are_words() -> None:
    literals = Literals()
    names = [literals.word(value) for value in (0, -1, (1 << 64) - 1, LEAST, GREATEST, 1 << 63)]
    assert names == [f"literals[{place}]" for place in range(6)]
    assert literals.array.tolist() == [0, -1, -1, LEAST, GREATEST, LEAST]
    assert literals.array.dtype == np.int64
