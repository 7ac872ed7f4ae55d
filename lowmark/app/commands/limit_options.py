"""Options that say what a query may keep."""

from __future__ import annotations

from typing import Annotated

import typer

from lowmark.query.options import Limits, parse_span

__all__ = ["ExpireIdle", "LimitGroups", "limits_of"]

LimitGroups = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Groups of a landmark window, or values of PA that a window over rows or a slide by tuple counts for, "
        "that may be kept. With more the query stops.",
    ),
]

ExpireIdle = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="Let go of values of PA, of windows over rows and slides by tuple, that had no tuple for longer in stream "
        "time, such as '1 hour'. One that comes back is counted anew, and the answer says lossy: numbering.",
    ),
]


def limits_of(groups: int, expire_idle: str | None) -> Limits:
    try:
        return Limits(groups=groups, expire_idle_ns=None if expire_idle is None else parse_span(expire_idle))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--expire-idle'") from None
