"""What captures would send for the queries of a configuration, made from random partials; what must come of it."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import Forward, ResultRows
from highlevel.progress.records import Arrival, Batch
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Outgoing, Rows
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.query.plan.nodes import Node, QueryPlan, Stage
from lowmark.wire.kafka.clients import admin, ensure_topics, producer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records import result_rows
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.row_checksums import checksum_of
from lowmark.wire.records.verdicts import Complete, WindowSpan
from lowmark.wire.rows.text import json_writer
from lowmark.wire.rows.values import FOREVER
from lowmark.wire.rows.words import Words, to_batch
from tests.integration.committed import committed_messages
from tests.naive.evaluate import ResultRow, rows_of
from tests.naive.packets import Arrival as Arrived
from tests.naive.packets import Packet
from tests.naive.values import Time, Value

SOURCES = {"Main": ("left", "right"), "Other": ("far",)}
FIRST_PANE = 350_000_000  # in 2025
_WITHIN_S = 300.0  # a broker that has been killed is missed after seconds, and back later on a busy machine

SLIDING = "SELECT srcIP, count(*), sum(len) [RANGE 10 seconds, SLIDE 5 seconds, WA ts] FROM Main GROUP BY srcIP"
BUSY = "SELECT destPort, count(*) [RANGE TUMBLING 5 seconds, WA ts] FROM Main GROUP BY destPort HAVING count(*) > 3"

LEVELS = (
    "CREATE STREAM levels AS SELECT srcIP, sum(len) AS bytes [RANGE TUMBLING 5 seconds] FROM Main GROUP BY srcIP; "
    "SELECT bytes / 500 AS level, count(*), count(distinct srcIP) [RANGE 20 seconds, SLIDE 10 seconds, WA window_end] "
    "FROM levels GROUP BY bytes / 500"
)
"""Rows change their bucket."""

SHARES = (
    "SELECT srcIP, 100 * sum(len) / total(sum(len)) AS share [RANGE 10 seconds, SLIDE 5 seconds] FROM Main "
    "GROUP BY srcIP ORDER BY share DESC LIMIT 3"
)
"""They do so twice."""

CHOSEN = "SELECT ts, srcIP FROM Main"
RUNS = "SELECT srcIP, count(*) [RANGE 6 rows, SLIDE 3 rows, WA row_num, PA srcIP] FROM Main GROUP BY srcIP"
STEPS = (
    "CREATE STREAM levels AS SELECT srcIP, sum(len) AS bytes [RANGE TUMBLING 5 seconds] FROM Main GROUP BY srcIP; "
    "SELECT window_end / 10 AS tens, bytes / 500 AS level, count(*) FROM levels GROUP BY window_end / 10, bytes / 500"
)
"""Rows change their bucket, and have no windows."""

PAIRS = (
    "SELECT a.ts, b.ts, a.srcIP FROM Main AS a [RANGE 4 seconds], Main AS b [RANGE 2 seconds] WHERE a.srcIP = b.srcIP"
)
"""Both inputs are one node's rows."""

ALONE = (
    "SELECT a.ts, b.ts, c.ts, a.srcIP FROM Main AS a [RANGE 4 seconds] "
    "LEFT JOIN Main AS b [RANGE 2 seconds] ON a.srcIP = b.srcIP AND a.ts < b.ts "
    "LEFT JOIN Main AS c [RANGE 1 second] ON a.srcIP = c.srcIP AND c.ts < a.ts"
)
"""Rows of `a` with those before and behind them, where there are any."""

CROSSED = (
    "SELECT a.ts, b.ts, a.srcIP FROM Main AS a [RANGE 4 seconds], Other AS b [RANGE 2 seconds] WHERE a.srcIP = b.srcIP"
)
"""Two nodes, of streams whose sources skew."""

UNANSWERED = (
    "SELECT ts, srcIP FROM Main AS a [RANGE 4 seconds] "
    "WHERE NOT EXISTS (SELECT ts FROM Other AS b [RANGE 2 seconds] WHERE a.srcIP = b.srcIP)"
)

Sent = tuple[Stage, Node, int, Outgoing]


