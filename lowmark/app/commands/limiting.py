"""Options that say what a query may keep."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["LimitGroups"]

LimitGroups = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Groups of a landmark window, or values of PA that a window over rows or a slide by tuple counts for, "
        "that may be kept. With more the query stops.",
    ),
]
