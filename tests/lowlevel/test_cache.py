"""Kernels are found again where they were kept."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowlevel.kernel import cache as kernels
from lowlevel.kernel.codegen import assemble as assembling
from lowlevel.kernel.codegen.assemble import Build, assemble, kernel_source
from lowlevel.node import SourceNodes
from lowmark.jit.native_code import NativeCode
from tests.lowlevel.naive import block
from tests.lowlevel.plans import grouped, named, selection
from tests.naive.frames import Spec, frame

_LOAD = """
import sys
from lowlevel.kernel.cache import kernel
from tests.lowlevel.plans import selection
kernel([selection("proto").reduction])
print("lowmark.jit.llvm_compiler" in sys.modules)
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
    text = assemble([grouped((named("srcIP"),)).reduction], Build.FAST).text
    assert kernel_source([node]).startswith(text)
    assert "dest_low" not in kernel_source([node])
    assert "dest_low" in kernel_source([node, selection("destIP")])


def test_native_code_is_named_after_the_text_that_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever module the text came from: code of another text is never run in its place."""
    named: list[str] = []

    def nothing(digest: str) -> NativeCode | None:
        named.append(digest)
        return None

    class Named(Exception):
        pass

    def stop(*_: object) -> None:
        raise Named

    monkeypatch.setattr(kernels, "load_native", nothing)
    monkeypatch.setattr(kernels, "compile_kernel", stop)
    reduction = selection("proto").reduction
    for length in (1, 1, 2):
        monkeypatch.setitem(assembling._CONSTANTS, "BATCH", length)
        kernels._kernel.cache_clear()
        with pytest.raises(Named):
            kernels.kernel([reduction])
    kernels._kernel.cache_clear()
    assert named[0] == named[1] != named[2]


def test_arguments_of_another_form_are_refused() -> None:
    """What native code takes for a row of words must be one."""
    node = selection("proto")
    nodes = SourceNodes([node], stream="Main")
    nodes.start()
    one = block([frame(Spec(ts=5)).data], ts=[5], low=[0], low_after=5)
    with pytest.raises(TypeError, match="form"):
        list(nodes.take(replace(one, ts=one.ts.astype(np.int32))))
    with pytest.raises(TypeError, match="form"):
        list(nodes.take(replace(one, offset=one.offset.view(np.int32)[::2])))
    nodes._schedule.flags.writeable = False
    nodes.start()
    with pytest.raises(TypeError, match="form"):
        list(nodes.take(one))
    nodes._schedule.flags.writeable = True
    nodes.start()
    list(nodes.take(one))
    assert nodes.decoded == 1
