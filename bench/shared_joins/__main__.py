"""`python -m bench.shared_joins [windows|bursts|queries|saved]`: one join for several queries (Hammad 2003).

Response times by largest window only (LWO), smallest window first (SWF) and query throughput (MQT), in one process on a
virtual clock: the operator is the product's; a scan, a row looked at and a row emitted take what they take here, scaled
so that the join is at work for a given share of time. Each command prints its figures and leaves them, with plots, in
bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]
Rate = Annotated[int, typer.Option(help="Rows a second of each stream.")]
Tuples = Annotated[int, typer.Option(help="Rows of both streams that are served in each run.")]
Load = Annotated[float, typer.Option(help="Share of time in which the join is at work.")]
Bursts = Annotated[list[int] | None, typer.Option(help="Mean rows of a burst (repeatable).")]
Queries = Annotated[int, typer.Option(help="Queries that share the join.")]


@app.command()
def windows(rate: Rate = 100, tuples: Tuples = 6_000, load: Load = 0.9, results: Results = RESULTS) -> None:
    """Figs. 5 and 6: the distributions of windows of table 1."""
    from bench.shared_joins.times import measure_distributions

    describe_machine(results)
    measure_distributions(results, rate=rate, tuples=tuples, load=load)


@app.command()
def bursts(
    burst: Bursts = None, rate: Rate = 100, tuples: Tuples = 6_000, load: Load = 0.9, results: Results = RESULTS
) -> None:
    """Figs. 7 and 8: rows that come in bursts."""
    from bench.shared_joins.times import measure_bursts

    describe_machine(results)
    measure_bursts(results, bursts=burst or [1, 2, 3, 4, 5], rate=rate, tuples=tuples, load=load)


@app.command()
def queries(
    queries: Queries = 30, rate: Rate = 100, tuples: Tuples = 6_000, load: Load = 0.9, results: Results = RESULTS
) -> None:
    """Fig. 9: four of five queries have the same window."""
    from bench.shared_joins.times import measure_queries

    describe_machine(results)
    measure_queries(results, queries=queries, rate=rate, tuples=tuples, load=load)


@app.command()
def saved(
    rate: Rate = 1000, seconds: Annotated[int, typer.Option(help="Of stream time.")] = 60,
    keys: Annotated[int, typer.Option(help="Keys of the rows.")] = 2000, results: Results = RESULTS,
) -> None:  # fmt: skip
    """CPU time and memory of one join for several windows, against a join for each."""
    from bench.shared_joins.savings import measure_savings

    describe_machine(results)
    measure_savings(results, windows=[1, 5, 10, 15, 20, 25, 30], rate=rate, seconds=seconds, keys=keys)


if __name__ == "__main__":
    app()
