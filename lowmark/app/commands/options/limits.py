"""Options that limit what a query may keep."""

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
        help="Most groups of a landmark window, or values of PA of windows over rows or windows that slide by tuple, "
        "that the query may keep. With more, the query stops.",
    ),
]

ExpireIdle = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="Forget a value of PA (windows over rows, windows that slide by tuple) that has had no tuple for this "
        "long in stream time, such as '1 hour'. If it comes back, its count starts again and the answer says lossy: "
        "numbering.",
    ),
]


def limits_of(groups: int, expire_idle: str | None) -> Limits:
    try:
        return Limits(groups=groups, expire_idle_ns=None if expire_idle is None else parse_span(expire_idle))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--expire-idle'") from None
