"""Are two bags of result rows equal, by the rule of the acceptance cases?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Row = dict[str, object]


def _exact(value: object) -> object:
    """A value that groups rows: numbers that may differ a little all look the same."""
    if isinstance(value, bool):
        return "boolean", value
    return "number" if isinstance(value, int | float) else value


def _same(a: object, b: object) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return False
        return abs(a - b) <= 1e-9 * max(1, abs(a), abs(b))
    return a == b


def same_row(a: Row, b: Row) -> bool:
    return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)


def differences(got: Sequence[Row], expected: Sequence[Row], most: int = 5) -> list[str]:
    """What is missing and what is too much, as bags; [] when they are equal."""
    unmatched: dict[object, list[Row]] = defaultdict(list)
    for row in got:
        unmatched[_class(row)].append(row)
    missing = []
    for row in expected:
        candidates = unmatched[_class(row)]
        match = next((i for i, candidate in enumerate(candidates) if same_row(candidate, row)), None)
        if match is None:
            missing.append(row)
        else:
            del candidates[match]
    surplus = [row for rows in unmatched.values() for row in rows]
    if not missing and not surplus:
        return []
    return [
        f"{len(missing)} rows missing, {len(surplus)} too many, of {len(expected)} expected",
        *(f"missing: {row}" for row in missing[:most]),
        *(f"surplus: {row}" for row in surplus[:most]),
    ]


def _class(row: Row) -> object:
    return frozenset((key, _exact(value)) for key, value in row.items())


def wrong_orders(got: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    """For ORDER BY: the rows of each window in their order; those that came elsewhere."""
    wrong = []
    theirs, ours = _by_window(expected), _by_window(got)
    for window, rows in theirs.items():
        found = ours.get(window, [])
        if len(found) != len(rows) or not all(same_row(a, b) for a, b in zip(found, rows, strict=True)):
            wrong.append(f"window {window}: {found} in place of {rows}")
    return wrong


def _by_window(rows: Sequence[Row]) -> dict[tuple[object, object], list[Row]]:
    windows: dict[tuple[object, object], list[Row]] = defaultdict(list)
    for row in rows:
        windows[row.get("window_start"), row.get("window_end")].append(row)
    return windows
