"""What must be true of the results in the end, whatever happened: each row once, `exact` only if it is, losses told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.rosters import ListedSource, RosterInForce
from lowmark.wire.records.verdicts import Amendment, Complete
from lowmark.wire.rows.values import show
from tests.naive.evaluate import rows_of
from tests.naive.packets import Packet
from tests.world.log import Log

__all__ = ["check", "is_listed", "listed_runs"]

Row = Mapping[str, object]
Span = tuple[object, object]
"""window_start and window_end, as rows show them."""


_PARTIAL = "partial"
"""A window that began before its sources did is not held to be exact."""


@dataclass
class _Told:
    """What a query's topic says of each window, over all buckets."""

    rows: dict[Span, list[Row]] = field(default_factory=dict)
    completed: Counter[int] = field(default_factory=Counter)
    lossy: dict[Span, set[str]] = field(default_factory=dict)  # with the reasons
    first: list[int] = field(default_factory=list)  # of each bucket: its first window
    last: list[int] = field(default_factory=list)


def check(
    log: Log, plan: QueryPlan, streams: Mapping[str, Sequence[Sequence[Packet]]], upto_ns: int, losses: bool
) -> Iterator[str]:  # fmt: skip
    """What is wrong, in sentences. `upto_ns`: all windows that end by then must be there. `losses`: something may have
    been lost; if not, every window must be exact."""
    told = _Told()
    for bucket in range(plan.stage.buckets):
        yield from _read(log, plan, bucket, told)
    naive: dict[Span, Counter[str]] = {}
    for row in rows_of(plan.sql, {name: [list(each) for each in sources] for name, sources in streams.items()}):
        naive.setdefault(_span(row), Counter())[_text(row)] += 1
    assert plan.window is not None
    if len(told.last) < plan.stage.buckets or plan.window.end(min(told.last) + 1) <= upto_ns:
        yield f"{plan.name}: its buckets have come to windows {told.last}, which is not far enough"
        return
    upto = min(told.last) + 1
    for number in range(min(told.first), upto):
        span = _shown(plan, number)
        count = told.completed[number]
        if count != plan.stage.buckets and (count > plan.stage.buckets or number >= max(told.first)):
            yield f"{plan.name}: window {span} was completed {count} times by {plan.stage.buckets} buckets"
        found, right = Counter(map(_text, told.rows.get(span, ()))), naive.get(span, Counter())
        if span in told.lossy:
            if not losses and told.lossy[span] - {_PARTIAL}:
                yield f"{plan.name}: window {span} is lossy ({told.lossy[span]}), and nothing was lost"
            yield from _no_more(plan, span, told.rows.get(span, ()), right)
        elif found != right:
            yield (
                f"{plan.name}: window {span} is exact, and wrong: it has {sorted((found - right).elements())} too "
                f"much, and lacks {sorted((right - found).elements())}"
            )
    ends = {_shown(plan, number) for number in told.completed}
    for span in sorted(told.rows.keys() - ends, key=str):
        yield f"{plan.name}: window {span} has rows, and is not complete"
    for span in sorted(naive.keys() - ends, key=str) if not losses else ():
        if str(span[1]) <= str(_shown(plan, min(told.first))[1]):
            yield f"{plan.name}: nothing is said of window {span}, before the first"


def listed_runs(log: Log, stream: str) -> Mapping[str, Sequence[tuple[int, int]]]:
    """By source: from when to when the stream lists it, as the topic `sources` says in the end."""
    found: Sequence[ListedSource] = ()
    for entry in log[Topic(TopicKind.SOURCES, None).name, 0].read(0):
        record = decode(list(entry.headers), entry.value)
        if isinstance(record, RosterInForce) and record.stream == stream:
            found = record.members
    runs: dict[str, list[tuple[int, int]]] = {}
    for member in found:
        runs.setdefault(member.source, []).append((member.joined, member.left))
    return runs


def is_listed(runs: Sequence[tuple[int, int]], ts: int, granule_ns: int) -> bool:
    """A source joins and leaves with a whole granule."""
    return any(joined <= ts - ts % granule_ns < left for joined, left in runs)


def _shown(plan: QueryPlan, number: int) -> Span:
    assert plan.window is not None
    kind = plan.window.axis.kind
    start = plan.window.start(number)
    return None if start is None else show(kind, start), show(kind, plan.window.end(number))


def _span(row: Row) -> Span:
    return row["window_start"], row["window_end"]


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def _no_more(plan: QueryPlan, span: Span, rows: Sequence[Row], right: Counter[str]) -> Iterator[str]:
    """A lossy window lacks tuples; it never has one twice. Counts are of the groups."""
    most = {_group(row): row["count"] for row in map(json.loads, right)}
    for row in rows:
        if row["count"] > most.get(_group(row), 0):  # type: ignore[operator]  # counts are integers
            of = most.get(_group(row), 0)
            yield f"{plan.name}: window {span} counts {row['count']} tuples in {_group(row)}, of {of}"
    if len({_group(row) for row in rows}) < len(rows):
        yield f"{plan.name}: window {span} has a group twice"


def _group(row: Row) -> str:
    return str(row.get("srcIP"))


def _read(log: Log, plan: QueryPlan, bucket: int, told: _Told) -> Iterator[str]:
    """A bucket's rows and completions, as a read_committed reader sees them. Rows without a completion are void when a
    later generation begins: it writes them again."""
    window = plan.window
    assert window is not None
    waiting: list[Row] = []
    total = generation = 0
    last: int | None = None
    for entry in log[Topic(TopicKind.RESULTS, plan.name).name, bucket].read(0):
        record = decode(list(entry.headers), entry.value)
        if isinstance(record, ResultRow):
            if record.generation > generation:
                waiting, total, generation = [], 0, record.generation
            waiting.append(json.loads(record.row))
            total += crc32(entry.value or b"")
        elif isinstance(record, Complete | Amendment):
            assert record.windows is not None
            numbers = range(record.windows.first, record.windows.to + 1)
            amends = isinstance(record, Amendment)
            why = {reason.value for reason in (record.reasons if amends else record.verdict.reasons)}
            if not amends and record.verdict.partial:
                why.add(_PARTIAL)
            for number in numbers if why else ():
                told.lossy.setdefault(_shown(plan, number), set()).update(why)
            if isinstance(record, Amendment):
                continue
            if record.generation > generation:
                waiting, total, generation = [], 0, record.generation
            if record.rows != len(waiting):
                yield f"{plan.name}: bucket {bucket} has {len(waiting)} rows before a completion of {record.rows}"
            if record.checksum != total % (1 << 32):
                yield f"{plan.name}: bucket {bucket} has other rows before {record.windows} than its checksum names"
            for row in waiting:
                told.rows.setdefault(_span(row), []).append(row)
            waiting, total = [], 0
            if last is None:
                told.first.append(numbers.start)
            elif numbers.start != last + 1:
                yield f"{plan.name}: bucket {bucket} completes {numbers.start} after {last}"
            last = numbers.stop - 1
            told.completed.update(numbers)
    if last is not None:
        told.last.append(last)
    if waiting:
        yield f"{plan.name}: bucket {bucket} has {len(waiting)} rows without a completion"
