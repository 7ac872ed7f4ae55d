"""Searches a set for a value in a kernel. The set's constants are data passed to the kernel, so its text and native
code do not depend on their values or their number.

A search through 100,000 rows waits for memory at nearly each of its 17 steps. The rows therefore omit the words that
all of them begin with, and a directory of the first remaining word gives the few rows to check.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowmark.query.expr.expressions import Call, Expr, Ranges
from lowmark.query.plan.halves import expressions_of
from lowmark.query.plan.nodes import Reduction

__all__ = ["IN_TEXT", "SectionNames", "among", "arrays_of", "named_sections"]

IN_TEXT = 16
"""Most ranges of a set that are compared in the text: by measurement, a search costs 9 ns more than so few
comparisons."""

_MOST_SECTIONS = 2  # the versions of IP


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """The ranges of a set that share some first words. `rows` have the other words of each range's first and last
    value. `directory`: the common words; the least first word of the rows; how many of its bits a bucket leaves open;
    for each bucket, and for what follows the last one, the last row that begins before it (or the first)."""

    common: int
    rows: npt.NDArray[np.int64]
    directory: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SectionNames:
    """A section's names in a kernel's text, and the part of it that is in the text."""

    rows: str
    directory: str
    common: int
    width: int  # words of a row


def named_sections(reduction: Reduction, suffix: str = "") -> dict[Ranges, list[SectionNames]]:
    """The sections of each set that a node searches, in the order of `arrays_of`."""
    named: dict[Ranges, list[SectionNames]] = {}
    number = 0
    for ranges in _ranges_of(reduction):
        named[ranges] = []
        for section in _sections(ranges):
            names = (f"set{number}{suffix}", f"directory{number}{suffix}")
            named[ranges].append(SectionNames(*names, section.common, section.rows.shape[1]))
            number += 1
    return named


def arrays_of(reduction: Reduction) -> list[npt.NDArray[np.int64]]:
    """The rows and the directory of each section."""
    sections = [section for ranges in _ranges_of(reduction) for section in _sections(ranges)]
    return [array for section in sections for array in (section.rows, section.directory)]


def _ranges_of(reduction: Reduction) -> tuple[Ranges, ...]:
    """The sets that a node searches, each once."""
    found: dict[Ranges, None] = {}
    pending: list[Expr] = list(reversed(expressions_of(reduction)))
    while pending:
        match pending.pop():
            case Ranges() as ranges if len(ranges) > IN_TEXT:
                found[ranges] = None
            case Call(args=args):
                pending.extend(reversed(args))
    return tuple(found)


def _sections(ranges: Ranges) -> list[Section]:
    matrix, words = ranges.matrix, ranges.kind.words
    starts = np.flatnonzero(np.diff(matrix[:, 0])) + 1
    apart = words > 1 and len(starts) < _MOST_SECTIONS and bool((matrix[:, 0] == matrix[:, words]).all())
    return [_section(part, words) for part in (np.split(matrix, starts) if apart else [matrix])]


def _section(matrix: npt.NDArray[np.int64], words: int) -> Section:
    alike = [bool((matrix[:, [place, words + place]] == matrix[0, place]).all()) for place in range(words - 1)]
    common = alike.index(False) if False in alike else words - 1
    rows = np.ascontiguousarray(np.delete(matrix, [*range(common), *range(words, words + common)], axis=1))
    least, buckets = int(rows[0, 0]), 1 << len(rows).bit_length() - 1
    open_bits = max(0, (int(rows[-1, 0]) - least).bit_length() - (buckets.bit_length() - 1))
    bucket = (rows[:, 0].astype(np.uint64) - np.uint64(least % 2**64)) >> np.uint64(open_bits)
    before = np.searchsorted(bucket, np.arange(buckets + 1, dtype=np.uint64)) - 1
    directory = np.concatenate([matrix[0, :common], [least, open_bits], np.maximum(before, 0)]).astype(np.int64)
    return Section(common, rows, directory)


def among(
    rows: npt.NDArray[np.int64], directory: npt.NDArray[np.int64], common: int, asked: bool, value: tuple[int, ...]
) -> bool:
    """Whether a value lies in one of the ranges of a section, whose `common` first words it has (`asked`), and whose
    other words it has as `Ranges` has them. No branch but the loop's: where it goes nobody could foretell."""
    words = len(value)
    # What lies before all rows has a bucket behind the last one, too, and is not found there either.
    bucket = (np.uint64(value[0]) - np.uint64(directory[common])) >> np.uint64(directory[common + 1])
    place = np.uint64(common + 2) + min(bucket, np.uint64(directory.shape[0] - common - 4))
    at = np.uint64(directory[place])
    left = np.uint64(directory[place + np.uint64(1)]) - at + np.uint64(1) if asked else np.uint64(1)
    while left > 1:
        half = left >> np.uint64(1)
        before = False
        for word in range(words - 1, -1, -1):
            first = rows[at + half, word]
            before = (value[word] < first) | ((value[word] == first) & before)
        at = at if before else at + half
        left -= half
    begun, open_ = True, True
    for word in range(words - 1, -1, -1):
        first, end = rows[at, word], rows[at, words + word]
        begun = (value[word] > first) | ((value[word] == first) & begun)
        open_ = (value[word] < end) | ((value[word] == end) & open_)
    return asked & begun & open_
