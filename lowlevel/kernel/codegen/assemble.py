"""One kernel for all nodes on a source, as the text of a Python module: parse, predicate, keys, hash and table in one.

`run` takes frames in batches. Before each batch it checks that the batch's output fits into the buffers; otherwise it
returns False and is called again with empty buffers. It processes a batch in two passes: the first computes the rows
and their slots in the table and prefetches these, the second merges the rows.

The module is made in two builds of one text: the fast one, and a checked one that checks every index and loads bytes
singly. Tests compare the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lowlevel.config import FlushOrder
from lowlevel.kernel import bytewise
from lowlevel.kernel.codegen import membership
from lowlevel.kernel.codegen.literals import Literals
from lowlevel.kernel.codegen.node import BATCH, SECRETS, NodeText, node_parameters
from lowlevel.kernel.codegen.parse_frame import KNOWN, write_parser
from lowlevel.kernel.codegen.source_text import SourceText
from lowlevel.kernel.inlined import arithmetic, community, flush, layers, ordered_flush, panes, tunnels
from lowlevel.kernel.inlined import integer_overflow as overflow
from lowmark.query.expr import expressions
from lowmark.query.plan.nodes import Node, Reduction

__all__ = [
    "BATCH", "SECRETS", "Assembled", "Build", "SkipReason", "assemble", "fields_of", "kernel_parameters",
    "kernel_source",
]  # fmt: skip


class Build(Enum):
    FAST = "fast"
    CHECKED = "checked"


class SkipReason(Enum):
    """Why a frame is not a tuple; the value is its place among the counters."""

    LINK_TYPE = 0
    TRUNCATED = 1
    MALFORMED = 2
    NOT_IP = 3
    FUTURE = 4
    NO_TIME = 5
    UNKNOWN_INTERFACE = 6


# These functions are part of every kernel's text, so its native code depends on the text alone.
_FUNCTIONS: tuple[Callable[..., object], ...] = (
    arithmetic.chosen, arithmetic.quotient, arithmetic.floor_div, arithmetic.floor_mod,
    arithmetic.unsigned_less, arithmetic.number_less,
    arithmetic.double_less, arithmetic.canonical_double, arithmetic.hash_pair, arithmetic.mixed, arithmetic.coarse_word,
    arithmetic.coarse_double, membership.among, layers.find_ip, layers.walk_extensions,
    tunnels.find_inner, tunnels.conversation, community.flow_ports, community.sha1, community.community_id,
    panes.pane_of, panes.since_pane, panes.pane_start, panes.pane_end, panes.note_late,
    ordered_flush.flush_below, flush.flush, ordered_flush.flush_in_order,
)  # fmt: skip
_OVERFLOW: tuple[Callable[..., object], ...] = (
    overflow.sum_leaves, overflow.difference_leaves, overflow.product_leaves, overflow.quotient_leaves,
    overflow.shifted_leaves, overflow.note_lost,
)  # fmt: skip
_CHECKED: tuple[Callable[..., object], ...] = (
    bytewise.be16, bytewise.be32, bytewise.be64, bytewise.copy_row,
)  # fmt: skip

_CONSTANTS = {
    **panes.CONSTANTS,
    "NO_PORTS": community.NO_PORTS,
    "SCHEDULE": community.SCHEDULE,
    "LINK_TYPE": layers.LINK_TYPE,
    "TRUNCATED": layers.TRUNCATED,
    "MALFORMED": layers.MALFORMED,
    "NOT_IP": layers.NOT_IP,
    "NO_TIME": layers.NO_TIME,
    "UNKNOWN_INTERFACE": layers.UNKNOWN_INTERFACE,
    "FUTURE": SkipReason.FUTURE.value,
    "BATCH": BATCH,
}

_PARAMETERS = (
    ("data", "bytes_"), ("offset", "words"), ("captured", "words"), ("length", "words"), ("ts", "words"),
    ("link", "codes"), ("low", "words"), ("vlan", "codes"), ("low_after", "types.int64"), ("latest", "types.int64"),
    ("force", "types.int64"), ("progress", "words_out"), ("skipped", "words_out"), ("secrets", "words"),
    ("schedule", "words_out"), ("literals", "words"),
)  # fmt: skip


def fields_of(reduction: Reduction) -> frozenset[str]:
    """The packet fields that a node reads."""
    exprs = reduction.exprs if reduction.where is None else (*reduction.exprs, reduction.where)
    return frozenset(name for expr in exprs for name in expressions.fields(expr))


def kernel_source(nodes: Sequence[Node]) -> str:
    """The kernel that a source with all these nodes would run, for people to read."""
    made = assemble([node.reduction for node in nodes], Build.FAST)
    return f"{made.text}\n\n# literals = {made.literals.tolist()}\n"


def kernel_parameters(reductions: Sequence[Reduction], send_late: Sequence[bool]) -> list[tuple[str, str]]:
    """Names and type names of the parameters of `run`."""
    nodes = enumerate(zip(reductions, send_late, strict=True))
    return [*_PARAMETERS, *(pair for number, (node, late) in nodes for pair in node_parameters(number, node, late))]


class Assembled(NamedTuple):
    text: str
    literals: npt.NDArray[np.int64]


def assemble(
    reductions: Sequence[Reduction],
    build: Build,
    send_late: Sequence[bool] | None = None,
    order: FlushOrder = FlushOrder.ANY,
) -> Assembled:
    """The module; nodes that differ in constants alone have equal texts. Raises ValueError for a plan that no kernel
    can run. `send_late`: for each node, whether it outputs late tuples as rows of their own (None: no node does)."""
    needed: frozenset[str] = frozenset().union(*(fields_of(reduction) for reduction in reductions))
    if unknown := sorted(needed - KNOWN):
        raise ValueError(f"packets have no field {', '.join(unknown)}; they have {', '.join(sorted(KNOWN))}")
    for reduction in reductions:
        if reduction.pane.attribute not in ("ts", "arrival_ts") or reduction.pane.width < 1:
            raise ValueError(f"a node's panes divide ts or arrival_ts, not {reduction.pane.attribute}")
    source, literals = SourceText(), Literals()
    _write_head(source, build, any(reduction.checked for reduction in reductions))
    _write_run(source, literals, reductions, send_late or [False] * len(reductions), needed, build, order)
    return Assembled(source.text(), literals.array)


def _write_head(source: SourceText, build: Build, checks: bool) -> None:
    """The fast build is translated (`lowmark.jit.translate`), the checked one compiled by numba."""
    fast = build is Build.FAST
    source.line('"""Generated by lowmark: the kernel of a source."""')
    if not fast:
        source.lines("""
            from __future__ import annotations

            import numpy as np
            import numpy.typing as npt
            from numba import njit, types
            from lowlevel.kernel.machine import double_of, fold_product, high_product, high_unsigned, of_width
            from lowlevel.kernel.machine import prefetch, word_of, wrap_add, wrap_mul, wrap_sub

            bytes_ = types.Array(types.uint8, 1, "C", readonly=True)
            words = types.Array(types.int64, 1, "C", readonly=True)
            codes = types.Array(types.int32, 1, "C", readonly=True)
            words_out = types.int64[::1]
            slot_numbers = types.uint32[::1]
            matrix = types.int64[:, ::1]
            ranges = types.Array(types.int64, 2, "C", readonly=True)
            OPTIONS = dict(nogil=True, boundscheck=True, error_model="numpy")
            INNER = dict(OPTIONS, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
        """)
    source.line(*(f"{name} = {value}" for name, value in _CONSTANTS.items()))
    for function in (bytewise.byte, *(() if fast else _CHECKED), *_FUNCTIONS, *(_OVERFLOW if checks else ())):
        source.line("", "", *(() if fast else ("@njit(**INNER)",)))
        source.lines(inspect.getsource(function))


def _write_run(
    source: SourceText,
    literals: Literals,
    reductions: Sequence[Reduction],
    send_late: Sequence[bool],
    needed: frozenset[str],
    build: Build,
    order: FlushOrder,
) -> None:
    nodes = [
        NodeText(source, literals, number, reduction, late, build is Build.FAST, order)
        for number, (reduction, late) in enumerate(zip(reductions, send_late, strict=True))
    ]
    decorators = () if build is Build.FAST else ("@njit(**INNER)",)
    for node in nodes:
        node.write_functions(decorators)
    parameters = kernel_parameters(reductions, send_late)
    if build is Build.CHECKED:
        source.line("", "", f"PARAMETERS = ({', '.join(kind for _, kind in parameters)})")
    source.line("", "")
    with source.block(f"def run({', '.join(name for name, _ in parameters)}):"):
        source.line("frames = ts.shape[0]", "first_frame, position = progress[0], progress[1]")
        # The secrets are variables, so that nodes that hash the same key have the same expression and compute it once.
        source.line(*(f"secret_{number} = secrets[{number}]" for number in range(SECRETS)))
        for node in nodes:
            node.write_widths()
        with source.block("while first_frame < frames:"):
            for node in nodes:
                node.write_room()
            source.line("last_frame = min(first_frame + BATCH, frames)", "last = np.uint64(last_frame - 1)")
            for node in nodes:
                node.write_begin()
            with source.block("for j in range(np.uint64(first_frame), np.uint64(last_frame)):"):
                write_parser(source, needed)
                for node in nodes:
                    node.write_tuple()
            source.line("first_frame = last_frame", "progress[0], progress[1] = first_frame, position")
            # A node whose output is full does not stop the nodes after it, because all of them have taken the batch.
            source.line("full = False")
            for node in nodes:
                node.write_end()
            with source.block("if full:"):
                source.line("return False")
        source.line("done = True")
        for node in nodes:
            node.write_last_flush()
        source.line("return done")
