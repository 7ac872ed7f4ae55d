"""Errors of the application that a person can act on."""

from __future__ import annotations


class EnvironmentNotReady(Exception):
    """Something outside lowmark is missing or unusable: a Java runtime, a jar, a port, a folder, a broker.

    `message` says what is wrong and where, `hint` what to do about it; the command line prints both and exits with
    `exit_code`. `details`: further lines to show unchanged, such as the end of a log.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint, details)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"    {line}" for line in self.details), f"Hint: {self.hint}"])


class StartRefused(EnvironmentNotReady):
    """What the options or the configuration ask for cannot be done by a process with these rights on this host, now or
    at a later start."""

    exit_code = 2


class OutputError(Exception):
    """The output cannot be written: the message says where and why."""

    exit_code = 2
