"""A folder on a disk that forgets, in a crash of its host, what was not made durable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

__all__ = ["Disk"]

_OF_BATCHES = ("offsets", "commits", "0", "1")
"""Folders of what Spark writes for a batch, and does not make durable; the last two hold the shards' state."""


class Disk:
    """Real files below `root`, which lies in memory. What a call of fsync has seen is durable: of a file its content,
    of a folder which files it has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[int, bytes] = {}  # by inode
        self._names: dict[str, dict[str, int]] = {}  # by folder: the inode of each name

    @contextmanager
    def in_force(self) -> Iterator[None]:
        with mock.patch.object(os, "fsync", self._note):
            yield

    def _note(self, opened: int) -> None:
        path = os.readlink(f"/proc/self/fd/{opened}")
        if os.path.isdir(path):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file()}
        else:
            self._contents[os.fstat(opened).st_ino] = Path(path).read_bytes()

    def crash(self, random: Random) -> None:
        """The host goes down and comes up: what was not durable is there or not, as it happens."""
        for folder in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            durable = self._names.get(str(folder), {})
            there = {entry.name: entry.inode() for entry in os.scandir(folder) if entry.is_file()}
            for name in sorted(durable.keys() | there.keys()):
                same = durable.get(name) == there.get(name)
                if same and there[name] in self._contents:
                    (folder / name).write_bytes(self._contents[there[name]])
                elif random.random() < 0.6:
                    self._lose(folder / name, durable.get(name))
                elif folder.name in _OF_BATCHES and random.random() < 0.3:
                    (folder / name).write_bytes(b"")  # the name has reached the disk, the content has not

    def _lose(self, file: Path, before: int | None) -> None:
        """The last change of a name did not reach the disk."""
        if before is not None and before in self._contents:
            file.write_bytes(self._contents[before])
        else:
            file.unlink(missing_ok=True)

    def copy(self, target: Path) -> None:
        """A snapshot, as a backup takes it."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.root, target)

    def restore(self, source: Path) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(source, self.root)
        self._contents.clear()
        self._names.clear()
        for folder in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            for path in [folder, *(each for each in folder.iterdir() if each.is_file())]:
                opened = os.open(path, os.O_RDONLY)
                self._note(opened)
                os.close(opened)
