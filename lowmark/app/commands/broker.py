"""`lowmark broker`: runs a real Kafka broker on one host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["broker"]


def broker(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data folder, kept between runs.")] = Path(
        "lowmark-broker"
    ),
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 9092,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. The broker has no TLS and no users: whoever reaches it may do everything.",
        ),
    ] = "127.0.0.1",
) -> None:
    """Run a Kafka broker (KRaft mode, one node) in the foreground until Ctrl-C.

    Only this host reaches it, unless --host names another address.

    The first run fetches the jars, at pinned versions, and checks their hashes. Data survive restarts and crashes.

    Example:

    \b
      lowmark broker --data /var/lib/lowmark/broker --port 9092
    """
    from lowmark.app.console import telling
    from lowmark.app.kafka.broker import openness, serve

    with telling() as tell:
        if (meaning := openness(host)) is not None:
            tell.note(f"warning: {meaning}")
        serve(data, port=port, host=host, progress=tell, ready=lambda at: tell.note(f"broker ready at {at}"))
