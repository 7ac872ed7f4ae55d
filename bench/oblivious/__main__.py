"""`python -m bench.oblivious`: the join without windows as Wu et al. measure it (figs. 5 to 11).

Buffers predicted, needed and used, accuracy, memory against windows that a user sets, and what the memory strategies
save and cost. Streams are the paper's (section 5), on a virtual clock. It prints its figures and leaves them, with
plots, in bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine
from bench.oblivious.figures import (
    measure_buffers,
    measure_latency,
    measure_operator,
    measure_strategies,
    measure_windows,
)
from bench.oblivious.runs import Setting

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def main(
    repeats: Annotated[
        int, typer.Option(help="Runs, whose averages are reported; a sixth of them for latencies.")
    ] = 30,
    seconds: Annotated[float, typer.Option(help="Of stream time; congestion and burst are in proportion.")] = 120,
    scrambling: Annotated[int, typer.Option(help="The greatest scrambling factor of a stream.")] = 500,
    accuracy: Annotated[float, typer.Option(help="What the windows of W-Join must reach.")] = 0.992,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    """All figures."""
    describe_machine(results)
    query_1 = Setting(3, seconds, most_scrambling=scrambling)
    query_2 = Setting(6, seconds, most_scrambling=scrambling)
    measure_buffers(results, query_1=query_1, query_2=query_2, repeats=repeats)
    some = max(1, repeats // 6)
    measure_windows(results, query_1=query_1, query_2=query_2, repeats=some, target=accuracy)
    measure_strategies(results, query_1=query_1, query_2=query_2, repeats=some)
    measure_operator(results, query_1=query_1, repeats=some)
    measure_latency(
        results, query_1=Setting(3, seconds, most_scrambling=scrambling, batch=0), repeats=max(1, repeats // 15)
    )


if __name__ == "__main__":
    app()