def write_config(folder: Path, broker: str, **queries: str) -> Path:
    """Topics have a prefix of their own. Batches are small, so that a backlog takes several."""
    path = folder / "lowmark.toml"
    lines = [
        f'[kafka]\nbootstrap = "{broker}"',
        f'[topics]\nprefix = "{uuid4().hex[:8]}-"',
        '[job]\nmetrics = "127.0.0.1:0"\nmax_offsets_per_trigger = 60\nheap = "512m"',
        *(f"[streams.{stream}]" for stream in SOURCES),
        *(
            f'[sources.{source}]\nstream = "{stream}"\nfile = "{source}.pcap"'
            for stream, sources in SOURCES.items()
            for source in sources
        ),
        *(f'[queries.{name}]\nsql = "{sql}"' for name, sql in queries.items()),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _sources(node: Node) -> list[str]:
    return [source for stream in node.streams for source in SOURCES[stream]]


class Feed:
    """Sources that skew and send partials of a pane in several rows; deterministic for a seed. No stage has two nodes
    that read one stream."""

    def __init__(self, config: Config, seed: int) -> None:
        self.plans = plan_queries(config)
        self._config = config
        self._random = random.Random(seed)
        self._stages = tuple({plan.stage.fingerprint: plan.stage for plan in self.plans}.values())
        self._outboxes = {
            (stage.fingerprint, source): Outbox(
                node, Origin(stage.fingerprint, source, epoch, node.name), stage.buckets
            )
            for stage in self._stages
            for node in stage.nodes
            for epoch, source in enumerate(_sources(node))
        }
        self._tuples: dict[tuple[str, str], list[Packet]] = {}  # that were sent as rows, by stage and source
        self._sent: list[Sent] = []
        self.next = FIRST_PANE
        assert ensure_topics(admin(config.kafka), topics_of(config, self.plans)) == []

    def panes(self, count: int, end: bool = False, sent: bool = False) -> None:
        """Send the partials of so many panes, each with its promise, and the sources' end behind them. `sent`: another
        feed of this seed has sent them."""
        records: list[Sent] = []
        for pane in range(self.next, self.next + count):
            last = end and pane == self.next + count - 1
            for stream, sources in SOURCES.items():
                for source in self._random.sample(sources, len(sources)):
                    for stage in self._stages:
                        for node in stage.nodes:
                            records += self._pane(stage, node, source, pane, last) if stream in node.streams else []
        self.next += count
        if not sent:
            self._send(records)
        self._sent += records

    def _pane(self, stage: Stage, node: Node, source: str, pane: int, last: bool) -> list[Sent]:
        outbox = self._outboxes[stage.fingerprint, source]
        promised = FOREVER if last else node.reduction.pane.start(pane + 1)
        rows = self._rows(node, pane)
        if "ts" in node.reduction.schema.names:
            self._note(stage, node, source, rows)
        output = NodeOutput(node.name, rows, NodeProgress(promised))
        ending = Ending.END if last else Ending.NONE
        return [(stage, node, partition, record) for partition, record in outbox.take(output, ending)]

    def _note(self, stage: Stage, node: Node, source: str, rows: Words) -> None:
        schema, (stream,) = node.reduction.schema, node.streams
        sent = self._tuples.setdefault((stage.fingerprint, source), [])
        for ts, ip in zip(rows[:, schema.offset("ts")], rows[:, schema.offset("srcIP") + 2], strict=True):
            fields: dict[str, Value] = {"ts": Time(int(ts)), "srcIP": IPv4Address(int(ip))}
            sent.append(Packet(fields, Arrived(int(ts), stream, SOURCES[stream].index(source), len(sent))))

    def naive(self, plan: QueryPlan) -> list[ResultRow]:
        """A query's rows by the definitions, over the tuples that its nodes have sent."""
        stage = plan.stage.fingerprint
        streams = {
            stream: [self._tuples[stage, source] for source in SOURCES[stream]]
            for node in plan.stage.nodes
            for stream in node.streams
        }
        return rows_of(plan.sql, streams)

    def _rows(self, node: Node, pane: int) -> Words:
        schema = node.reduction.schema
        rows = np.zeros((self._random.randrange(40), schema.words), np.uint64)
        for row in rows:
            tuples = self._random.randrange(1, 4)
            row[schema.offset("pane")], row[schema.offset("tuples")] = pane, tuples
            if "ts" in schema.names:
                row[schema.offset("tuples")] = 1
                row[schema.offset("ts")] = node.reduction.pane.start(pane) + self._random.randrange(10**9)
                self._write_source(row[schema.offset("srcIP") :])
            elif "_by_ts" in schema.names:  # its order decides
                row[schema.offset("tuples")] = 1
                row[schema.offset("_by_ts")] = node.reduction.pane.start(pane) + self._random.randrange(10**9)
                self._write_source(row[schema.offset("srcIP") :])
            elif "srcIP" in schema.names:
                self._write_source(row[schema.offset("srcIP") :])
                row[schema.offset("_add0")] = tuples * self._random.randrange(64, 1500)
            else:
                row[schema.offset("destPort")] = self._random.randrange(12)
        return rows

    def _write_source(self, words: Words) -> None:
        words[0], words[2] = 4, 0x0A00_0000 + self._random.randrange(60)

    def _send(self, records: Sequence[Sent]) -> None:
        client = producer(self._config.kafka)
        for stage, node, partition, record in records:
            topic = Topic(TopicKind.PARTIALS, stage.fingerprint, self._config.prefix).name
            if isinstance(record, Rows):
                rows = to_batch(node.reduction.schema, record.rows)
                wire = encode(PartialBatch(record.origin, record.sequence, rows, record.tuples))
            else:
                wire = encode(record)
            client.produce(topic, wire.value, partition=partition, headers=list(wire.headers))
        assert client.flush(_WITHIN_S) == 0

    def expected(self, plan: QueryPlan) -> dict[int, list[object]]:
        """What must stand in each partition of a query's results: rows as bytes, and completions."""
        roster = Roster.of(SOURCES)
        drivers = [
            BucketDriver(plan.stage, (plan,), bucket, MemoryState(), roster, 1) for bucket in range(plan.stage.buckets)
        ]
        for stage, _, partition, record in self._sent:
            if isinstance(record, Rows):
                record = Batch(record.origin, record.sequence, record.rows, record.tuples)
            if stage == plan.stage:
                drivers[partition].take(record, Arrival(0))
        found: dict[int, list[object]] = {bucket: [] for bucket in range(plan.stage.buckets)}
        going = True
        while going:
            outputs = [driver.flush().outputs for driver in drivers]
            going = False
            for bucket, given in enumerate(outputs):
                for output in given:
                    if isinstance(output, Forward):
                        drivers[output.partition].take(output.record, Arrival(0))
                        going = True
                    elif isinstance(output, ResultRows):
                        lines = json_writer(output.schema, b"").write(output.rows)
                        found[bucket] += [lines.data[start:end].tobytes() for start, end in pairwise(lines.starts)]
                    elif isinstance(output, Complete):
                        found[bucket].append(dataclasses.replace(output, rosters=()))
                    else:
                        found[bucket].append(output)
        return found

    def results(self, plan: QueryPlan) -> dict[int, list[object]]:
        """What a read_committed consumer sees, in the form of `expected`; completions as if of generation 1.
        Each completion names the checksum of its rows."""
        topic = Topic(TopicKind.RESULTS, plan.name, self._config.prefix).name
        found: dict[int, list[object]] = {bucket: [] for bucket in range(plan.stage.buckets)}
        checksums: dict[int, dict[tuple[int, int | None], int]] = {bucket: {} for bucket in found}
        for message in committed_messages(self._config.kafka, [(topic, bucket) for bucket in found]):
            record = decode(message.headers(), message.value())
            sums = checksums[message.partition()]
            if isinstance(record, result_rows.ResultRow | result_rows.ResultRowsRecord):
                place = record.generation, record.early
                sums[place] = checksum_of(message.value(), sums.get(place, 0))
            if isinstance(record, Complete):
                windows = {None} if record.windows is None else {None, record.windows.first}
                named = {place: sums.pop(place) for place in list(sums) if place[1] in windows}
                own = sum(each for (generation, _), each in named.items() if generation == record.generation)
                # Without windows, a new generation counts rows of the one before, if it leaves them out.
                assert record.checksum in {each % (1 << 32) for each in (own, sum(named.values()))}, record
                told = dataclasses.replace(record, generation=1, rosters=(), checksum=None)
                found[message.partition()].append(told)
            else:
                found[message.partition()].append(message.value())
        return found

    def assert_told(self, plan: QueryPlan) -> None:
        """That what stands there is what must: each row once, and each window, as exact. What goes through an exchange
        comes in any order, and its windows are told in other groups."""
        found, expected = self.results(plan), self.expected(plan)
        for bucket, items in expected.items():
            rows = [Counter(item for item in of if isinstance(item, bytes)) for of in (found[bucket], items)]
            assert rows[0] == rows[1], plan.name
            told, wanted = ([item for item in of if isinstance(item, Complete)] for of in (found[bucket], items))
            if plan.exchanges is None:
                assert told == wanted, plan.name
            assert all(each.verdict.exact for each in told), plan.name
            spans, ends = ([each.windows for each in of if each.windows is not None] for of in (told, wanted))
            assert (spans[0].first, spans[-1].to) == (ends[0].first, ends[-1].to), plan.name
            assert contiguous(spans), plan.name


def contiguous(spans: Sequence[WindowSpan]) -> bool:
    """No window is missing, and none is told twice."""
    return all(after.first == before.to + 1 for before, after in pairwise(spans))
