"""`python -m bench.windows fig_6_10`: window aggregates at operator level, measured as Li 6.1.5 does.

Each command prints its figures and leaves them, with a plot, in bench/results; bench/README.md says what they show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.common.reports import RESULTS, describe_machine

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Results = Annotated[Path, typer.Option(help="Where CSV files and plots go.")]


@app.callback()
def windows() -> None:
    """Window aggregates at operator level."""


@app.command("fig_6_10")
def fig_6_10(
    tuples: Annotated[int, typer.Option(help="Tuples of the stream, in order, 4,000 a second.")] = 20_000,
    repeat: Annotated[int, typer.Option(help="Runs of each; the median counts.")] = 3,
    results: Results = RESULTS,
) -> None:
    """Execution time of WID, of what is chosen and of buffering: max, RANGE 4000 rows, SLIDE from 1 to 4000 rows."""
    from bench.windows.execution import measure_execution

    describe_machine(results)
    measure_execution(results, tuples=tuples, repeat=repeat)


@app.command("fig_6_11")
def fig_6_11(results: Results = RESULTS) -> None:
    """Latency against accuracy for band disorder: WID with punctuations, buffering with slack."""
    from bench.windows.disorder import BAND, measure_disorder

    describe_machine(results)
    measure_disorder(results, BAND)


@app.command("fig_6_12")
def fig_6_12(results: Results = RESULTS) -> None:
    """Latency against accuracy for block-sorted disorder: WID with punctuations, buffering with slack."""
    from bench.windows.disorder import BLOCKS, measure_disorder

    describe_machine(results)
    measure_disorder(results, BLOCKS)


@app.command("fig_6_15")
def fig_6_15(
    repeat: Annotated[int, typer.Option(help="Runs of each; the least CPU time counts.")] = 3,
    groups: Annotated[list[int] | None, typer.Option(help="Groups, each of them in every pane (repeatable).")] = None,
    results: Results = RESULTS,
) -> None:
    """Execution time of Paned-WID against WID, over tuples of a pane and panes of a window."""
    from bench.windows.panes import GROUPS, measure_panes

    describe_machine(results)
    measure_panes(results, groups=groups or GROUPS, repeat=repeat)


@app.command("fig_6_19")
def fig_6_19(
    seconds: Annotated[int, typer.Option(help="Of stream time, in each run.")] = 40,
    rate: Annotated[int, typer.Option(help="Tuples a second.")] = 8_000,
    repeat: Annotated[int, typer.Option(help="Runs of each; the median of latency and time counts.")] = 5,
    results: Results = RESULTS,
) -> None:
    """Memory, latency and time of eager, lazy and AdaptWID: Q6-7 on DS1 to DS5, Q6-8 over the skew of a link."""
    from bench.windows.skew import measure_skew

    describe_machine(results)
    measure_skew(results, seconds=seconds, rate=rate, repeat=repeat)


@app.command("states")
def states(
    groups: Annotated[int, typer.Option(help="Of which something comes at all times.")] = 2_000,
    results: Results = RESULTS,
) -> None:
    """What each strategy keeps, and the time it takes, by kind of window and of traffic."""
    from bench.windows.strategy_states import measure_states

    describe_machine(results)
    measure_states(results, groups=groups)


@app.command("costs")
def costs(
    repeat: Annotated[int, typer.Option(help="Runs of each; the least CPU time counts.")] = 3,
    groups: Annotated[list[int] | None, typer.Option(help="Groups of a pane (repeatable).")] = None,
    results: Results = RESULTS,
) -> None:
    """Which strategy is the fastest, and which one `auto` takes, over groups a pane and panes a window."""
    from bench.windows.strategy_costs import GROUPS, measure_costs

    describe_machine(results)
    measure_costs(results, groups=groups or GROUPS, repeat=repeat)


@app.command("fig_8_8")
def fig_8_8(results: Results = RESULTS) -> None:
    """Memory of Q8-2 as tuples come (OOP) and in order (IOP), over the skew of its two sources."""
    from bench.windows.unions import Q8_2, measure_unions

    describe_machine(results)
    measure_unions(results, Q8_2)


@app.command("fig_8_11")
def fig_8_11(results: Results = RESULTS) -> None:
    """Memory of Q8-5 as tuples come (OOP) and in order (IOP), over the delay of link C."""
    from bench.windows.unions import Q8_5, measure_unions

    describe_machine(results)
    measure_unions(results, Q8_5)


if __name__ == "__main__":
    app()
