"""`python -m bench.kills`: a job whose processes and broker are killed hundreds of times, while its queries and sources
change.

Python's workers, their parent, Spark's JVM, the driver and the broker, at moments that a seed draws, and several in a
row, so that some die while others start. Then results have to catch up; in the end every row has to be there once, and
every `exact` right. bench/README.md says what the figures show.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.reports import RESULTS, describe_machine, write_csv
from tests.integration.kills import Kills


def main(
    kills: Annotated[int, typer.Option(min=1, help="How many processes are killed.")] = 500,
    minutes: Annotated[float, typer.Option(help="No further process is killed after so many minutes.")] = 90,
    seed: Annotated[int, typer.Option(help="Draws what is killed, and when.")] = 1,
    results: Annotated[Path, typer.Option(help="Where the CSV file goes.")] = RESULTS,
) -> None:
    """Kills a job and its broker again and again; afterwards each of its results is there once, or this fails."""
    describe_machine(results)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as name, Kills(Path(name), seed, _tell) as done:
        done.run(kills, within_s=60 * minutes)
        done.end()
    rows = []
    for kind, waits in done.waits.items():
        if waits:
            median, most = float(np.median(waits)), max(waits)
            print(
                f"{kind}: killed {done.kills[kind]} times; {len(waits)} rows of kills in which it cost most: results "
                f"caught up after {median:.1f} s, at most {most:.1f} s"
            )
            rows.append((kind, done.kills[kind], len(waits), median, most))
    took_s = time.monotonic() - began
    print(f"{done.count} kills, {done.starts} starts, {done.changes} changes in {took_s:.0f} s: each result once")
    write_csv(results, "kills", ("killed", "times", "rows", "median_s", "most_s"), rows)


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    typer.run(main)
