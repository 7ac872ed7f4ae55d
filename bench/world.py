"""`python -m bench.world`: schedules of the simulated world, one seed after the other, for as long as there is time.

A seed that fails is printed with the command that shows it step by step. A part of it runs with the tests.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tests.world.simulation import run


def world(
    minutes: Annotated[float, typer.Option(help="No schedule begins later.")] = 10,
    first: Annotated[int | None, typer.Option("--seed", help="The first one. Default: from the clock.")] = None,
    changes: Annotated[bool, typer.Option("--changes", help="The text of the query changes, too.")] = False,
) -> None:
    seed = time.time_ns() // 1_000 if first is None else first
    print(f"seed {seed}")
    begun, cpu, schedules, failed = time.monotonic(), time.process_time(), 0, 0
    while time.monotonic() - begun < 60 * minutes:
        outcome = run(seed + schedules, changes=changes)
        schedules += 1
        if outcome.wrong:
            failed += 1
            command = f"python -m tests.world {outcome.seed}{' --changes' if changes else ''}"
            print(f"{command}: {outcome.wrong[0]}", flush=True)
    spent = time.process_time() - cpu
    print(f"{schedules:,} schedules, {60 * schedules / spent:,.0f} a minute of one core; {failed} have failed")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(world)
