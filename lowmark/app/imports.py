"""Imports of many modules, without searches for garbage meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["importing"]


@contextmanager
def importing() -> Iterator[None]:
    """Modules stay until the process ends. To search their objects for garbage, again and again, takes a tenth of a
    short command."""
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        # Garbage that is frozen stays for ever: a process that runs several queries has imported all at the first one.
        if len(sys.modules) > known:
            gc.freeze()
        gc.enable()
