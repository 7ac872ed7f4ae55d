"""`lowmark` on a terminal: what a person sees of it, and what stays on the screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")
_PATIENCE_S = 120


class Terminal:
    """`lowmark arguments` on a terminal of its own, of so many columns: standard output and error are both it. What
    still runs at the end of the `with` block is killed."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 24, cwd: Path = _ROOT) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        unset = ("COLUMNS", "LINES", "NO_COLOR")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lowmark", *arguments], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, env=environment | {"TERM": "xterm-256color", "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        os.close(theirs)
        self._raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True, name="reader of the terminal")
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(self._ours, 1 << 16):
                self._raw += data

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10)
        os.close(self._ours)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        code = self._process.wait(_PATIENCE_S)
        self._reader.join(10)
        return code

    @property
    def raw(self) -> str:
        return self._raw.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, and what has left it at the top, without ends of spaces."""
        return _screen(self.raw)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def _screen(raw: str) -> list[str]:
    lines, row, column, at = [""], 0, 0, 0
    while at < len(raw):
        control = _CONTROL.match(raw, at)
        if control is not None:
            at = control.end()
            if control[2] == "A":
                row = max(0, row - int(control[1] or 1))
            elif control[2] == "K":
                lines[row] = "" if control[1] == "2" else lines[row][:column]
            elif control[2] != "m" and not control[1].startswith("?"):
                raise ValueError(f"a control that this terminal does not know: {control[0]!r}")
            continue
        match raw[at]:
            case "\r":
                column = 0
            case "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            case character:
                lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
                column += 1
        at += 1
    return [line.rstrip() for line in lines]
