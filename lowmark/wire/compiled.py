"""How kernels are compiled, in one place: native code kept on disk, and no GIL while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function as native code, compiled at its first call and cached beside its module.

    The cache is renewed when the function's own file changes, not when a kernel that it calls in another module does:
    whoever edits such a kernel removes the caches (`__pycache__/*.nb?`).
    """
    return cast(F, njit(cache=True, nogil=True)(function))
