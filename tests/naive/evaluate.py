"""A query's rows by brute force from the definitions. Nothing of lowmark is used but its parser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lowmark.query.parse import syntax as s
from lowmark.query.parse.parser import parse
from tests.naive.aggregates import has_aggregate
from tests.naive.overflow import noted
from tests.naive.packets import Packet, read_source
from tests.naive.selecting import run_select
from tests.naive.tables import Streams, Table
from tests.naive.values import shown

ResultRow = dict[str, bool | int | float | str | None]


@dataclass(frozen=True)
class Answer:
    rows: list[ResultRow]
    whole: bool  # every capture was read to its end
    overflow: bool  # something was decided by one


def answer(text: str, captures: Iterable[tuple[str, Path]], idle_s: int | None = None) -> Answer:
    """The rows of a query over capture files: (name of the stream, file), in the order of the command line."""
    streams: dict[str, list[list[Packet]]] = {}
    whole = True
    for name, path in captures:
        sources = streams.setdefault(name, [])
        source = read_source(name, len(sources), path)
        sources.append(source.packets)
        whole = whole and source.whole
    with noted() as overflows:
        rows = rows_of(text, streams, idle_s)
    return Answer(rows, whole, bool(overflows))


def rows_of(text: str, streams: Mapping[str, list[list[Packet]]], idle_s: int | None = None) -> list[ResultRow]:
    """The rows of a query over streams of one source or more, as JSON has them. Raises Refused, Unsupported."""
    table = run(text, Streams(streams, idle_s))
    return [{column: shown(row[column]) for column in table.columns} for row in table.rows]


def run(text: str, streams: Streams) -> Table:
    table = Table((), [])
    for statement in parse(text).statements:
        created = isinstance(statement, s.CreateStream)
        select = statement.select if created else statement
        table = run_select(select, text, streams)
        if created:
            streams.create(statement.name.text, table)
    return table


def is_ordered(text: str) -> bool:
    """Whether the rows of one window have an order: ORDER BY in the last statement, with a window and without PA."""
    last = parse(text).statements[-1]
    return isinstance(last, s.Select) and bool(last.order_by and last.window is not None and not last.window.pa)


def may_concern_nobody(text: str) -> bool:
    """Whether what is lost of a tuple may be seen by nothing: it may lie in no window (SLIDE is longer than RANGE, or
    tuples make the windows), be selected by a query within that asks for more than the one around it reads, or be of a
    row that meets no other in a join, or one that has met another before."""
    script = parse(text)
    nodes = [part for statement in script.statements for part in s.walk(statement)]
    windows = (part for part in nodes if isinstance(part, s.WindowClause))
    within = [part.select for part in nodes if isinstance(part, s.CreateStream | s.Subquery)]
    joins = any(isinstance(part, s.JoinSource | s.Exists) or len(getattr(part, "sources", ())) > 1 for part in nodes)
    return joins or any(window.rattr is not None or _gap(window) for window in windows) or any(map(_selects, within))


def _selects(select: s.Select) -> bool:
    grouped = select.window is not None or select.group_by or select.distinct
    return not grouped and not any(has_aggregate(item) for item in select.items)


def _gap(window: s.WindowClause) -> bool:
    if window.slide is None or isinstance(window.range, s.Everything | None):
        return False
    size, slide = (getattr(part, "value_ns", None) or part.value for part in (window.range, window.slide))
    return slide > size
