"""Text for people on standard error: progress of slow steps, notes, tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from lowmark.jit.slow_compiles import watched

__all__ = ["Teller", "counted", "error_console", "telling"]

_PATIENCE_S, _PATIENCE_IN_A_PIPE_S = 0.5, 2.0
_COMPILING = "compiling; the native code is kept for later runs"


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class _ErrorConsole(Console):
    def on_broken_pipe(self) -> None:
        """Raises, where rich would end the process with 1; the command line turns it into the right exit code."""
        raise BrokenPipeError


def error_console(quiet: bool = False) -> Console:
    return _ErrorConsole(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)


class Teller:
    """Shows what is being done: on a terminal in one line that changes, elsewhere in a line for each step."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status
        self._said = "starting"
        self._noted: set[str] = set()

    def __call__(self, text: str) -> None:
        if text == self._said:
            return
        self._said = text
        if self._status is not None:
            self._status.update(Text(text))
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def passing(self, text: str) -> None:
        """Shows a short-lived text, on a terminal only."""
        if self._status is not None:
            self(text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Removes the changing line while other text is written to the same terminal."""
        if self._status is None:
            yield
            return
        self.end()
        try:
            yield
        finally:
            # A new status: the old one would first erase as many lines as it had.
            self._status = self._console.status(Text(self._said))
            self._status.start()

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()

    @contextmanager
    def while_compiling(self) -> Iterator[None]:
        """Says that native code is being compiled: on a terminal after half a second, until it is done; elsewhere after
        two seconds, once."""
        before: list[str] = []

        def tell(begins: bool) -> None:
            if not self.on_terminal:
                if begins:
                    self.note(_COMPILING)
            elif begins:
                before.append(self._said)
                self(_COMPILING)
            elif before:
                self(before.pop())

        with watched(_PATIENCE_S if self.on_terminal else _PATIENCE_IN_A_PIPE_S, tell):
            yield

    @property
    def on_terminal(self) -> bool:
        """Whether each text replaces the one before it."""
        return self._status is not None

    def line(self, text: str) -> None:
        """Writes a line for programs, unchanged."""
        self._console.print(text, markup=False, soft_wrap=True)

    def note(self, text: str | Text) -> None:
        """Writes a line that stays; a `str` is written as it is, without markup. A repeated text is written once."""
        if str(text) not in self._noted:
            self._noted.add(str(text))
            self._console.print(text, markup=False, soft_wrap=True)


@contextmanager
def telling(quiet: bool = False) -> Iterator[Teller]:
    # Rich wraps a long changing text; lines that stay are wrapped by the terminal.
    console = _ErrorConsole(stderr=True, highlight=False, quiet=quiet)
    if not console.is_terminal:
        yield Teller(console, None)
        return
    status = console.status("starting")
    tell = Teller(console, status)
    status.start()
    try:
        yield tell
    finally:
        tell.end()
