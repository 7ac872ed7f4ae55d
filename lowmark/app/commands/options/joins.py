"""Options about the memory of joins without windows, and about joins in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lowmark.query.options import DEFAULT_JOINS, Buffering, Joins, Memory

__all__ = ["JoinBuffer", "JoinDisk", "JoinLimit", "JoinMemory", "PairNs", "Scrambling", "joins_of"]

JoinMemory = Annotated[
    Memory,
    typer.Option(
        help="Until when a join without windows keeps a row: frontier (until the other inputs have passed its time; "
        "every result is found) or model (while the data seem to need it; a row that goes too early makes windows "
        "lossy)."
    ),
]

JoinBuffer = Annotated[
    Buffering | None,
    typer.Option(
        help="How rows wait before they enter a join without windows: keep (they do not wait), disk (on disk), sort "
        "(in memory until they are in order) or hybrid (sorted, then on disk). Changes no result. Default: "
        "--join-limit decides.",
        show_default=False,
    ),
]

JoinLimit = Annotated[
    int | None,
    typer.Option(
        metavar="MIB",
        min=1,
        help="Memory for the rows of a join without windows, in MiB. If the rows are expected to need more, they wait "
        "sorted or on disk.",
        show_default=False,
    ),
]

JoinDisk = Annotated[
    int, typer.Option(metavar="MIB", min=1, help="Most disk space in TMPDIR for waiting rows of joins, in MiB.")
]

Scrambling = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=ROWS",
        help="By how many rows an input of a join without windows may be out of order. Default: found in the data.",
    ),
]

PairNs = Annotated[
    float,
    typer.Option(
        metavar="NS",
        help="Time that a join takes for a pair of rows, in ns. A join in order of time (ORDER BY ts) chooses by it "
        "when rows meet.",
    ),
]


def joins_of(
    memory: Memory = DEFAULT_JOINS.memory, buffer: Buffering | None = None, limit: int | None = None,
    disk: int = DEFAULT_JOINS.disk_mib, scrambling: Sequence[str] | None = None,
    pair_ns: float = DEFAULT_JOINS.pair_ns,
) -> Joins:  # fmt: skip
    given = {}
    for item in scrambling or ():
        name, sign, rows = item.rpartition("=")
        if not sign or not name.strip() or not rows.strip().isdecimal():
            raise typer.BadParameter(f"{item!r} is not NAME=ROWS", param_hint="'--scrambling'")
        given[name.strip()] = int(rows)
    try:
        return Joins(
            memory=memory, buffer=buffer, limit_mib=limit, disk_mib=disk, scrambling=given, pair_ns=pair_ns
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--pair-ns'") from None
