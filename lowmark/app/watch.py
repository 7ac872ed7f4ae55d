"""Following a result topic: rows, and which windows are complete and exact."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.windowboard import FinishedWindow, WindowBoard
from lowmark.wire import values
from lowmark.wire.codec import Record, decode
from lowmark.wire.kafka import KafkaSettings, admin, consumer, translate
from lowmark.wire.record import BadRecord
from lowmark.wire.resultrows import ResultRow
from lowmark.wire.results import Amendment, Complete
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["follow", "show_window", "verdict_text", "watch"]

_MAX_ROWS = 25
"""Of a window that a table shows."""


def watch(
    kafka: KafkaSettings, prefix: str, query: str, *, beginning: bool, windows: int | None, as_json: bool,
    stop: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Until `stop`, or until so many windows have been shown. JSON: each row a line on standard output as soon as it
    is visible, each completion a line on standard error; else a table for each complete window."""
    console, notes = Console(), Console(stderr=True, highlight=False, soft_wrap=True)
    shown = 0
    for event in follow(kafka, prefix, query, beginning=beginning, stop=stop):
        match event:
            case ResultRow(row=row):
                if as_json:
                    sys.stdout.write(row.decode() + "\n")
                    sys.stdout.flush()
            case Amendment():
                notes.print(
                    f"amendment: windows {event.windows.first}…{event.windows.to}: {event.late} late", style="yellow"
                )
            case FinishedWindow():
                if as_json:
                    notes.print(_completion_json(event), markup=False)
                else:
                    show_window(console, query, event)
                shown += 1
                if windows is not None and shown >= windows:
                    return


def follow(
    kafka: KafkaSettings, prefix: str, query: str, *, beginning: bool, stop: Callable[[], bool]
) -> Iterator[ResultRow | FinishedWindow | Amendment]:
    """The rows of a query as they become visible, and its windows as they become complete in all buckets.
    EnvironmentNotReady when there is no such topic."""
    topic = Topic(TopicKind.RESULTS, query, prefix).name
    reader = consumer(kafka, f"lowmark-watch-{uuid.uuid4()}")
    try:
        partitions = _partitions(kafka, topic, query)
        start = OFFSET_BEGINNING if beginning else OFFSET_END
        reader.assign([TopicPartition(topic, partition, start) for partition in range(partitions)])
        yield from _events(reader, WindowBoard(partitions, beginning), kafka, stop)
    finally:
        reader.close()


def _partitions(kafka: KafkaSettings, topic: str, query: str) -> int:
    there = admin(kafka).list_topics(timeout=10).topics
    found = there.get(topic)
    if found is None or found.error is not None:
        marker = topic[: -len(query)]
        known = sorted(name[len(marker) :] for name in there if name.startswith(marker))
        raise EnvironmentNotReady(
            f"there is no result topic {topic}",
            f"queries with results here: {', '.join(known) or 'none'}; `lowmark run` creates their topics",
        )
    return len(found.partitions)


def _events(
    reader: Consumer, board: WindowBoard, kafka: KafkaSettings, stop: Callable[[], bool]
) -> Iterator[ResultRow | FinishedWindow | Amendment]:
    while not stop():
        for message in reader.consume(1000, timeout=0.2):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    continue
                raise translate(error, kafka)
            record: Record | BadRecord = decode(message.headers(), message.value(), lambda origin: None)
            match record:
                case ResultRow():
                    board.row(record)
                    yield record
                case Complete():
                    yield from board.complete(record)
                case Amendment():
                    yield record


def verdict_text(window: FinishedWindow) -> Text:
    verdict = window.verdict
    text = Text("exact" if verdict.exact else "lossy: " + ", ".join(sorted(r.value for r in verdict.reasons)))
    text.stylize("bold green" if verdict.exact else "bold red")
    if verdict.partial:
        text.append(" (began before its sources)", "yellow")
    return text


def _span(window: FinishedWindow) -> str:
    kind = window.of.kind
    end = str(values.show(kind, window.end))
    if window.window is None:
        return f"complete up to {window.of.attribute} < {end}"
    start = "the beginning" if window.start is None else str(values.show(kind, window.start))
    return f"{start} … {end}"


def show_window(console: Console, query: str, window: FinishedWindow) -> None:
    """A window as a table of its first rows, with its verdict."""
    title = Text.assemble((query, "bold cyan"), "  ", _span(window), "  ", verdict_text(window))
    title.append(f"  {len(window.rows)} rows, {window.merged} of {window.promised} tuples", "dim")
    console.print(title)
    if window.rows:
        console.print(_table([json.loads(row) for row in window.rows[:_MAX_ROWS]]))
    if len(window.rows) > _MAX_ROWS:
        console.print(f"… and {len(window.rows) - _MAX_ROWS} rows more", style="dim")


def _table(rows: list[dict[str, object]]) -> Table:
    names = [name for name in rows[0] if name not in ("window_start", "window_end")]
    table = Table(header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if isinstance(rows[0][name], int | float) else "left", overflow="fold")
    for row in rows:
        table.add_row(*("null" if row[name] is None else str(row[name]) for name in names))
    return table


def _completion_json(window: FinishedWindow) -> str:
    return json.dumps(
        {
            "complete": _span(window),
            "rows": len(window.rows),
            "merged": window.merged,
            "promised": window.promised,
            "verdict": "exact" if window.verdict.exact else "lossy",
            "reasons": sorted(reason.value for reason in window.verdict.reasons),
        }
    )
