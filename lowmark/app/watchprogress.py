"""`lowmark watch --progress`: how far each query is, read from the topics themselves."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

from confluent_kafka import Message, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.table import Table

from lowmark.app.config import Config
from lowmark.app.planning import plan_queries
from lowmark.app.progressboard import ProgressBoard
from lowmark.app.queryprogress import QueryProgress, Waiting
from lowmark.app.reading import PatientReader
from lowmark.query.plan import QueryPlan
from lowmark.wire.codec import decode
from lowmark.wire.kafka import admin
from lowmark.wire.promises import Punctuation
from lowmark.wire.registration import Registration
from lowmark.wire.results import Amendment, Complete
from lowmark.wire.topics import Topic, TopicKind

__all__ = ["progress_table", "watch_progress"]

_EVERY_S = 1.0

Show = Callable[[Sequence[QueryProgress]], None]

_TAIL = 2_000
"""Records at the end of each partition that are read: what they do not tell, later ones will."""


def watch_progress(
    config: Config,
    queries: Sequence[str] | None,
    *,
    once: bool,
    as_json: bool,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Until `stop`, or with `once` until all that stands there has been read. JSON: a line for each query, and again
    when it has changed; else a table that is kept current."""
    plans = plan_queries(config, queries)
    board = ProgressBoard(plans, {stream: config.roster(stream) for stream in config.streams})
    notes = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        reader = stack.enter_context(PatientReader(config.kafka, "progress", notes.print))
        reader.assign(_parts(config, plans, reader))
        show = _lines() if as_json else _screen(stack)
        # What stands there is read before anything is said of it: until nothing comes for a while.
        read, said_s = False, time.monotonic()
        for messages in reader.batches(stop):
            for message in messages:
                _take(board, message)
            now_s = time.monotonic()
            read |= not messages
            if read and (not messages or now_s - said_s >= _EVERY_S):
                show(board.progress())
                said_s = now_s
                if once:
                    return


def _parts(config: Config, plans: Sequence[QueryPlan], reader: PatientReader) -> list[TopicPartition]:
    """Those that are there: all registrations, and the ends of what a board is fed with."""
    there = admin(config.kafka).list_topics(timeout=10).topics
    sources = Topic(TopicKind.SOURCES, None, config.prefix).name
    wanted = {(Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix).name, 0) for plan in plans}
    for plan in plans:
        if plan.exchanges is not None:
            wanted.add((Topic(TopicKind.EXCHANGE, plan.exchanges.fingerprint, config.prefix).name, 0))
        results = Topic(TopicKind.RESULTS, plan.name, config.prefix).name
        wanted |= {(results, bucket) for bucket in range(plan.stage.buckets)}
    parts = [TopicPartition(sources, 0, reader.watermarks(sources, 0)[0])] if sources in there else []
    for topic, partition in sorted(wanted):
        if topic in there:
            low, high = reader.watermarks(topic, partition)
            parts.append(TopicPartition(topic, partition, max(low, high - _TAIL)))
    return parts


def _take(board: ProgressBoard, message: Message) -> None:
    match decode(message.headers(), message.value(), lambda origin: None):
        case Registration(source=source):
            board.registered(source, message.offset())
        case Punctuation() as punctuation:
            board.promised(punctuation)
        case Amendment() as amendment:
            board.amended(amendment)
        case Complete() as complete:
            board.complete(complete)


def _lines() -> Show:
    told: dict[str, QueryProgress] = {}

    def write(found: Sequence[QueryProgress]) -> None:
        for progress in found:
            if told.get(progress.query) != progress:
                told[progress.query] = progress
                sys.stdout.write(json.dumps(progress.json) + "\n")
        sys.stdout.flush()

    return write


def _screen(stack: ExitStack) -> Show:
    live = stack.enter_context(Live(console=Console(), auto_refresh=False))
    return lambda found: live.update(progress_table(found), refresh=True)


def progress_table(found: Sequence[QueryProgress]) -> Table:
    """Columns are called as in JSON. The first line of a query tells what is known of all of it; open windows that wait
    for the same are one line, with the distances of the first of them."""
    table = Table(header_style="bold")
    for name, right in (("query", 0), ("complete to", 0), ("frontier", 0), ("tuples ahead", 1), ("open windows", 1),
                        ("end", 0), ("waiting", 0), ("rows", 1), ("late", 1), ("lossy windows", 1)):  # fmt: skip
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for item in found:
        first, *others = list(_open(item)) or [("", _waited(item))]
        table.add_row(
            item.query, _shown(item.complete_to), _shown(item.frontier), f"{item.tuples_ahead:,}",
            _counted(item), *first, f"{item.rows:,}", f"{item.late:,}", f"{item.lossy_windows:,}",
        )  # fmt: skip
        for ends, waiting in others:
            table.add_row("", "", "", "", "", ends, waiting)
        untold = (item.open_windows or 0) - len(item.open)
        if item.open and untold > 0:
            table.add_row("", "", "", "", "", f"and {untold:,} later ones")
    return table


def _open(item: QueryProgress) -> Iterator[tuple[str, str]]:
    """Ends, and what is waited for."""
    for _, alike in groupby(item.open, lambda window: [(each.who, each.why, each.up_to) for each in window.waiting]):
        first, *others = alike
        ends = f"{first.end}\nto {others[-1].end}" if others else str(first.end)
        yield ends, _lines_of(first.waiting)


def _waited(item: QueryProgress) -> str:
    if item.waiting:
        return _lines_of(item.waiting)
    return "nothing: all sources have ended" if item.ended else "nothing"


def _lines_of(waiting: Sequence[Waiting]) -> str:
    return "\n".join(item.text for item in waiting)


def _counted(item: QueryProgress) -> str:
    partitions = "" if item.open_partitions is None else f" in {item.open_partitions:,} partitions"
    return "" if item.open_windows is None else f"{item.open_windows:,}{partitions}"


def _shown(value: int | str | None) -> str:
    return "" if value is None else str(value)
