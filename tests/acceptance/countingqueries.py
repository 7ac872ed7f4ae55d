"""Random queries with windows that count tuples, and over row_num, as text."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from lowmark.query.bind.relations import Turn
from tests.acceptance.queries import NULLABLE, PACKETS, Columns, Text, aggregates, conditions

DERIVED = Columns(
    integers=("destPort", "bits", "proto", "row_num"),
    addresses=("srcIP", "destIP"),
    keys=("srcIP", "destIP", "proto", "bits / 1000", "destPort", "srcIP IN 10.0.0.0/30"),
    packets=False,
)
PARTS = ("srcIP", "proto", "srcIP, proto", "srcIP, destIP")
SELECTED = "SELECT ts, row_num, srcIP, destIP, destPort, proto, len * 8 AS bits, ts + 3 seconds AS later FROM {}"
UNNUMBERED = replace(DERIVED, integers=("destPort", "bits", "proto"))
"""A selection that does not show row_num is counted all the same; as a value it has none."""


@st.composite
def froms(draw: st.DrawFn, numbered: bool = True) -> tuple[str, Columns]:
    stream = draw(st.sampled_from(("A", "B", "B", "A UNION B", "(B UNION A)")))
    if draw(st.integers(0, 3)):
        return stream, PACKETS
    shown = numbered or draw(st.booleans())
    columns, selected = (DERIVED, SELECTED) if shown else (UNNUMBERED, SELECTED.replace(" row_num,", ""))
    if draw(st.integers(0, 3)):
        return f"({selected.format(stream)} WHERE {draw(conditions(PACKETS))}) AS sub", columns
    halves = (f"({selected.format(name)} WHERE {draw(conditions(PACKETS))})" for name in ("A", "B"))
    return " UNION ".join(halves), columns


@st.composite
def rows_windows(draw: st.DrawFn) -> str:
    size, slide = draw(st.integers(1, 40)), draw(st.integers(1, 30))
    ranges = (f"RANGE {size} rows, SLIDE {slide} rows", f"RANGE {size} rows", f"RANGE TUMBLING {size} rows",
              f"RANGE {size * slide} rows, SLIDE {slide} rows", f"RANGE ALL, SLIDE {slide} rows",
              f"SLIDE {slide}, RANGE {size}")  # fmt: skip
    return f"{draw(st.sampled_from(ranges))}, WA row_num"


@st.composite
def by_tuple(draw: st.DrawFn, derived: bool, ranked: bool) -> str:
    attribute = draw(
        st.sampled_from(("ts", "ts", "later") if derived else ("ts", "ts", "arrival_ts", "ts - 2 seconds"))
    )
    size = draw(st.sampled_from(("1 s", "10 seconds", "30", "5 minutes", "1 ns", "500 ms")))
    order = f"rank({attribute})" if ranked else "row_num"
    return f"RANGE {size}, RATTR {attribute}, SLIDE {draw(st.integers(1, 30))} rows, SATTR {order}"


@st.composite
def counting(draw: st.DrawFn, turn: Turn) -> str:
    """Windows over rows, or slide-by-tuple of one order, with PA and without."""
    source, columns = draw(froms(numbered=False))
    window = draw(rows_windows() if turn is Turn.ROWS else by_tuple(not columns.packets, turn is Turn.RANK))
    part = draw(st.sampled_from(PARTS)) if draw(st.booleans()) else None
    keys = draw(st.lists(st.sampled_from(columns.keys), max_size=2, unique=True))
    values = draw(st.lists(aggregates(columns), min_size=1, max_size=3))
    shown = [(key, f"k{i}") for i, key in enumerate(keys) if draw(st.integers(0, 4))]
    shown += [(value, f"v{i}") for i, value in enumerate(values)]
    shown += [] if part is None else [(key, f"p{i}") for i, key in enumerate(part.split(", "))]
    if draw(st.integers(0, 4)) == 0:
        shown.append(("100.0 * count(*) / total(count(*))", "share"))
    text = f"SELECT {', '.join(f'{item} AS {name}' for item, name in shown)} "
    text += f"[{window}{'' if part is None else f', PA {part}'}] FROM {source}"
    text += f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else ""
    text += f" GROUP BY {', '.join(keys)}" if keys else ""
    text += draw(
        st.sampled_from(("", "", "", " HAVING count(*) > 1", " HAVING max(destPort) >= 0.5 * total(max(proto))"))
    )
    if keys and NULLABLE not in keys and draw(st.integers(0, 2)) == 0:
        text += f" ORDER BY {draw(st.sampled_from(('count(*) DESC', 'sum(proto), count(*) DESC')))}"
        text += f" LIMIT {draw(st.integers(1, 3))}" if draw(st.booleans()) else ""
    return text


@st.composite
def positions(draw: st.DrawFn) -> str:
    """Windows and groups over what is computed from row_num, which count nothing."""
    source, columns = draw(froms())
    values = draw(st.lists(aggregates(columns, False), min_size=1, max_size=3))
    shown = ", ".join(f"{value} AS v{i}" for i, value in enumerate(values))
    size, slide = draw(st.integers(1, 30)), draw(st.integers(1, 20))
    attribute = draw(st.sampled_from(("row_num + 3", "row_num / 2", "row_num - 1", "3 * row_num")))
    where = f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else ""
    if draw(st.booleans()):
        kind = draw(st.sampled_from((f"RANGE {size}, SLIDE {slide}", f"RANGE {size}", f"RANGE ALL, SLIDE {slide}")))
        return f"SELECT {shown} [{kind}, WA {attribute}] FROM {source}{where}"
    keys = draw(st.sampled_from(("row_num / 10", "row_num", "ts / 10, row_num / 7", "proto, row_num / 20")))
    listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys.split(", ")))
    having = draw(st.sampled_from(("", "", " HAVING count(*) > 1", " HAVING 2 * count(*) > total(count(*))")))
    return f"SELECT {listed}, {shown} FROM {source}{where} GROUP BY {keys}{having}"


@st.composite
def stages(draw: st.DrawFn) -> str:
    """An aggregate over the rows of windows that count tuples."""
    source, columns = draw(froms(numbered=False))
    where = f" WHERE {draw(conditions(columns))}" if draw(st.booleans()) else ""
    tuples = draw(st.booleans())
    inner = draw(by_tuple(not columns.packets, draw(st.booleans())) if tuples else rows_windows())
    text = f"CREATE STREAM s AS SELECT srcIP, count(*) AS n, sum(destPort) AS b [{inner}] FROM {source}{where}"
    outer = ("RANGE 20 s", "RANGE 30 s, SLIDE 10 s", "RANGE ALL, SLIDE 20 s") if tuples else ("RANGE 20, SLIDE 7",)
    value = draw(st.sampled_from(("sum(n)", "max(b)", "count(*)", "median(n)")))
    outside = f"[{draw(st.sampled_from(outer))}, WA window_end]"
    return f"{text} GROUP BY srcIP; SELECT srcIP, {value} AS v {outside} FROM s GROUP BY srcIP"


queries: Text = st.one_of(*map(counting, Turn), positions(), stages())
