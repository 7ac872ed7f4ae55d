"""`python -m bench.sketches`: lowmark's approximate aggregates and heavy hitters, against those of datasketches.

Three questions over a group's values: how many different ones, which stand at four ranks, which ten come most often and
how often. Compared are the errors, what is kept of the group, the time of a value, and whether the answer stays what it
is when the same values come in another order or cut into other parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.common.reports import RESULTS, Figure, describe_machine, write_csv
from bench.sketches.questions import OURS, QUESTIONS, rank_error

__all__ = ["OURS", "Errors", "Moves", "measure_sketches"]

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Errors:
    """Of a contender over several draws of as many values. An answer's error is the greatest relative one in it."""

    question: str
    spread: str
    values: int
    contender: str
    trials: int
    root_mean_square: float
    greatest: float
    rank: float  # the greatest error of the rank, of values at ranks
    size: int  # bytes of state, the most
    nanoseconds: float  # of CPU a value, the least


@dataclass(frozen=True, slots=True)
class Moves:
    """The same values in several orders, cuts and orders of merging."""

    question: str
    spread: str
    contender: str
    runs: int
    answers: int  # different ones
    apart: float  # the farthest two of them, relative to what is right


def _errors(name: str, spread: str, count: int, trials: int) -> list[Errors]:
    question, found = QUESTIONS[name], []
    drawn = [question.spreads[spread](np.random.default_rng([trial, count]), count) for trial in range(trials)]
    exact = [np.array(question.exact(values)) for values in drawn]
    for contender, answer in question.contenders.items():
        errors, ranks, sizes, times = [], [], [], []
        for values, right in zip(drawn, exact, strict=True):
            began = time.process_time()
            told = answer([values])
            times.append(time.process_time() - began)
            sizes.append(told.size)
            off = np.abs(np.array(question.numbers(told.answer, values)) - right)
            errors.append(float(np.max(off / question.scale(right, count))))
            ranks.append(rank_error(told.answer, values) if name == "quantiles" else 0.0)
        found.append(
            Errors(
                name, spread, count, contender, trials, float(np.sqrt(np.mean(np.square(errors)))), max(errors),
                max(ranks), max(sizes), 1e9 * min(times) / count,
            )
        )  # fmt: skip
    return found


def _moves(name: str, spread: str, count: int) -> list[Moves]:
    question, random = QUESTIONS[name], np.random.default_rng(count)
    values = question.spreads[spread](random, count)
    right = np.array(question.exact(values))
    orders = (values, values, values[::-1], np.sort(values), random.permutation(values))  # the first one twice
    found = []
    for contender, answer in question.contenders.items():
        told = []
        for order, cuts, back in product(orders, (1, 7, 40), (1, -1)):
            parts = np.array_split(order, cuts)[::back]
            told.append(np.array(question.numbers(answer(parts).answer, values)))
        apart = float(np.max((np.max(told, axis=0) - np.min(told, axis=0)) / question.scale(right, count)))
        found.append(Moves(name, spread, contender, len(told), len(np.unique(told, axis=0)), apart))
    return found


