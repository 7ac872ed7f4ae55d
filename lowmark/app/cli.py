"""The command `lowmark`: its subcommands, and how errors are shown.

Exit codes: 0; 1 when the environment is not ready (no Java, no broker, a port in use); 2 for a bad query, option or
configuration, and a refused checkpoint; 3 for unreadable input; 4 when a window was `lossy` (`query`; `watch` with
--until or --windows); 130 after Ctrl-C; 141 when the reader of the output has gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from lowmark.app.commands.broker import broker
from lowmark.app.commands.capture import capture
from lowmark.app.commands.check import check
from lowmark.app.commands.checkpoint import checkpoint
from lowmark.app.commands.demo import demo
from lowmark.app.commands.explain import explain
from lowmark.app.commands.fetch import fetch
from lowmark.app.commands.group import CommandGroup
from lowmark.app.commands.pack import pack
from lowmark.app.commands.query import query
from lowmark.app.commands.run import run
from lowmark.app.commands.scan import scan
from lowmark.app.commands.shell_quotes import QueryCommand
from lowmark.app.commands.sources import sources
from lowmark.app.commands.topics import topics
from lowmark.app.commands.watch import watch
from lowmark.app.console import error_console
from lowmark.app.exit_codes import failure_of

__all__ = ["main"]


app = typer.Typer(
    cls=CommandGroup,
    name="lowmark",
    help="Exact, continuous answers about network traffic, with windows that say when they are complete.",
    epilog="Begin with: lowmark demo    or: lowmark query -r capture.pcap "
    "'SELECT srcIP, count(*) [RANGE 1 minute] FROM Main GROUP BY srcIP'",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from lowmark.release import release_line

        typer.echo(release_line())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show version, commit, wire version."),
    ] = False,
) -> None:
    pass


P = ParamSpec("P")


def _until_nobody_reads(command: Callable[P, None]) -> Callable[P, None]:
    """Ends the command as SIGPIPE would, with 141; typer would exit with 1, which means an environment not ready."""

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except BrokenPipeError:
            _silence()
            raise typer.Exit(141) from None

    return run


# Order of `lowmark --help`: the order in which a newcomer needs them.
for _command in (query, explain, scan, demo, fetch, pack, check, broker, topics, capture, run, watch):
    _class = QueryCommand if _command in (query, explain) else typer.core.TyperCommand
    app.command(cls=_class)(_until_nobody_reads(_command))
for _of_group in (*sources.registered_commands, *checkpoint.registered_commands):
    assert _of_group.callback is not None
    _of_group.callback = _until_nobody_reads(_of_group.callback)
assert sources.registered_callback is not None
assert sources.registered_callback.callback is not None
sources.registered_callback.callback = _until_nobody_reads(sources.registered_callback.callback)
app.add_typer(sources)
app.add_typer(checkpoint)


def _silence() -> None:
    """Discards buffered output, so that it does not fail again when Python exits.

    Standard error may be the same pipe as standard output.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def main() -> None:
    """Entry point. An error that a person can act on ends in a message and its exit code, never in a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        with suppress(OSError):  # then nobody can be told
            error_console().print(f"[bold red]error:[/] {failure.markup}")
        _silence()
        sys.exit(failure.exit_code)
