"""`python -m bench.path [job|spark_windows|spark_joins|delay|memory|all]`: from partials to visible results, measured.

Each measurement prints its figures and leaves them, with a plot, in bench/results; bench/README.md says what they
show. The defaults take less than four minutes each on two idle cores.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]


@app.command()
def job(
    groups: Annotated[list[int] | None, typer.Option(help="Numbers of groups (repeatable).")] = None,
    windows: Annotated[int, typer.Option(help="One-minute windows; half of them are for warming up.")] = 24,
    rows: Annotated[int, typer.Option(help="Partial rows in each window, which is a micro-batch.")] = 800_000,
    having: Annotated[int, typer.Option(help="Result rows are those of more packets than this.")] = 0,
    cuts: Annotated[int, typer.Option(help="Micro-batches in which each window is read.")] = 1,
    results: Results = RESULTS,
) -> None:
    """Partial rows per second of the Spark job against Spark's own windowed aggregation."""
    from bench.common.speeds import Grouping
    from bench.spark.windows import measure_job

    describe_machine(results)
    loads = [Grouping(count, rows, windows, having=having, cuts=cuts) for count in groups or [66_000, 260_000]]
    measure_job(results, ("job-having" if having else "job") + (f"-cuts{cuts}" if cuts > 1 else ""), loads)


@app.command(name="spark_windows")
def spark_windows(
    groups: Annotated[list[int] | None, typer.Option(help="Numbers of groups (repeatable).")] = None,
    held: Annotated[list[int] | None, typer.Option(help="Panes a window; it slides by one (repeatable).")] = None,
    panes: Annotated[int, typer.Option(help="One-minute panes; half of them are for warming up.")] = 12,
    rows: Annotated[int, typer.Option(help="Rows that each micro-batch adds to windows.")] = 800_000,
    results: Results = RESULTS,
) -> None:
    """The Spark job against Spark's own windowed aggregation, over tumbling and sliding windows: rows a second, and
    how much state is written."""
    from bench.common.speeds import Grouping
    from bench.spark.windows import measure_job

    describe_machine(results)
    # Spark adds a row to each of its windows: with fewer rows a pane it has equally much to do.
    loads = [
        Grouping(count, rows // each, panes, each)
        for each in held or [1, 5, 60]
        for count in groups or [66_000, 260_000, 1_000_000]
    ]
    measure_job(results, "spark_windows", loads)


@app.command(name="spark_joins")
def spark_joins(
    meets: Annotated[list[int] | None, typer.Option(help="Pairs of each packet, on average (repeatable).")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Seconds of the window (repeatable).")] = None,
    rate: Annotated[int, typer.Option(help="Packets a second of each direction.")] = 4_000,
    batches: Annotated[int, typer.Option(help="Of ten seconds each; half of them are for warming up.")] = 8,
    results: Results = RESULTS,
) -> None:
    """Window joins of the Spark job against Spark's own join of two streams: pairs a second, and how much state is
    written."""
    from bench.spark.joins import Meeting, measure_joins

    describe_machine(results)
    (met, *mets), (seconds, *longer) = meets or [1, 10], size or [5, 60]
    loads = [Meeting(met, seconds, rate, batches, tumbling=True)]
    loads += [Meeting(each, seconds, rate, batches) for each in (met, *mets)]
    loads += [Meeting(met, each, rate, batches) for each in longer]
    measure_joins(results, loads)


@app.command()
def delay(
    windows: Annotated[int, typer.Option(help="Windows to measure, after ten for warming up.")] = 60,
    spark: Annotated[list[str] | None, typer.Option(help="NAME=VALUE: a setting of Spark; repeat for more.")] = None,
    results: Results = RESULTS,
) -> None:
    """The time from a punctuation's production to the last visible result."""
    from bench.spark.delay import measure_delay

    describe_machine(results)
    measure_delay(results, windows=windows, spark=spark or [])


@app.command()
def memory(
    windows: Annotated[int, typer.Option(help="One-second windows.")] = 200,
    pace: Annotated[float, typer.Option(help="Times the capture's own pace.")] = 4.0,
    results: Results = RESULTS,
) -> None:
    """Resident memory of a capture process and of the job over many windows."""
    from bench.spark.memory import measure_memory

    describe_machine(results)
    measure_memory(results, windows=windows, pace=pace)


@app.command(name="all")
def everything() -> None:
    """All of them, one after the other."""
    job()
    delay()
    memory()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    app()
