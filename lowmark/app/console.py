"""What goes to standard error for a person: progress while something takes its time, notes, tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

__all__ = ["Teller", "error_console", "telling"]


class _ErrorConsole(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process with 1; the command line knows what becomes of this."""
        raise BrokenPipeError


def error_console(quiet: bool = False) -> Console:
    return _ErrorConsole(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)


class Teller:
    """Tells what is being done: on a terminal in one line that changes, elsewhere a line each."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console = console
        self._status = status
        self._said = ""
        self._noted: set[str] = set()

    def __call__(self, text: str) -> None:
        if text == self._said:
            return
        self._said = text
        if self._status is not None:
            self._status.update(text)
        else:
            self._console.print(text, markup=False)

    def passing(self, text: str) -> None:
        """Of the moment: told where texts replace one another only."""
        if self._status is not None:
            self(text)

    def note(self, text: str) -> None:
        """A line that stays. Said once, however many say it."""
        if text not in self._noted:
            self._noted.add(text)
            self._console.print(text, markup=False)


@contextmanager
def telling(quiet: bool = False) -> Iterator[Teller]:
    console = error_console(quiet)
    if not console.is_terminal:
        yield Teller(console, None)
        return
    with console.status("starting") as status:
        yield Teller(console, status)
