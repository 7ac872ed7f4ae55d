"""Imports hold up the search for garbage; what is garbage is still found."""

from __future__ import annotations

import gc
import sys
import weakref
from types import ModuleType

from lowmark.app.imports import importing


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_found_where_nothing_was_left_to_import() -> None:
    seen = weakref.ref(Cycle())
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert seen() is None


def test_new_modules_are_searched_no_more() -> None:
    try:
        with importing():
            sys.modules["lowmark_imported_by_a_test"] = ModuleType("lowmark_imported_by_a_test")
        assert gc.get_freeze_count() > 0
    finally:
        del sys.modules["lowmark_imported_by_a_test"]
        gc.unfreeze()
