"""What is kept lies where nobody else writes; what cannot be kept stops nothing."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lowmark.jit import cache_folder
from lowmark.jit.cache_folder import load_cached, store_cached

_DAY = 86_400.0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOWMARK_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_what_was_stored_is_found_and_replaced_whole(root: Path) -> None:
    assert load_cached("kernels", "a") is None
    assert store_cached("kernels", "a", b"first") == root / "kernels" / "a"
    store_cached("kernels", "a", b"second")
    assert load_cached("kernels", "a") == b"second"
    assert [path.name for path in (root / "kernels").iterdir()] == ["a"]
    assert (root / "kernels").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(root: Path, mode: int) -> None:
    (root / "kernels").mkdir(parents=True)
    (root / "kernels" / "a").write_bytes(b"from a stranger")
    (root / "kernels").chmod(mode)
    assert load_cached("kernels", "a") is None
    assert store_cached("kernels", "a", b"ours") is None
    assert (root / "kernels" / "a").read_bytes() == b"from a stranger"


def test_what_cannot_be_kept_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("LOWMARK_CACHE", str(blocked))
    with caplog.at_level(logging.WARNING, "lowmark"):
        assert store_cached("kernels", "a", b"first") is None
        assert store_cached("kernels", "b", b"second") is None
    assert load_cached("kernels", "a") is None
    (message,) = caplog.messages
    assert str(blocked) in message
    assert "LOWMARK_CACHE" in message


def test_a_disk_without_room_leaves_no_half_file(root: Path) -> None:
    store_cached("kernels", "a", b"first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, limits[1]))  # any file of this process ends after three bytes
    try:
        assert store_cached("kernels", "b", b"second") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (root / "kernels").iterdir()] == ["a"]


def test_what_nobody_uses_leaves_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> set[str]:
        return {path.name for path in (root / "kernels").iterdir()}

    monkeypatch.setattr(cache_folder, "_MOST_BYTES", 10)
    now = time.time()
    for name, days in (("unused", 100), ("older", 9), ("newer", 5)):
        path = store_cached("kernels", name, b"1234")
        assert path is not None
        os.utime(path, (now - days * _DAY,) * 2)
    store_cached("kernels", "new", b"1")
    assert names() == {"older", "newer", "new"}
    assert load_cached("kernels", "older") == b"1234"
    store_cached("kernels", "large", b"12345")
    assert names() == {"older", "new", "large"}


_NO_HOME = """
import os
from lowmark.jit.cache_folder import cache_root, store_cached
os.setuid(54_321)
assert store_cached("kernels", "a", b"1") == cache_root() / "kernels" / "a"
"""


def test_a_user_without_a_home_keeps_nothing_behind(tmp_path: Path) -> None:
    """As in a container that runs under an arbitrary uid."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o777)
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _NO_HOME]
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
