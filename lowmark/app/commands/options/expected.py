"""Options that describe a query's data in advance. They decide how the query runs, and change no result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lowmark.query.optimize.stream_statistics import Expected

__all__ = ["Groups", "Rates", "Selectivities", "expected_of", "known_names"]

_SPOT = "'--rate' or '--selectivity'"

Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="NAME=N/s",
        help="Expected rows per second of a stream, or of an input of a join (after the conditions on it). Used to "
        "estimate the memory of joins, and to choose the window strategy and the order in which a new row meets the "
        "other inputs of a join.",
    ),
]
Selectivities = Annotated[
    list[str] | None,
    typer.Option(
        "--selectivity",
        metavar="A,B=SHARE",
        help="Expected share of the pairs whose join columns are equal, among pairs of a row of A and a row of B that "
        "lie in each other's windows.",
    ),
]
Groups = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Expected number of groups in a pane, at most. Default: 10000."),
]


def expected_of(rates: Sequence[str] | None, selectivities: Sequence[str] | None, groups: int | None) -> Expected:
    from lowmark.query.optimize.stream_statistics import Expected

    try:
        return Expected.of(_numbers(rates or (), "/s"), _numbers(selectivities or (), ""), groups)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=_SPOT) from None


@contextmanager
def known_names() -> Iterator[None]:
    """Reports a name that the query does not have as a mistake in these options; wraps the planning of the query."""
    from lowmark.query.optimize.stream_statistics import UnknownInput

    try:
        yield
    except UnknownInput as error:
        raise typer.BadParameter(str(error), param_hint=_SPOT) from None


def _numbers(given: Sequence[str], unit: str) -> dict[str, float]:
    found = {}
    for item in given:
        name, sign, number = item.rpartition("=")
        try:
            found[name.strip()] = float(number.strip().removesuffix(unit).replace("_", ""))
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"{item!r} is not NAME=NUMBER{unit}")
    return found
