"""`python -m bench.in_order [analysis|queries|slow_stream]`: joins in order of time, as Hammad measures them (2005).

Response times of rows by Sync-Filter, Filter-Order and the adaptive choice, in one process on a virtual clock: the
operator is the product's, and a row takes c for each row of the other stream in its window. Each command prints its
figures and leaves them, with plots, in bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]
Seconds = Annotated[int, typer.Option(help="Of stream time, in each run.")]
Cost = Annotated[list[float] | None, typer.Option(help="Seconds that a pair of rows takes (repeatable).")]
Rate = Annotated[list[float] | None, typer.Option(help="Rows a second of the slow stream (repeatable).")]


@app.command()
def analysis(results: Results = RESULTS) -> None:
    """Figs. 5 and 6: by the equations alone."""
    from bench.in_order.times import measure_analysis

    measure_analysis(results)


@app.command()
def queries(cost: Cost = None, seconds: Seconds = 300, results: Results = RESULTS) -> None:
    """Figs. 7 and 8: over the number of concurrent queries."""
    from bench.in_order.times import measure_queries

    describe_machine(results)
    measure_queries(results, costs=cost or [1e-6, 1e-5, 1e-4, 5e-4, 7.5e-4, 1e-3, 1.4e-3, 1.6e-3], seconds=seconds)


@app.command("slow_stream")
def slow_stream(rate: Rate = None, seconds: Seconds = 300, results: Results = RESULTS) -> None:
    """Figs. 9 and 10: over the rate of the slow stream."""
    from bench.in_order.times import measure_slow_stream

    describe_machine(results)
    measure_slow_stream(results, rates=rate or [0.01, 0.05, 0.1, 0.25, 0.5, 1.0], seconds=seconds)


if __name__ == "__main__":
    app()
