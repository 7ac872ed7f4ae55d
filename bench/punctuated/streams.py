"""The punctuated streams of Ding 2004, 6.1: `punct-asc-100-40` and its like, as runs of rows and promises.

A segment ends with the promise of one value, of which `match` percent of its tuples are on average. The rest have
values that are promised in some later segment, each as likely: "tuples that match each punctuation may also occur in
any other punctuated segments prior to this punctuation".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.common.join_runs import NS, rows_of
from bench.common.response_times import exponential_times
from highlevel.interface import Words
from lowmark.wire.records.partials import PANE
from lowmark.wire.rows.schema import Schema

__all__ = ["IRRELEVANT", "Kind", "Stream", "Stretch", "drawn"]

Ints = npt.NDArray[np.int64]

IRRELEVANT = 1 << 20
"""Added to the promised values that match no tuple."""

_DOMAIN = 15_000
"""Values of a stream without promises."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`segment`: tuples of a segment, on average; 0: nothing is promised, and values are uniform. `match`: percent of
    them with its value. `random`: values are promised in random order, else in ascending order."""

    segment: int
    match: int = 40
    random: bool = False
    irrelevant: bool = False  # the promised values match no tuple


@dataclass(frozen=True, slots=True)
class Stream:
    times: Ints
    values: Ints
    promised: Ints  # values
    promised_at: Ints  # times


@dataclass(frozen=True, slots=True)
class Stretch:
    """What came of each stream in a stretch of time that ends at `end`: rows, then the values promised."""

    end: int
    rows: tuple[Words, Words]
    promised: tuple[Ints, Ints]


def drawn(kind: Kind, seconds: float, rate: float, random: np.random.Generator) -> Stream:
    """A stream that lasts about so long; tuples come one by one at exponential distances."""
    if not kind.segment:
        times = exponential_times(random, 0, int(seconds * rate), rate)
        nothing = np.empty(0, np.int64)
        return Stream(times, random.integers(0, _DOMAIN, len(times)), nothing, nothing)
    count = max(1, int(seconds * rate / kind.segment))
    order = random.permutation(count) if kind.random else np.arange(count)
    values, ends = [], []
    for at, value in enumerate(order.tolist()):
        size = max(1, int(random.poisson(kind.segment)))
        matching = min(size, round(size * min(100, int(random.poisson(kind.match))) / 100))
        later = order[at + 1 :] if at + 1 < count else order[at:]
        segment = np.concatenate((np.full(matching, value), random.choice(later, size - matching)))
        values.append(random.permutation(segment))
        ends.append(size)
    found = np.concatenate(values)
    times = exponential_times(random, 0, len(found), rate)
    promised_at = times[np.cumsum(ends) - 1] + 1
    return Stream(times, found, order + IRRELEVANT if kind.irrelevant else order, promised_at)


def stretches(
    streams: tuple[Stream, Stream], schemas: tuple[Schema, Schema], columns: tuple[str, str], step_ns: int
) -> Iterator[Stretch]:  # fmt: skip
    """Both streams in the order of time, cut into stretches."""
    last = max(int(stream.times[-1]) for stream in streams)
    for start in range(0, last + 1, step_ns):
        rows, promised = [], []
        for stream, schema, column in zip(streams, schemas, columns, strict=True):
            first, stop = np.searchsorted(stream.times, (start, start + step_ns))
            times = stream.times[first:stop]
            each = {PANE: times // NS, "tuples": np.ones(len(times), np.int64), "ts": times}
            rows.append(rows_of(schema, each | {column: stream.values[first:stop]}))
            first, stop = np.searchsorted(stream.promised_at, (start, start + step_ns))
            promised.append(stream.promised[first:stop])
        yield Stretch(start + step_ns, (rows[0], rows[1]), (promised[0], promised[1]))
