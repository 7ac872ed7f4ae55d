"""A job that comes back to more than fits into its memory."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lowmark.app.config.file import load_config
from lowmark.query.plan.nodes import Node
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.rows.words import Words
from tests.integration.committed import committed_messages
from tests.integration.jobfeed import LEVELS, SLIDING, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_HEAP = 512 << 20
_PANES, _ROWS, _HOSTS = 14, 300_000, 20_000
_PART = 1 << 20


class Backlog(Feed):
    """Panes of many rows, of not so many hosts; `sent` counts the bytes."""

    sent = 0

    def _rows(self, node: Node, pane: int) -> Words:
        schema = node.reduction.schema
        random = np.random.default_rng(pane)
        rows = np.zeros((_ROWS, schema.words), np.uint64)
        rows[:, schema.offset("pane")], rows[:, schema.offset("tuples")] = pane, 1
        rows[:, schema.offset("srcIP")] = 4
        rows[:, schema.offset("srcIP") + 2] = 0x0A00_0000 + random.integers(0, _HOSTS, _ROWS, np.uint64)
        rows[:, schema.offset("_add0")] = random.integers(64, 1500, _ROWS, np.uint64)
        self.sent += rows.nbytes
        return rows


def test_a_backlog_need_not_fit_into_memory(broker: str, tmp_path: Path) -> None:
    """All of it is one micro-batch, and of one bucket, whose results take many transactions. The job is killed when
    some are visible, and comes back."""
    path = write_config(tmp_path, broker, talkers=SLIDING)
    path.write_text(
        re.sub(r"max_offsets_per_trigger = \d+", "max_offsets_per_trigger = 100000\nbuckets = 1", path.read_text())
    )
    feed = Backlog(load_config(path), seed=3)
    feed.panes(_PANES, end=True)

    with JobProcess(path, die="after:3", part=_PART) as job:
        assert job.wait() == -9, job.said
    (plan,) = feed.plans
    seen, all_rows = (sum(map(len, found.values())) for found in (feed.results(plan), feed.expected(plan)))
    assert 0 < seen < all_rows
    peaks: dict[str, int] = {}
    with JobProcess(path, "--until-last", part=_PART) as job:

        def ended() -> bool:
            peaks.update({name: max(peak, peaks.get(name, 0)) for name, peak in job.peak_bytes().items()})
            return job.ended

        await_true(ended)
        assert job.wait() == 0, job.said
    # Of the workers: Python, its libraries and kernels are half of it.
    assert peaks["python"] < feed.sent, peaks
    assert peaks["java"] < 2 * _HEAP, peaks
    assert feed.results(plan) == feed.expected(plan)


def test_what_an_exchange_holds_is_read_at_once_beside_a_backlog(broker: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, broker, levels=LEVELS)
    config = load_config(path)
    feed = Feed(config, seed=5)
    feed.panes(60, end=True)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    (plan,) = feed.plans
    found, expected = feed.results(plan), feed.expected(plan)
    for bucket in expected:  # in any order: rows meet in the order in which the buckets have sent them
        assert Counter(map(repr, found[bucket])) == Counter(map(repr, expected[bucket]))

    exchanges = plan.exchanges
    assert exchanges is not None
    exchange = Topic(TopicKind.EXCHANGE, exchanges.fingerprint, config.prefix).name
    batches = planned(tmp_path, exchange)
    beside = [batch for batch in batches if batch.partials < batches[-1].partials]
    seen = 0
    for bucket in range(plan.stage.buckets):
        for offset, at_s in appended(config.kafka, exchange, bucket):
            after = [batch for batch in beside if batch.at_s > at_s]
            if len(after) > 1:  # the first may have looked before
                assert after[1].read.get(str(bucket), 0) > offset
                seen += 1
    assert seen > 50


class Planned(NamedTuple):
    """A batch in Spark's log: when it was planned, and up to where it reads."""

    at_s: float
    read: dict[str, int]  # by partition of the exchange
    partials: int  # in all their partitions


def planned(folder: Path, exchange: str) -> list[Planned]:
    (log,) = (folder / "checkpoint" / "lowmark").glob("*/offsets")
    found = []
    for number in sorted(int(file.name) for file in log.iterdir() if file.name.isdecimal()):
        file, read = log / str(number), dict[str, dict[str, int]]()
        for line in file.read_text().splitlines()[2:]:
            read |= json.loads(line) if line.startswith("{") else {}
        of = read.pop(exchange, {})
        found.append(Planned(file.stat().st_mtime, of, sum(sum(each.values()) for each in read.values())))
    return found


def appended(kafka: KafkaSettings, topic: str, partition: int) -> Iterator[tuple[int, float]]:
    """Offset and time of append of each record."""
    for message in committed_messages(kafka, [(topic, partition)]):
        yield message.offset(), message.timestamp()[1] / 1000
