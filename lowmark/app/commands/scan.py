"""`lowmark scan`: reports how far a capture is out of order."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

__all__ = ["scan"]

_TEXTS = ("capture", "from", "to", "disorder")


def scan(
    captures: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Captures, folders of captures or patterns. Each gets its own report."),
    ],
) -> None:
    """Report how far the packets of captures are out of order: by how much time, by how many places, and which
    `disorder` makes none of them late.

    Writes a table on a terminal, JSON lines in a pipe. Exit code 3: a capture is damaged or cannot be read (the report
    still covers what is before the damage, and the other captures).

    Example:

    \b
      lowmark scan monday.pcap 'rotated/*.pcap.zst'
    """
    from rich.console import Console

    from lowmark.app.console import error_console
    from lowmark.app.local.scan import SHARES, scan_capture
    from lowmark.app.watch.row_view import show_rows
    from lowmark.wire.rows import values

    console = error_console()
    rows: list[dict[str, object]] = []
    damaged = False
    for path in captures:
        one = scan_capture(path)
        row: dict[str, object] = {
            "capture": one.name,
            "frames": one.frames,
            "without_time": one.untimed.frames,
            "from": None if one.first_ns is None else values.time(one.first_ns),
            "to": None if one.last_ns is None else values.time(one.last_ns),
            "out_of_order": one.out_of_order,
            **{f"late_{100 * share:g}%_s": ns / 1e9 for share, ns in zip(SHARES, one.within_ns, strict=True)},
            "late_most_s": one.most_ns / 1e9,
            "places": one.places,
            "disorder": one.disorder,
        }
        rows.append(row)
        if not sys.stdout.isatty():  # before the next capture, which may take long
            typer.echo(json.dumps(row))
        for said in one.untimed.said:
            console.print(f"{one.name}: {said}", markup=False)
        for damage in one.damages:
            console.print(f"{damage.kind}: {damage}", markup=False)
            damaged = True
    if sys.stdout.isatty():
        shown = [["" if value is None else str(value) for value in row.values()] for row in rows]
        show_rows(Console(), list(rows[0]), shown, [name for name in rows[0] if name not in _TEXTS])
    raise typer.Exit(3 if damaged else 0)
