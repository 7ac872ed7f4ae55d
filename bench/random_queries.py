"""`python -m bench.random_queries`: random queries over random traffic give the rows of their definitions.

Each kind of query is drawn in rounds, as many as there is time for; a round has a seed of its own, and a failure says
how to draw it again. What runs is all above the kernels: nodes computed from packets, records in any interleaving
and cut, state that is written and read between them, any number of buckets; `command`, `lists`, `late`, `piped` and
`damaged` are whole runs of `lowmark query`, a kernel for each. `piped` has packets later than is declared, in pieces;
`damaged` captures that are cut, foreign, or have packets without a time. What is expected comes from an evaluator that
knows the definitions alone.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.common.reports import RESULTS, write_csv
from lowmark.query.bind.relations import Turn
from lowmark.query.options import Strategy
from lowmark.query.parse.errors import QueryError
from tests.acceptance import countingqueries, damaged, edgequeries, idle, queries
from tests.acceptance.interleaved import check
from tests.acceptance.late import Correctable, check_corrections, correctables
from tests.acceptance.piped import DISORDERS, check_answer, cuts
from tests.acceptance.traffic import Traffic, traffic
from tests.acceptance.whole import check_command, options

__all__ = ["KINDS", "Failure", "Kind", "run_round"]


@dataclass(frozen=True, slots=True)
class Kind:
    """`run` draws what it needs; AssertionError is a failure. A round draws so many examples."""

    run: Callable[[st.DataObject], str]  # gives the query
    examples: int


@dataclass(frozen=True, slots=True)
class Failure:
    text: str


def _above(texts: st.SearchStrategy[str]) -> Kind:
    def run(data: st.DataObject) -> str:
        text, sent, chance = data.draw(texts), data.draw(traffic()), data.draw(st.integers(0, 2**32))
        buckets, strategy = data.draw(st.sampled_from((1, 1, 2, 5))), data.draw(st.sampled_from(Strategy))
        try:
            check(text, sent, chance, buckets, strategy)
        except QueryError:
            if strategy is Strategy.AUTO:
                raise
            check(text, sent, chance, buckets)  # one that is not for such a query
        return text

    return Kind(run, examples=12)


_ANY = st.one_of(queries.queries, countingqueries.queries, queries.nested())


def _whole(texts: st.SearchStrategy[str]) -> Callable[[st.DataObject], str]:
    def run(data: st.DataObject) -> str:
        text, sent = data.draw(texts), data.draw(traffic())
        check_command(text, sent, data.draw(options(sent)))
        return text

    return run


def _piped(data: st.DataObject) -> str:
    text, sent = data.draw(_ANY), data.draw(traffic())
    with tempfile.TemporaryDirectory() as folder:
        check_answer(text, sent.write(Path(folder)), data.draw(DISORDERS), data.draw(cuts()))
    return text


def _damaged(data: st.DataObject) -> str:
    damaged.check_damaged(data.draw(damaged.cases()))
    return damaged.SQL


def _late(data: st.DataObject) -> str:
    asked: Correctable = data.draw(correctables())
    sent: Traffic = data.draw(traffic())
    with tempfile.TemporaryDirectory() as folder:
        disorder = data.draw(st.sampled_from(("ordered", "within 3 s", "within 20 tuples")))
        check_corrections(asked, sent.write(Path(folder)), disorder)
    return asked.text


def _idle(data: st.DataObject) -> str:
    text, sent, idle_s = data.draw(idle.TEXTS), data.draw(traffic()), data.draw(idle.SECONDS)
    idle.check_idle(text, sent, idle_s, data.draw(st.sampled_from((1, 1, 2, 5))), data.draw(st.integers(0, 2**32)))
    return text


KINDS: Mapping[str, Kind] = {
    "time": _above(queries.queries),
    "no window": _above(queries.groupings(False)),
    "rows": _above(countingqueries.counting(Turn.ROWS)),
    "slide by tuple": _above(countingqueries.counting(Turn.ARRIVAL)),
    "slide by rank": _above(countingqueries.counting(Turn.RANK)),
    "idle": Kind(_idle, examples=12),
    "positions": _above(countingqueries.positions()),
    "counting stages": _above(countingqueries.stages()),
    "nested": _above(queries.nested()),
    "joins": _above(queries.joins()),
    "outer": _above(queries.outer_joins()),
    "nested joins": _above(queries.nested_joins()),
    "wide": _above(edgequeries.wide()),
    "command": Kind(_whole(_ANY), examples=3),  # the first one of a round is the least that there is
    "lists": Kind(_whole(edgequeries.lists()), examples=3),
    "late": Kind(_late, examples=2),
    "piped": Kind(_piped, examples=2),
    "damaged": Kind(_damaged, examples=12),
}

_FEATURES = {
    "sliding or tumbling": r"\[RANGE (?!ALL)[^]]*\b(s|ms|seconds?|minutes?|day)\b(?![^]]*SATTR)",
    "landmark": r"RANGE ALL",
    "over leaps": r"\[[^]]*\bWA [^]]*\*",
    "rows": r"RANGE \d+ rows",
    "partitioned": r"\bPA ",
    "slide by tuple": r"SATTR row_num",
    "slide by rank": r"SATTR rank",
    "without a window": r"^(?!.*\[).*(GROUP BY|DISTINCT)",
    "stages": r"CREATE STREAM|FROM \(",
    "union": r"UNION",
    "join": r"JOIN|EXISTS| AS x .*, .* AS y |p \[RANGE",
    "HAVING, ORDER BY, total": r"HAVING|ORDER BY|total\(",
    "approximate": r"approx_|heavy_hitter",
}


@dataclass
class _Tally:
    examples: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    features: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, texts: list[str], seconds: float) -> None:
        self.examples[kind] += len(texts)
        self.seconds[kind] = self.seconds.get(kind, 0) + seconds
        for name, pattern in _FEATURES.items():
            self.features[name] += sum(re.search(pattern, text) is not None for text in texts)


def run_round(kind: Kind, number: int, examples: int, shrink: bool = False) -> list[str] | Failure:
    """The queries that were drawn; the same ones for the same number of round and of examples."""
    texts: list[str] = []

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, report_multiple_bugs=False, derandomize=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        texts.append(kind.run(data))

    try:
        drawn()
    except Exception as error:  # whatever a query makes the program do, it is this round's finding
        return Failure("\n".join((f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()))))
    return texts


def _rounds(kinds: list[str], first: int) -> Iterator[tuple[str, int]]:
    number = first
    while True:
        for kind in kinds:
            yield kind, number
        number += 1


def random_queries(
    seconds: Annotated[float, typer.Option(help="A round that has begun by then is the last one.")] = 300,
    only: Annotated[list[str] | None, typer.Option(help=f"Kinds: {', '.join(KINDS)}. Default: all.")] = None,
    first: Annotated[int | None, typer.Option("--seed", help="Of the first round. Default: from the clock.")] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many of each kind.")] = None,
    shrink: Annotated[
        bool, typer.Option(help="Look for a smaller case where one fails; this can take minutes.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Where the CSV goes.")] = RESULTS,
) -> None:
    unknown = [kind for kind in only or [] if kind not in KINDS]
    if unknown:
        raise typer.BadParameter(f"no kind {unknown[0]}; there are {', '.join(KINDS)}")
    begun, tally, kinds = time.monotonic(), _Tally(), only or list(KINDS)
    start = time.time_ns() // 1_000_000_000 if first is None else first
    print(f"seed {start}")
    for kind, number in _rounds(kinds, start):
        if time.monotonic() - begun > seconds or (rounds is not None and number >= start + rounds):
            break
        since = time.monotonic()
        found = run_round(KINDS[kind], number, KINDS[kind].examples, shrink)
        if isinstance(found, Failure):
            print(found.text)
            print(f"again: python -m bench.random_queries --seed {number} --only {kind} --rounds 1 --shrink")
            raise typer.Exit(1)
        tally.add(kind, found, time.monotonic() - since)
    for name, count in tally.examples.items():
        print(f"{name:<24}{count:>7,} queries {tally.seconds[name]:>6.0f} s")
    print(*(f"  {name:<22}{count:>7,}" for name, count in tally.features.items()), sep="\n")
    print(f"all have the rows of their definitions: {tally.examples.total():,} queries")
    write_csv(results, "random-queries", ("of", "queries"), [*tally.examples.items(), *tally.features.items()])


if __name__ == "__main__":
    typer.run(random_queries)
