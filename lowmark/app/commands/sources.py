"""`lowmark sources`: lists the sources and their state."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import typer

from lowmark.app.commands.shared_options import CONFIG, ConfigOption

__all__ = ["sources"]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def sources(config: ConfigOption = CONFIG) -> None:
    """List the registered sources: stream, epoch, time of registration, how far behind they are, and whether jobs list
    them (wait for them and count them). Also lists sources that are configured but have not registered.

    Writes a table on a terminal, JSON lines in a pipe.

    Example:

    \b
      lowmark sources -c /etc/lowmark.toml
    """
    from rich.console import Console

    from lowmark.app.config.file import load_config
    from lowmark.app.job.roster import listed_now
    from lowmark.app.kafka.source_registry import seen_sources
    from lowmark.app.watch.row_view import show_rows
    from lowmark.wire.rows import values

    settings = load_config(Path(config))
    listed = listed_now(settings)
    now_ns = time.time_ns()
    rows: list[dict[str, object]] = []
    for seen in seen_sources(settings.kafka, settings.prefix):
        known = seen.promised_ns is not None and not seen.ended
        rows.append(
            {
                "stream": seen.registration.stream,
                "source": seen.registration.source,
                "kind": seen.registration.kind.value,
                "epoch": seen.epoch,
                "registered": values.time(seen.registered_ns),
                "state": "ended" if seen.ended else "stopped" if seen.stopped else "active",
                "lag_s": round((now_ns - (seen.promised_ns or 0)) / 1e9, 3) if known else None,
                "disorder": seen.registration.disorder,
                "process": seen.registration.process,
                "listed": listed(seen.registration.source, seen.registration.stream),
            }
        )
    missing: list[dict[str, object]] = [
        {"stream": stream, "source": source, "state": "not seen", "listed": listed(source, stream)}
        for stream in settings.streams
        for source in settings.roster(stream)
        if source not in {row["source"] for row in rows}
    ]
    if not sys.stdout.isatty():
        for row in [*rows, *missing]:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    names = ("stream", "source", "kind", "epoch", "registered", "state", "lag_s", "listed", "disorder", "process")
    shown = [[_shown(row.get(name)) for name in names] for row in [*rows, *missing]]
    show_rows(Console(), names, shown, ("epoch", "lag_s"))
