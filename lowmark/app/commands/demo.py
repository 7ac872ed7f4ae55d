"""`lowmark demo`: shows lowmark at work on generated traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds to run after the first final window.")
    ] = 60,
    rate: Annotated[
        int, typer.Option(metavar="N", min=1, help="Packets per second on each of the two links.")
    ] = 10_000,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work in this folder and keep it: configuration, captures, logs, broker."),
    ] = None,
) -> None:
    """Run a broker, a capture of two links, a Spark job and a live view of final windows, for about a minute.

    Needs no privileges: the links are generated captures, replayed at their own pace. At the end or on Ctrl-C it
    removes everything, except with --keep.

    Examples:

    \b
      lowmark demo
      lowmark demo --seconds 300 --rate 50000 --keep ./demo
    """
    from lowmark.app.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(seconds=seconds, rate=rate, keep=keep)))