def measure_sketches(
    results: Path, *, sizes: Sequence[int], moved: int, budget: int
) -> tuple[list[Errors], list[Moves]]:
    """`moved`: values of which the order is changed. `budget`: values that are drawn of each size, at most in 100
    trials and at least in 10."""
    errors = [
        line
        for name, question in QUESTIONS.items()
        for spread in question.spreads
        for count in sizes
        for line in _errors(name, spread, count, max(10, min(100, budget // count)))
    ]
    moves = [
        line
        for name, question in QUESTIONS.items()
        for spread in question.spreads
        for line in _moves(name, spread, moved)
    ]
    _write(results, errors, moves)
    for name in QUESTIONS:
        _print(name, sizes, errors, moves)
        _plot(results, name, sizes, errors)
    return errors, moves


def _write(results: Path, errors: Sequence[Errors], moves: Sequence[Moves]) -> None:
    write_csv(
        results, "sketches",
        ("question", "values_are", "values", "contender", "trials", "rms_error", "greatest_error",
         "greatest_rank_error", "state_bytes", "ns_a_value"),
        [
            (e.question, e.spread, e.values, e.contender, e.trials, e.root_mean_square, e.greatest, e.rank,
             e.size, e.nanoseconds)
            for e in errors
        ],
    )  # fmt: skip
    write_csv(
        results, "sketches-moves", ("question", "values_are", "contender", "runs", "different_answers", "apart"),
        [(m.question, m.spread, m.contender, m.runs, m.answers, m.apart) for m in moves],
    )  # fmt: skip


def _print(name: str, sizes: Sequence[int], errors: Sequence[Errors], moves: Sequence[Moves]) -> None:
    question = QUESTIONS[name]
    shown = sizes[:: max(1, len(sizes) // 2)]
    columns: list[tuple[str, Callable[[Errors], float], str]] = [
        ("error, root of mean squares, %", lambda e: 100 * e.root_mean_square, "10.2f"),
        ("greatest error, %", lambda e: 100 * e.greatest, "10.2f"),
        ("bytes of state", lambda e: e.size, "11,.0f"),
    ]
    if name == "quantiles":
        columns.insert(2, ("greatest error of the rank, %", lambda e: 100 * e.rank, "10.2f"))
    print(f"\nThe {question.title}. By how many values there are; the worst of {', '.join(question.spreads)}")
    for line in (0, 1):
        heads = [
            f"{title:>{width * len(shown)}}" if line == 0 else "".join(f"{count:>{width},}" for count in shown)
            for title, _, form in columns
            for width in (int(form[:2]),)
        ]
        print(
            f"{'':18}{''.join(heads)}"
            + ("    ns a  answers" if line == 0 else f"   value{f'in {moves[0].runs}':>9}  apart, %")
        )
    for contender in question.contenders:
        of = [e for e in errors if (e.question, e.contender) == (name, contender)]
        moved = [m for m in moves if (m.question, m.contender) == (name, contender)]
        numbers = (
            f"{max(number(e) for e in of if e.values == count):{form}}"
            for _, number, form in columns
            for count in shown
        )
        time_of = max(e.nanoseconds for e in of if e.values == shown[-1])
        answers, apart = max(m.answers for m in moved), max(m.apart for m in moved)
        print(f"{contender:<18}{''.join(numbers)}{time_of:>8.0f}{answers:>9}{100 * apart:>10.2g}")


def _plot(results: Path, name: str, sizes: Sequence[int], errors: Sequence[Errors]) -> None:
    question = QUESTIONS[name]
    measures: tuple[tuple[str, str, Callable[[Errors], float]], ...] = (
        ("error", "root of mean squares, %", lambda e: 100 * e.root_mean_square),
        ("state", "bytes", lambda e: e.size),
    )
    for measure, label, of in measures:
        with Figure(results, f"sketches-{name}-{measure}", f"The {question.title}: {measure}") as axes:
            for contender in question.contenders:
                worst = [
                    max(of(e) for e in errors if (e.question, e.contender, e.values) == (name, contender, count))
                    for count in sizes
                ]
                axes.plot(sizes, worst, "o-", label=contender)
            axes.set_xscale("log")
            if measure == "state" or name == "quantiles":
                axes.set_yscale("log")
            axes.set_xlabel(f"values of a group; the worst of {', '.join(question.spreads)}")
            axes.set_ylabel(label)
            axes.legend()


def sketches(
    quick: Annotated[bool, typer.Option(help="Fewer and smaller groups.")] = False,
    results: Annotated[Path, typer.Option(help="Where CSV files and plots go.")] = RESULTS,
) -> None:
    describe_machine(results)
    if quick:
        measure_sketches(results, sizes=SIZES[:3], moved=6_000, budget=50_000)
    else:
        measure_sketches(results, sizes=SIZES, moved=60_000, budget=2_000_000)


if __name__ == "__main__":
    typer.run(sketches)
