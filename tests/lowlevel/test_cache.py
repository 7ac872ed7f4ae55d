"""Kernels are found again where they were kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel.kernel.assemble import Build, assemble, kernel_source
from tests.lowlevel.plans import grouped, named, selection

_LOAD = """
import sys
from lowlevel.kernel.cache import kernel
from tests.lowlevel.plans import selection
kernel([selection("proto").reduction])
print("numba" in sys.modules)
"""


@pytest.mark.slow
def test_a_second_process_needs_no_compiler_and_mends_a_broken_file(tmp_path: Path) -> None:
    def load() -> bool:
        """Whether it took the compiler."""
        environment = {**os.environ, "LOWMARK_CACHE": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", _LOAD], env=environment, check=True, timeout=120, capture_output=True, text=True
        )
        return done.stdout == "True\n"

    assert load()
    assert not load()
    (native,) = (tmp_path / "kernels").glob("*.native")
    whole = native.read_bytes()
    native.write_bytes(whole[:-1])
    (source,) = (tmp_path / "kernels").glob("*.py")
    text = source.read_text()
    source.write_text("not a kernel")
    assert load()
    assert source.read_text() == text
    assert not load()


def test_equal_nodes_have_equal_kernels_and_fields_that_are_not_read_are_not_parsed() -> None:
    node = grouped((named("srcIP"),))
    assert kernel_source([node]) == assemble([grouped((named("srcIP"),)).reduction], Build.FAST)
    assert "dest_low" not in kernel_source([node])
    assert "dest_low" in kernel_source([node, selection("destIP")])
