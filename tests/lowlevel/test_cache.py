"""Kernels are kept where nobody else writes, and are found there again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel.kernel.assemble import Build, assemble, kernel_source
from lowlevel.kernel.cache import kernel_folder
from tests.lowlevel.plans import grouped, named, selection

_LOAD = """
import time
from lowlevel.kernel.cache import kernel
from tests.lowlevel.plans import selection
kernel([selection("proto").reduction])
"""


def test_the_folder_is_the_one_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWMARK_CACHE", str(tmp_path / "kept"))
    assert kernel_folder() == tmp_path / "kept" / "kernels"
    assert kernel_folder().stat().st_mode & 0o077 == 0


def test_where_nothing_can_be_kept_kernels_still_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("LOWMARK_CACHE", str(blocked))
    folder = kernel_folder()
    assert folder.is_dir()
    assert kernel_folder() == folder


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_mends_a_broken_file(tmp_path: Path) -> None:
    def load() -> dict[str, int]:
        environment = {"LOWMARK_CACHE": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
        subprocess.run([sys.executable, "-c", _LOAD], env=environment, check=True, timeout=120)
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kernels").rglob("*.nb?")}

    compiled = load()
    assert compiled
    assert load() == compiled
    (source,) = (tmp_path / "kernels").glob("*.py")
    text = source.read_text()
    source.write_text("not a kernel")
    load()
    assert source.read_text() == text


def test_equal_nodes_have_equal_kernels_and_fields_that_are_not_read_are_not_parsed() -> None:
    node = grouped((named("srcIP"),))
    assert kernel_source([node]) == assemble([grouped((named("srcIP"),)).reduction], Build.FAST)
    assert "dest_low" not in kernel_source([node])
    assert "dest_low" in kernel_source([node, selection("destIP")])
