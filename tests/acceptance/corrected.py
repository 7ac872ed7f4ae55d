"""What a reader of corrections does with them: rows and changes put together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tests.acceptance.command import Row

MERGES: Mapping[str, Callable[..., object]] = {
    "add": operator.add, "least": min, "greatest": max, "and": operator.and_, "or": operator.or_,
}  # fmt: skip


def corrected(rows: Iterable[Row], corrections: Iterable[Row], keys: Sequence[str], slide_s: int) -> list[Row]:
    """The rows that a query would have given, had nothing come late. Windows begin and end in whole seconds."""
    found = {_name(row, keys): row for row in rows}
    for correction in corrections:
        first, last = correction["windows"]  # type: ignore[misc]
        for place in range(last - first + 1):
            bounds = {
                "window_start": _later(correction["window_start"], slide_s * place),
                "window_end": _later(correction["window_end"], slide_s * (place - last + first)),
            }
            for delta in correction["deltas"]:  # type: ignore[attr-defined]
                change = {**bounds, **delta}
                old = found.get(_name(change, keys))
                found[_name(change, keys)] = change if old is None else _merged(old, change, correction["merge"])
    return list(found.values())


def _name(row: Row, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[key] for key in ("window_start", "window_end", *keys))


def _later(time: object, seconds: int) -> str:
    return (datetime.fromisoformat(str(time)) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merged(old: Row, change: Row, merge: object) -> Row:
    assert isinstance(merge, dict)
    result = dict(old)
    for column, word in merge.items():
        parts = [value for value in (old[column], change[column]) if value is not None]
        result[column] = MERGES[word](*parts) if len(parts) == 2 else next(iter(parts), None)
    return result
