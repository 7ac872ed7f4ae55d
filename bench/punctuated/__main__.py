"""`python -m bench.punctuated`: joins over punctuated streams, as Ding and Rundensteiner measure them (figs. 8 to 12).

State, output of tuples and output of promises of PWJoin, beside WJoin (windows alone) and PJoin (promises alone). The
operator is the product's; the rivals keep rows as it does. It prints its figures and leaves them, with plots, in
bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine
from bench.punctuated.figures import Setting, measure_output, measure_promises, measure_state

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def main(
    seconds: Annotated[float, typer.Option(help="Of stream time, in each run.")] = 120,
    rate: Annotated[float, typer.Option(help="Tuples a second of each stream.")] = 100,
    fast: Annotated[float, typer.Option(help="The same for figures 9 and 10, taken in five times that step.")] = 5000,
    step: Annotated[float, typer.Option(help="Seconds of stream time whose tuples are taken at once.")] = 0.1,
    repeats: Annotated[int, typer.Option(help="Runs, the fastest of which counts.")] = 5,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    """All figures."""
    describe_machine(results)
    once = Setting(seconds, rate, step, repeats=0)
    measure_state(results, once)
    fast_for, slow_for = min(seconds, 30), min(seconds, 30)
    one_by_one = Setting(slow_for, rate, 1 / rate, repeats)
    measure_output(results, Setting(fast_for, fast, 5 * step, repeats), one_by_one)
    measure_promises(results, once)


if __name__ == "__main__":
    app()
