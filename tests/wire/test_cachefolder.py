"""What is kept lies where nobody else writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowmark.wire.cachefolder import cache_folder, put_in_place


def test_the_folder_is_the_one_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWMARK_CACHE", str(tmp_path / "kept"))
    assert cache_folder("kernels") == tmp_path / "kept" / "kernels"
    assert cache_folder("kernels").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("LOWMARK_CACHE", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels").chmod(mode)
    assert cache_folder("kernels") != tmp_path / "kernels"


def test_where_nothing_can_be_kept_there_is_a_folder_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("LOWMARK_CACHE", str(blocked))
    folder = cache_folder("kernels")
    assert folder.is_dir()
    assert cache_folder("kernels") == folder
    assert cache_folder("grammars") != folder


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    put_in_place(tmp_path / "a", b"first")
    put_in_place(tmp_path / "a", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"second")]
