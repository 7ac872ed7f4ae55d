"""Which lowmark this is: its version, the commit that it was made from, and the version of its records in Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lowmark import __version__
from lowmark.wire.records.record import WIRE_VERSION

__all__ = ["commit", "release_line"]

_PACKAGE = Path(__file__).parent
_WITHIN_S = 10.0


def commit() -> str | None:
    """The commit of an installed package, else of the checkout that runs (`-dirty`: with changes). None: unknown."""
    try:
        return (_PACKAGE / "commit.txt").read_text().strip()  # written by setup.py
    except OSError:
        pass
    if not (_PACKAGE.parent / ".git").exists():
        return None
    command = ["git", "-C", str(_PACKAGE.parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_WITHIN_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()


def release_line() -> str:
    """The line of `lowmark --version`."""
    return f"lowmark {__version__} (commit {commit() or 'unknown'}, wire version {WIRE_VERSION})"
