"""Changes of a configuration are noticed, however its files are replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lowmark.app.config.changes import ConfigChanges

CONFIG = """
[kafka]
bootstrap = "127.0.0.1:9092"
[streams.Main]
[sources.tap]
stream = "Main"
interface = "lo"
[queries.talkers]
file = "talkers.sql"
"""


class Looks:
    """Looks at a file at times that the test chooses."""

    def __init__(self, path: Path) -> None:
        self._now_s = 0.0
        self._changes = ConfigChanges(path, lambda: self._now_s)

    def again(self) -> bool:
        self._now_s += 2
        return self._changes.found()

    def at_once(self) -> bool:
        return self._changes.found()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "talkers.sql").write_text("SELECT count(*) [RANGE 1 s] FROM Main")
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG)
    return path


def test_a_change_counts_once_and_when_it_is_whole(path: Path) -> None:
    looks = Looks(path)
    assert not any(looks.again() for _ in range(3))
    path.write_text(CONFIG + "[queries")
    assert not looks.again()
    path.write_text(CONFIG + "[queries.more]\nsql = 'SELECT ts FROM Main'\n")
    assert not looks.again()
    assert not looks.at_once(), "it looks every 2 s"
    assert looks.again()
    assert not looks.again()
    path.write_text(CONFIG)
    assert [looks.again(), looks.again(), looks.again()] == [False, True, False]


def test_a_change_that_is_taken_back_at_once_is_none(path: Path) -> None:
    looks = Looks(path)
    assert not looks.again()
    path.write_text("")
    assert not looks.again()
    path.write_text(CONFIG)
    assert not looks.again()
    assert not looks.again()


def gone(path: Path) -> None:
    path.unlink()


def other(path: Path) -> None:
    path.write_text("SELECT srcIP, count(*) [RANGE 1 s] FROM Main GROUP BY srcIP")


@pytest.mark.parametrize(("name", "change"), [("talkers.sql", other), ("talkers.sql", gone), ("lowmark.toml", gone)])
def test_files_of_queries_count_and_so_does_a_file_that_goes(
    path: Path, name: str, change: Callable[[Path], None]
) -> None:
    looks = Looks(path)
    assert not looks.again()
    change(path.parent / name)
    assert [looks.again(), looks.again()] == [False, True]


def test_a_file_that_a_change_names_counts_from_then_on(path: Path) -> None:
    looks = Looks(path)
    path.write_text(CONFIG.replace("talkers.sql", "others.sql"))
    assert [looks.again(), looks.again()] == [False, True]
    (path.parent / "others.sql").write_text("SELECT ts FROM Main")
    assert [looks.again(), looks.again()] == [False, True]


def test_a_mounted_config_map_is_replaced_by_a_link(tmp_path: Path) -> None:
    """As Kubernetes does it: the file leads through a link to a folder, and that link is exchanged."""
    for version, text in (("..1", CONFIG), ("..2", CONFIG + "# other")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "lowmark.toml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "lowmark.toml").symlink_to("..data/lowmark.toml")
    looks = Looks(tmp_path / "lowmark.toml")
    assert not looks.again()
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert [looks.again(), looks.again(), looks.again()] == [False, True, False]
