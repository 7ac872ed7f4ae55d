"""`lowmark capture`: runs the capture process on a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowmark.app.commands.options.shared import CONFIG, ConfigOption, ReloadOption

__all__ = ["capture"]


def capture(
    config: ConfigOption = CONFIG,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Capture only this source (repeatable). Default: all sources of this host.",
            show_default=False,
        ),
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(metavar="X", help="Replay files at X times their own pace. Default: as fast as possible."),
    ] = None,
    rebase: Annotated[
        bool, typer.Option("--rebase", help="Shift packet times so that the first packet is captured now.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Also capture sources that another process is sending; that process stops sending them."
        ),
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run as this user; only root may give it. The process is root only until it has opened the rings of "
            "the interfaces, and then drops all privileges.",
        ),
    ] = None,
    reload_on_change: ReloadOption = False,
) -> None:
    """Reduce packets to partial aggregates and send them, with punctuations, to Kafka.

    Ends when all files have been read, or with Ctrl-C or SIGTERM; it first sends what it holds. SIGHUP makes it read
    the configuration again and replace its queries. It refuses to start while another process sends one of its sources:
    it asks that process through Kafka and waits up to 5 s for an answer. Exit code 3: a file was damaged (everything
    before the damage has been sent).

    Examples:

    \b
      lowmark capture -c /etc/lowmark/lowmark.toml
      lowmark capture --source tap1 --pace 1.0 --rebase
      sudo lowmark capture -c /etc/lowmark/lowmark.toml --user lowmark
    """
    from lowmark.app.capture.privileges import act_as, user_called
    from lowmark.app.capture.process import run_capture
    from lowmark.app.capture.sources import CaptureOptions
    from lowmark.app.config.changes import ConfigChanges
    from lowmark.app.config.file import load_config
    from lowmark.app.console import telling
    from lowmark.app.logs import set_up_logs

    if pace is not None and pace <= 0:
        raise typer.BadParameter(
            f"{pace} is not a pace: write a number above 0; 1.0 is the files' own pace", param_hint="'--pace'"
        )
    acting = None if user is None else act_as(user_called(user))
    changes = ConfigChanges(Path(config)) if reload_on_change else None
    settings = load_config(Path(config))
    set_up_logs(verbose=False)
    options = CaptureOptions(
        sources=tuple(source or ()), pace=pace, rebase=rebase, take_over=take_over, user=acting, changes=changes
    )
    with telling() as tell:
        status = run_capture(settings, options, tell)
    raise typer.Exit(status)
