"""`lowmark capture`: the process on a capture host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.shared_options import CONFIG, ConfigOption

__all__ = ["capture"]


def capture(
    config: ConfigOption = CONFIG,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Capture this source only (repeatable). Without: those of this host.",
            show_default=False,
        ),
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(metavar="X", help="Replay files at X times their own pace; without, as fast as they are read."),
    ] = None,
    rebase: Annotated[
        bool, typer.Option("--rebase", help="Shift the packets' times so that the first one is captured now.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Capture also sources that another process is sending: its captures of them stop."
        ),
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Started by root: do all as this user but for opening the rings of the interfaces, and have no rights "
            "any more once they are open.",
        ),
    ] = None,
) -> None:
    """Reduce packets to partial aggregates and send them, with punctuations, to Kafka.

    Ends when all files have been read, or with Ctrl-C or SIGTERM; what it holds is sent before. With SIGHUP the
    configuration is read again, and its queries take the place of those that run. A source that another process is
    sending is refused: the process that registered it last is asked through Kafka, unless it has said that it is done,
    and lives if it answers within 5 s. Exit code 3: a file was damaged (what stands before the damage has been sent).

    Examples:

    \b
      lowmark capture -c /etc/lowmark.toml
      lowmark capture --source tap1 --pace 1.0 --rebase
      sudo lowmark capture -c /etc/lowmark.toml --user lowmark
    """
    from lowmark.app.capture.privileges import act_as, user_called
    from lowmark.app.capture.process import run_capture
    from lowmark.app.capture.sources import CaptureOptions
    from lowmark.app.config.file import load_config
    from lowmark.app.console import telling
    from lowmark.app.logs import set_up_logs

    if pace is not None and pace <= 0:
        raise typer.BadParameter(f"{pace} is not a pace: 1.0 is the files' own", param_hint="'--pace'")
    acting = None if user is None else act_as(user_called(user))
    settings = load_config(Path(config))
    set_up_logs(verbose=False)
    options = CaptureOptions(sources=tuple(source or ()), pace=pace, rebase=rebase, take_over=take_over, user=acting)
    with telling() as tell:
        status = run_capture(settings, options, tell)
    raise typer.Exit(status)
