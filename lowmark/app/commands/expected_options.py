"""Options that say what to expect of a query's data. They decide how it runs, and change no result."""

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
        help="Rows a second to expect of a join's input, behind its conditions, or of a stream. Gives the memory that "
        "joins will take, and decides in which order their inputs are probed, and the strategy of windows.",
    ),
]
Selectivities = Annotated[
    list[str] | None,
    typer.Option(
        "--selectivity",
        metavar="A,B=SHARE",
        help="Of pairs of rows of two inputs in each other's windows, the share that is equal where it must be.",
    ),
]
Groups = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Groups of a pane to expect, at the most; without, 10000."),
]


def expected_of(rates: Sequence[str] | None, selectivities: Sequence[str] | None, groups: int | None) -> Expected:
    from lowmark.query.optimize.stream_statistics import Expected

    try:
        return Expected.of(_numbers(rates or (), "/s"), _numbers(selectivities or (), ""), groups)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=_SPOT) from None


@contextmanager
def known_names() -> Iterator[None]:
    """While a query is planned: something that is said of what it has not is a mistake in these options."""
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
