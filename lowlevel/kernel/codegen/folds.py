"""Writes the source text of a node's folds, which merge a tuple's row into the resident row of its group.

Both are rows in word form. The null words of a row are 0, which is neutral for sums and for OR.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel.kernel.codegen.expressions import less
from lowlevel.kernel.codegen.source_text import SourceText
from lowlevel.kernel.row_form import RowForm
from lowmark.query.plan.nodes import Fold, FoldOp, Reduction

__all__ = ["ORDERED_FOLDS", "write_merge", "write_sums"]

ORDERED_FOLDS = frozenset({FoldOp.MIN, FoldOp.MAX, FoldOp.FIRST, FoldOp.LAST})
"""Folds that compare values."""

_SUMS = frozenset({FoldOp.ADD, FoldOp.ADD_WIDE})


@dataclass(frozen=True, slots=True)
class _FoldPlaces:
    """The places of a fold's columns in a row."""

    fold: Fold
    first: int  # index of its first column
    words: tuple[tuple[int, ...], ...]  # words of each column

    @property
    def bits(self) -> int:
        return ((1 << len(self.words)) - 1) << self.first

    @property
    def value_bit(self) -> int:
        """The bit of the column whose null makes the fold neutral. In FIRST and LAST it follows the order."""
        return 1 << (self.first + len(self.words) - 1)

    @property
    def nullable(self) -> bool:
        return self.fold.columns[-1].nullable


def _places(reduction: Reduction) -> list[_FoldPlaces]:
    form = RowForm(reduction)
    places = []
    index = 2 + len(reduction.keys) + len(reduction.details)
    for fold in reduction.folds:
        words = []
        for column in fold.columns:
            at = form.offset(column.name)
            words.append(tuple(range(at, at + column.kind.words)))
        places.append(_FoldPlaces(fold, index, tuple(words)))
        index += len(fold.columns)
    return places


def write_sums(source: SourceText, reduction: Reduction, table: str, rows: str) -> str:
    """Write statements that compute the sums of resident table[slot] and tuple rows[k]. Returns the source of a
    boolean: a sum would overflow, so the resident must leave first."""
    overflows = []
    for place in _places(reduction):
        if place.fold.op not in _SUMS:
            continue
        *high, (low,) = place.words
        source.line(f"sum_{low} = wrap_add({table}[slot, {low}], {rows}[k, {low}])")
        total = low
        if high:
            total = high[0][0]
            source.line(f"carry = 1 if unsigned_less(sum_{low}, {rows}[k, {low}]) else 0")
            source.line(f"sum_{total} = wrap_add(wrap_add({table}[slot, {total}], {rows}[k, {total}]), carry)")
        overflows.append(f"(({table}[slot, {total}] ^ sum_{total}) & ({rows}[k, {total}] ^ sum_{total})) < 0")
    return " or ".join(overflows) or "False"


def write_merge(source: SourceText, reduction: Reduction, table: str, rows: str) -> None:
    """Write statements that merge tuple rows[k] into resident table[slot]; they follow those of `write_sums`."""
    source.line(f"{table}[slot, ROW_TUPLES] += 1")
    places = _places(reduction)
    masked = any(place.nullable for place in places)
    if masked:
        source.line(f"mask = {table}[slot, ROW_MASK]", f"new_mask = {rows}[k, ROW_MASK]")
    for place in places:
        if place.fold.op in _SUMS or place.fold.op in (FoldOp.ADD_FLOAT, FoldOp.BIT_OR):
            _write_neutral_zero(source, place, table, rows)
        else:
            _write_guarded(source, place, table, rows)
    if masked:
        source.line(f"{table}[slot, ROW_MASK] = mask")


def _write_neutral_zero(source: SourceText, place: _FoldPlaces, table: str, rows: str) -> None:
    match place.fold.op:
        case FoldOp.ADD_FLOAT:
            (high,), (low,) = place.words
            source.line(
                f"so_far, more = double_of({table}[slot, {high}]), double_of({rows}[k, {high}])",
                "total = so_far + more",
                "part = total - so_far",
                "rounded = (so_far - (total - part)) + (more - part)",
                f"rounded += double_of({table}[slot, {low}]) + double_of({rows}[k, {low}])",
                f"{table}[slot, {high}], {table}[slot, {low}] = word_of(total), word_of(rounded)",
            )
        case FoldOp.BIT_OR:
            ((word,),) = place.words
            source.line(f"{table}[slot, {word}] |= {rows}[k, {word}]")
        case _:
            source.line(*(f"{table}[slot, {at}] = sum_{at}" for (at,) in place.words))
    if place.nullable:
        source.line(f"mask &= new_mask | {~place.bits}")


def _write_guarded(source: SourceText, place: _FoldPlaces, table: str, rows: str) -> None:
    """A null tuple changes nothing; a null resident is replaced."""
    better = _better(place, table, rows)
    if not place.nullable:
        with source.block(f"if {better}:"):
            _take(source, place, table, rows)
        return
    with source.block(f"if new_mask & {place.value_bit} == 0:"):
        with source.block(f"if mask & {place.value_bit} != 0:"):
            source.line(f"mask = (mask & {~place.bits}) | (new_mask & {place.bits})")
            _copy(source, place, table, rows)
        with source.block(f"elif {better}:"):
            source.line(f"mask = (mask & {~place.bits}) | (new_mask & {place.bits})")
            _take(source, place, table, rows)


def _better(place: _FoldPlaces, table: str, rows: str) -> str:
    """Whether the tuple changes the resident."""
    if place.fold.op is FoldOp.BIT_AND:
        return "True"
    columns = [
        (column.kind, tuple(f"{rows}[k, {at}]" for at in words), tuple(f"{table}[slot, {at}]" for at in words))
        for column, words in zip(place.fold.columns, place.words, strict=True)
    ]
    if place.fold.op in (FoldOp.MIN, FoldOp.MAX):
        ((kind, new, old),) = columns
        return less(kind, new, old) if place.fold.op is FoldOp.MIN else less(kind, old, new)
    decided = "False"
    for kind, new, old in reversed(columns[:-1]):
        before, after = (new, old) if place.fold.op is FoldOp.FIRST else (old, new)
        tie = f"not ({less(kind, after, before)}) and ({decided})"
        decided = less(kind, before, after) if decided == "False" else f"{less(kind, before, after)} or ({tie})"
    return decided


def _take(source: SourceText, place: _FoldPlaces, table: str, rows: str) -> None:
    if place.fold.op is FoldOp.BIT_AND:
        word = place.words[0][0]
        source.line(f"{table}[slot, {word}] &= {rows}[k, {word}]")
    else:
        _copy(source, place, table, rows)


def _copy(source: SourceText, place: _FoldPlaces, table: str, rows: str) -> None:
    source.line(*(f"{table}[slot, {at}] = {rows}[k, {at}]" for words in place.words for at in words))
