"""`python -m bench.joins [fig_7_5|fig_7_6|fig_7_7|fig_8_9|fig_8_10|stored]`: joins at operator level, as Li measures
them and as the job runs them.

Each command prints its figures and leaves them, with a plot, in bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]
Seconds = Annotated[int, typer.Option(help="Of stream time, in each run.")]
Rate = Annotated[int, typer.Option(help="Tuples a second of each stream.")]
NumberOfFlows = Annotated[int, typer.Option(help="Flows that the tuples are of.")]
Repeat = Annotated[int, typer.Option(help="Runs of each, interleaved; the median counts.")]
Bands = Annotated[list[int] | None, typer.Option(help="Seconds of each input's window (repeatable).")]
Steps = Annotated[list[int] | None, typer.Option(help="Seconds that sources lag behind (repeatable).")]


@app.command("fig_7_5")
def fig_7_5(band: Bands = None, seconds: Seconds = 60, rate: Rate = 500, results: Results = RESULTS) -> None:
    """Delay of groups by joint and by individual punctuation: Q7-1 over the size of the windows."""
    from bench.joins.order import measure_delay

    describe_machine(results)
    measure_delay(results, bands=band or [5, 10, 20, 40, 80, 120], seconds=seconds, rate=rate)


@app.command("fig_7_6")
def fig_7_6(
    band: Bands = None, seconds: Seconds = 40, rate: Rate = 4000, flows: NumberOfFlows = 4000, repeat: Repeat = 3,
    results: Results = RESULTS,
) -> None:  # fmt: skip
    """Memory, latency and time of OA-Join against OPOB-Join: Q7-2 over the band."""
    from bench.joins.order import OPOB, measure_bands

    describe_machine(results)
    measure_bands(
        results, "fig_7_6", rival=OPOB, bands=band or list(range(1, 10)), seconds=seconds, rate=rate, flows=flows,
        repeat=repeat,
    )  # fmt: skip


@app.command("fig_7_7")
def fig_7_7(
    band: Bands = None,
    seconds: Seconds = 40,
    rate: Rate = 4000,
    flows: NumberOfFlows = 4000,
    results: Results = RESULTS,
) -> None:
    """Memory of OA-Join against OPIB-Join: Q7-2 over the band."""
    from bench.joins.order import OPIB, measure_bands

    describe_machine(results)
    measure_bands(
        results, "fig_7_7", rival=OPIB, bands=band or list(range(1, 10)), seconds=seconds, rate=rate, flows=flows,
        repeat=1,
    )  # fmt: skip


@app.command("fig_8_9")
def fig_8_9(
    skew: Steps = None, seconds: Seconds = 30, rate: Rate = 10_000, flows: NumberOfFlows = 100_000,
    results: Results = RESULTS,
) -> None:  # fmt: skip
    """Memory of Q8-3 in order of time (IOP) and of arrival (OOP), over the skew between the inputs' sources, which
    comes on top of the seconds."""
    from bench.joins.skew import measure_skew

    describe_machine(results)
    steps = skew or [0, 5, 10, 20, 40, 60, 80, 100]
    measure_skew(results, skews=steps, rate=rate, flows=flows, window=10, seconds=seconds)


@app.command("fig_8_10")
def fig_8_10(
    delay: Steps = None, seconds: Seconds = 130, rate: Rate = 4000, flows: NumberOfFlows = 100_000,
    results: Results = RESULTS,
) -> None:  # fmt: skip
    """Memory of Q8-4 in order of time (IOP) and of arrival (OOP), over the delay of one input's late tuples."""
    from bench.joins.skew import measure_late

    describe_machine(results)
    steps = delay or [0, 2, 4, 6, 8, 10]
    measure_late(results, delays=steps, rate=rate, flows=flows, window=60, seconds=seconds)


@app.command("stored")
def stored(rate: Rate = 2000, window: Bands = None, results: Results = RESULTS) -> None:
    """CPU time and bytes of a micro-batch of each join, whose state comes from a store and goes back there."""
    from bench.joins.stored import measure_stored

    describe_machine(results)
    measure_stored(results, rate=rate, windows=window or [10, 60])


if __name__ == "__main__":
    app()
