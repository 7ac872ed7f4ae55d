"""Follows a query's topics: rows, complete windows with their verdicts, late rows, corrections and amendments."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import fields

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from confluent_kafka.admin import TopicMetadata
from rich.console import Console
from rich.text import Text

from lowmark.app.config.file import Config
from lowmark.app.console import Teller, counted, telling
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.kafka.consumer import PatientReader
from lowmark.app.local.late_lines import LateNews, line_of
from lowmark.app.watch.quiet_queries import Quiet, waiting_text
from lowmark.app.watch.row_view import show_rows
from lowmark.app.watch.time_range import EVERYTHING, WatchRange
from lowmark.app.watch.window_board import FinishedWindow, WindowBoard
from lowmark.query.result_names import BOUND_NAMES
from lowmark.wire.kafka.clients import KafkaSettings, admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import Record, decode
from lowmark.wire.records.record import BadRecord
from lowmark.wire.records.result_rows import ResultRow, ResultRowsRecord
from lowmark.wire.records.verdicts import Amendment, Complete, Correction, LateRow, Reason, Scalar
from lowmark.wire.rows import values

__all__ = ["Amendments", "amendment_text", "completion_line", "follow", "show_window", "verdict_text", "watch"]

_MAX_ROWS = 25
"""Most rows of a window that a table shows."""

_MAX_NAMES = 5  # of sources in a title

_LOSSY = 4

_MOST_TOLD = 10_000
"""Number of amendments that are remembered."""


def watch(
    config: Config, query: str, *, beginning: bool, windows: int | None, between: WatchRange, as_json: bool,
    stop: Callable[[], bool] = lambda: False,
) -> int:  # fmt: skip
    """Runs until `stop`, until `windows` windows have been shown, or until all of `between` has; the exit code says
    whether any of them is lossy. JSON: one line for each row on standard output, as soon as it is visible, or with
    `between` when its window is complete; one line for each completion, late row, correction and amendment on standard
    error. Otherwise: a table for each complete window, and a line for anything late. On a terminal, a line also shows
    what the query waits for."""
    console, shown, amendments, lossy = Console(), 0, Amendments(), False
    early: Counter[int] = Counter()  # rows shown before their window, by window
    with ExitStack() as stack:
        tell = stack.enter_context(telling())
        aside = tell.aside if sys.stdout.isatty() else nullcontext
        quiet = Quiet(config, query, stack)
        tell.passing(f"waiting for results of {query}")
        over = False
        for event in follow(
            config.kafka, config.prefix, query, beginning=beginning, between=between, stop=stop, say=tell.line,
            awaited=query in config.queries,
        ):  # fmt: skip
            if event is None:
                found = quiet.progress() if tell.on_terminal or between else None
                if found is not None:
                    tell.passing(f"{query}: {waiting_text(found)}")
                # Show first what has become visible meanwhile.
                if over and between:
                    break
                over = found is not None and found.is_over
                continue
            over = False
            with aside():
                _show(console, tell, query, event, amendments, early, as_json, bool(between))
            if isinstance(event, Amendment):
                lossy = True
            elif isinstance(event, FinishedWindow):
                lossy |= not event.verdict.exact or event.torn
                shown += 1
                if windows is not None and shown >= windows:
                    break
    return _LOSSY if lossy else 0


def _show(
    console: Console, tell: Teller, query: str, event: ResultRow | FinishedWindow | LateNews, amendments: Amendments,
    early: Counter[int], as_json: bool, whole: bool,
) -> None:  # fmt: skip
    """`whole`: show rows together with their window, not as they come. The table of a window has all of its rows; those
    that leave before it have a line each before, as far as a person can read them."""
    match event:
        case ResultRow(row=row, early=window):
            if as_json and not whole:
                _write([row])
            elif window is not None and not whole and not as_json:
                early[window] += 1
                if early[window] <= _MAX_ROWS:
                    console.print(f"{query}  final already: {_shown(json.loads(row))}", style="dim", markup=False)
        case Amendment() | Correction() | LateRow():
            if as_json:
                tell.line(line_of(event))
            elif not isinstance(event, Amendment) or amendments.new(event):
                _show_late(console, event)
        case FinishedWindow(rows=rows):
            if event.window is not None:
                early.pop(event.window, None)
            if not as_json:
                show_window(console, query, event)
                return
            if whole:
                _write(rows)
            tell.line(completion_line(event))


def _write(rows: Iterable[bytes]) -> None:
    for row in rows:
        sys.stdout.write(row.decode() + "\n")
    sys.stdout.flush()


def follow(
    kafka: KafkaSettings, prefix: str, query: str, *, beginning: bool, stop: Callable[[], bool],
    say: Callable[[str], None], between: WatchRange = EVERYTHING, awaited: bool = False,
) -> Iterator[ResultRow | FinishedWindow | LateNews | None]:  # fmt: skip
    """Yields rows of a query as they become visible, windows as they become complete in all buckets, and late rows and
    what they change; None about once a second while nothing comes. Ends when all of `between` has come: other windows
    are left out. `awaited`: when there is no result topic yet, wait for it, and begin with its first record; otherwise
    EnvironmentNotReady. `say` gets a line when it waits for the topic, and when the broker goes away."""
    topic, late = (Topic(kind, query, prefix).name for kind in (TopicKind.RESULTS, TopicKind.LATE))
    topics: Mapping[str, TopicMetadata] = admin(kafka).list_topics(timeout=10).topics
    with PatientReader(kafka, "watch", say) as reader:
        if not _is_there(topics, topic):
            if not awaited:
                raise _no_results(topics, topic, query)
            say(f"waiting for the topic {topic}, which the job makes at its first start (or this user may not read it)")
            beginning = True
            for _ in reader.batches(stop):
                if _is_there(topics := reader.topics(), topic):
                    break
            else:
                return
        start = OFFSET_BEGINNING if beginning else OFFSET_END
        reader.assign([
            TopicPartition(name, partition, start)
            for name in (topic, late) if name in topics for partition in topics[name].partitions
        ])  # fmt: skip
        board = WindowBoard(len(topics[topic].partitions), beginning)
        for messages in reader.batches(stop):
            for message in messages:
                record = decode(message.headers(), message.value())
                if isinstance(record, Complete):
                    between.check(record)
                if isinstance(record, ResultRow | ResultRowsRecord):
                    board.checked(message.partition(), record.generation, record.early, message.value())
                yield from filter(between.shows, _events(board, message.partition(), record))
                if between.is_over(board.complete_to):
                    return
            if not messages:
                yield None


def _is_there(topics: Mapping[str, TopicMetadata], name: str) -> bool:
    return name in topics and topics[name].error is None


def _no_results(topics: Iterable[str], topic: str, query: str) -> EnvironmentNotReady:
    marker = topic[: -len(query)]
    known = sorted(name[len(marker) :] for name in topics if name.startswith(marker))
    return EnvironmentNotReady(
        f"there is no result topic {topic}, and the configuration has no query {query}",
        f"queries with results here: {', '.join(known) or 'none'}; `lowmark run` creates their topics",
    )


def _events(
    board: WindowBoard, bucket: int, record: Record | BadRecord
) -> Iterator[ResultRow | FinishedWindow | LateNews]:  # fmt: skip
    match record:
        case ResultRow() | ResultRowsRecord():
            rows = [record] if isinstance(record, ResultRow) else record.one_by_one()
            board.rows(bucket, rows)
            yield from rows
        case Complete():
            yield from board.complete(record)
        case Amendment():
            board.amend(record)
            yield record
        case Correction() | LateRow():
            yield record


class Amendments:
    """Finds amendments that say something new: each bucket repeats the amendments that concern the whole stream."""

    def __init__(self) -> None:
        self._told: Counter[tuple[object, ...]] = Counter()
        self._heard: Counter[tuple[object, ...]] = Counter()

    def new(self, amendment: Amendment) -> bool:
        said = tuple(getattr(amendment, field.name) for field in fields(amendment) if field.name != "bucket")
        by_bucket = (*said, amendment.bucket)
        self._heard[by_bucket] += 1
        if self._heard[by_bucket] <= self._told[said]:
            return False
        self._told[said] += 1
        if len(self._told) > _MOST_TOLD:
            self._told.clear()
            self._heard.clear()
        return True


def _show_late(console: Console, news: LateNews) -> None:
    """Shows late rows, corrections and amendments in a few lines: a person has little use for all of them."""
    match news:
        case Amendment():
            text = amendment_text(news)
        case Correction():
            text = f"correction  {news.start} … {news.end}: {news.tuples} late in {counted(len(news.deltas), 'group')}"
        case LateRow():
            where = "" if news.windows is None else f"  {news.start or 'the beginning'} … {news.end}"
            text = f"late{where}  {news.tuples} from {news.source}: {_shown(news.row)}"
    console.print(text, style="yellow", markup=False)
    if isinstance(news, Correction):
        for delta in news.deltas[:_MAX_ROWS]:
            console.print(f"    {_shown(delta)}", style="yellow", markup=False)


def amendment_text(news: Amendment) -> str:
    """Text for a window that was shown as exact and is now lossy."""
    reasons = ", ".join(reason.value for reason in Reason if reason in news.reasons)
    where = f"{news.start if news.start is not None else 'the beginning'} … {news.end}"
    return f"amendment  {where}: lossy: {reasons} ({news.late} late, {news.dropped} dropped)"


def _shown(row: Mapping[str, Scalar]) -> str:
    return "  ".join(f"{name}={'null' if value is None else value}" for name, value in row.items())


def verdict_text(window: FinishedWindow) -> Text:
    verdict = window.verdict
    text = Text("exact" if verdict.exact else "lossy: " + ", ".join(sorted(r.value for r in verdict.reasons)))
    text.stylize("bold green" if verdict.exact else "bold red")
    if window.torn:
        text.append(" (torn: its rows are not those that were written)", "bold red")
    if window.missing:
        text.append(f" (without {_names(window.missing)})", "yellow")
    if verdict.partial:
        text.append(" (began before its sources)", "yellow")
    return text


def _names(sources: tuple[str, ...]) -> str:
    more = f" and {len(sources) - _MAX_NAMES} more" if len(sources) > _MAX_NAMES else ""
    return ", ".join(sources[:_MAX_NAMES]) + more


def _span(window: FinishedWindow) -> str:
    kind = window.of.kind
    end = str(values.show(kind, window.end))
    if window.window is None:
        return f"complete up to {window.of.attribute} < {end}"
    start = "the beginning" if window.start is None else str(values.show(kind, window.start))
    return f"{start} … {end}"


def show_window(console: Console, query: str, window: FinishedWindow) -> None:
    """Shows a window as a table of its first rows, with its verdict."""
    title = Text.assemble((query, "bold cyan"), "  ", _span(window), "  ", verdict_text(window))
    missing = "" if window.merged == window.promised else f"{window.merged:,} of "
    title.append(f"  {counted(len(window.rows), 'row')}, {missing}{counted(window.promised, 'tuple')}", "dim")
    console.print(title)
    if window.rows:
        _show_rows(console, [json.loads(row) for row in window.rows[:_MAX_ROWS]])
    if len(window.rows) > _MAX_ROWS:
        console.print(f"… and {len(window.rows) - _MAX_ROWS:,} rows more", style="dim")


def _show_rows(console: Console, rows: list[dict[str, object]]) -> None:
    first = tuple(rows[0])[:2]  # the window's bounds stand above the table, whatever they are called
    names = [name for name in rows[0] if first not in BOUND_NAMES or name not in first]
    numbers = [name for name in names if any(isinstance(row[name], int | float) for row in rows)]
    show_rows(console, names, [[_text(row[name]) for name in names] for row in rows], numbers)


def _text(value: object) -> str:
    """A value in the form of `lowmark query`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def completion_line(window: FinishedWindow) -> str:
    """Bounds as rows show them; without windows, the attribute and the value up to which the answer is complete."""
    kind = window.of.kind
    start = None if window.start is None else values.show(kind, window.start)
    end = values.show(kind, window.end)
    bounds = {window.of.attribute: end} if window.window is None else {"window_start": start, "window_end": end}
    return json.dumps(
        {
            "complete": bounds,
            "rows": len(window.rows),
            "merged": window.merged,
            "promised": window.promised,
            "verdict": "exact" if window.verdict.exact else "lossy",
            "reasons": sorted(reason.value for reason in window.verdict.reasons),
            "partial": window.verdict.partial,
            **({"torn": True} if window.torn else {}),
            **({"missing": window.missing} if window.missing else {}),
        },
        ensure_ascii=False,
    )
