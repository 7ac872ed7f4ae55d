"""`python -m bench.texts`: every text is answered or refused in a sentence, within a second.

Texts are drawn by a grammar (`tests.query.randomtexts`): queries of every clause, much too deep, too wide or too often
read through one another, damaged, or no queries at all. Each is compiled, its kernel is written and its plan explained.
Ends with exit code 1 where any of that raises what is no refusal, or the processor takes longer; a seed draws the text
again.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer

from lowmark.query.parse.size_limits import LIMITS
from tests.query.randomtexts import SHAPES, draw, try_text

__all__ = ["texts"]


def texts(
    count: Annotated[int, typer.Option(help="Texts.")] = 20_000,
    first: Annotated[int | None, typer.Option("--seed", help="Of the first text. Default: from the clock.")] = None,
    within: Annotated[float, typer.Option(help="Seconds on the processor that the slowest may take.")] = 1.0,
) -> None:
    start = time.time_ns() // 1_000_000_000 if first is None else first
    print(f"seed {start}")
    answered, refused, limited = Counter[str](), Counter[str](), Counter[str]()
    slowest, found = (0.0, start), 0
    for seed in range(start, start + count):
        case = draw(seed)
        outcome = try_text(case)
        (answered if outcome.answered else refused)[case.shape] += 1
        limited.update(limit.name for limit in LIMITS if f"the limit of {limit.name} is" in outcome.message)
        slowest = max(slowest, (outcome.seconds, seed))
        if outcome.found or outcome.seconds > within:
            found += 1
            took = f"{outcome.seconds:.1f} s for {len(case.text):,} characters"
            print(
                f"--- again: python -m bench.texts --count 1 --seed {seed}\n{case.text[:2000]}\n{outcome.found or took}"
            )
    for shape in SHAPES:
        print(f"{shape:<10}{answered[shape]:>8,} answered {refused[shape]:>8,} refused")
    print("refused by a limit:", ", ".join(f"{name} {limited[name]:,}" for name in sorted(limited)) or "none")
    print(f"the slowest took {slowest[0]:.2f} s (seed {slowest[1]})")
    if found:
        print(f"{found:,} of {count:,} texts were neither answered nor refused in a sentence, or took too long")
        raise typer.Exit(1)
    print(f"each of {count:,} texts was answered or refused in a sentence, within {within:g} s")


if __name__ == "__main__":
    typer.run(texts)
