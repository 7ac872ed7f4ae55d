"""Adds to a wheel and to a source distribution the commit that it is made from. All else stands in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT = Path("lowmark") / "commit.txt"  # read by lowmark/release.py


def commit() -> str | None:
    """LOWMARK_COMMIT, where the build has no repository; else the source distribution's; else the repository's."""
    if given := os.environ.get("LOWMARK_COMMIT"):
        return given
    if COMMIT.is_file():
        return COMMIT.read_text().strip()
    if not Path(".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def note(folder: Path) -> None:
    if known := commit():
        (folder / COMMIT).write_text(known + "\n")


class BuildWithCommit(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a checkout answers for itself
            note(Path(self.build_lib))


class SourcesWithCommit(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        note(Path(base_dir))


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SourcesWithCommit})
