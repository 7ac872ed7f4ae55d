"""`lowmark watch` over a broker, of results that stand there or come while it looks: real records, no job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import admin, ensure_topics, producer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.partials import Origin
from lowmark.wire.records.punctuations import Account, Bound, Ending, LaneLedger, Promise, Punctuation
from lowmark.wire.records.registration import Registration, SourceKind
from lowmark.wire.records.result_rows import ResultRow
from lowmark.wire.records.verdicts import Amendment, Complete, Reason, Verdict, WindowSpan
from lowmark.wire.rows.values import time
from tests.acceptance.command import lowmark
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.terminal import Terminal

pytestmark = pytest.mark.slow

SECOND = 10**9
START = 1_714_564_800 * SECOND  # 2024-05-01T12:00:00Z
CONFIG = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}-"
[streams.Main]
[sources.a]
stream = "Main"
file = "-"
[sources.b]
stream = "Main"
file = "-"
[queries.count]
sql = "SELECT srcIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP"
buckets = 2
[queries.plain]
sql = "SELECT ts FROM Main"
buckets = 2
"""

Record = ResultRow | Complete | Amendment | Punctuation | Registration


@dataclass
class Topics:
    """Of a configuration: stand there, and are written to as captures and jobs would."""

    path: Path
    config: Config
    plans: dict[str, QueryPlan]

    def write(self, topic: Topic, records: Iterable[tuple[int, Record]]) -> None:
        client = producer(self.config.kafka)
        for partition, record in records:
            made = encode(record)
            client.produce(topic.name, made.value, made.key, partition, headers=list(made.headers))
        assert client.flush(30) == 0

    def results(self, query: str, *records: tuple[int, Record]) -> None:
        self.write(Topic(TopicKind.RESULTS, query, self.config.prefix), records)

    def windows(self, numbers: Iterable[int], lossy: int | None = None) -> None:
        """Of the query of counts, complete in both buckets, each with a row."""
        for number in numbers:
            for bucket in range(2):
                end = START + 10 * SECOND * (number + 1)
                reasons = frozenset({Reason.GAP}) if number == lossy and bucket else frozenset[Reason]()
                window = self.plans["count"].window
                assert window is not None
                wid = window.ending_at(end)
                self.results(
                    "count",
                    (bucket, ResultRow(1, self.row(number, bucket).encode())),
                    (bucket, Complete(
                        "count", 1, bucket, 2, WindowSpan(wid, wid), end - 10 * SECOND, end, "ts", 1, 3, 3, 0, 0, None,
                        (), Verdict(reasons, partial=number == 0),
                    )),
                )  # fmt: skip

    def row(self, number: int, bucket: int) -> str:
        start = START + 10 * SECOND * number
        bounds = f'"window_start":"{time(start)}","window_end":"{time(start + 10 * SECOND)}"'
        return f'{{{bounds},"srcIP":"10.0.0.{bucket}","n":{number}}}'

    def promise(self, query: str, source: str, second: int | None) -> None:
        """None: it has ended; all of it was of the first four windows."""
        stage = self.plans[query].stage
        made = Promise((), True) if second is None else Promise((Bound("ts", START + second * SECOND),))
        self.write(Topic(TopicKind.SOURCES, None, self.config.prefix), [
            (0, Registration(source, "Main", SourceKind.FINITE, "run", None, "ordered", "here"))
        ])  # fmt: skip
        granule = stage.nodes[0].reduction.pane.index(START + 39 * SECOND)
        origin = Origin(stage.fingerprint, source, 1_000_000, stage.nodes[0].name)
        told = Punctuation(
            origin, 0, made, LaneLedger({"promised": 3}, (Account(granule, 0, 3),)),
            Ending.END if second is None else Ending.NONE,
        )  # fmt: skip
        self.write(Topic(TopicKind.PARTIALS, stage.fingerprint, self.config.prefix), [(0, told), (1, told)])


@pytest.fixture
def topics(broker: str, tmp_path: Path) -> Topics:
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    config = load_config(path)
    plans = plan_queries(config)
    assert ensure_topics(admin(config.kafka), topics_of(config, plans)) == []
    return Topics(path, config, {plan.name: plan for plan in plans})


def at(second: int) -> str:
    return time(START + second * SECOND)


def test_since_and_until(topics: Topics) -> None:
    topics.windows(range(4), lossy=2)

    def watched(*options: str, code: int = 0) -> tuple[list[str], list[dict[str, object]]]:
        outcome = lowmark("watch", "count", "-c", str(topics.path), "--json", *options)
        assert outcome.code == code, outcome.error
        return outcome.out.splitlines(), [json.loads(line) for line in outcome.error.splitlines()]

    rows, told = watched("--since", at(10), "--until", at(30), code=4)
    assert sorted(rows) == sorted(topics.row(number, bucket) for number in (1, 2) for bucket in (0, 1))
    assert [one["complete"] for one in told] == [
        {"window_start": at(10), "window_end": at(20)}, {"window_start": at(20), "window_end": at(30)},
    ]  # fmt: skip
    assert [one["verdict"] for one in told] == ["exact", "lossy"]
    rows, told = watched("--until", at(20))  # from the oldest on
    assert [(one["complete"], one["partial"]) for one in told] == [
        ({"window_start": at(0), "window_end": at(10)}, True), ({"window_start": at(10), "window_end": at(20)}, False),
    ]  # fmt: skip
    assert len(rows) == 4
    # What has become known of a window that was told as exact; whether that comes before its end in the other bucket
    # is chance.
    topics.results(
        "count", (0, Amendment("count", 1, 0, WindowSpan(1, 1), at(10), at(20), 2, 0, frozenset({Reason.LATE})))
    )
    topics.windows([4])
    assert sum("amendment" in one for one in watched("--until", at(50), code=4)[1]) == 1
    for options, said in (
        (["--until", "5"], "--until: results of count go by ts: it takes a time"),
        (["--since", "yesterday"], "--since 'yesterday': it takes a time such as 2024-05-01T12:00:00Z"),
    ):
        wrong = lowmark("watch", "count", "-c", str(topics.path), *options)
        assert wrong.code == 2
        assert said in " ".join(wrong.error.split())


def test_until_ends_when_nothing_more_can_come(topics: Topics) -> None:
    """All sources have ended long before that time, and all that they sent is answered."""
    topics.windows(range(4))
    for source in ("a", "b"):
        topics.promise("count", source, None)
    outcome = lowmark("watch", "count", "-c", str(topics.path), "--json", "--until", "2030-01-01T00:00:00Z")
    assert (outcome.code, len(outcome.out.splitlines())) == (0, 8), outcome.error


def test_it_waits_for_the_first_start_of_the_job(broker: str, tmp_path: Path) -> None:
    """Nothing that the job writes before `watch` sees the topic is missing."""
    path = tmp_path / "lowmark.toml"
    path.write_text(CONFIG.format(broker=broker, prefix=uuid4().hex[:8]))
    config = load_config(path)
    with Command("watch", "count", "-c", str(path), "--json", "--windows", "3") as watching:
        await_true(lambda: "waiting for the topic" in watching.error or watching.process.poll() is not None)
        plans = plan_queries(config)
        assert ensure_topics(admin(config.kafka), topics_of(config, plans)) == []
        Topics(path, config, {plan.name: plan for plan in plans}).windows(range(3))
        assert watching.wait() == 0, watching.error
    assert len(watching.out.splitlines()) == 6
    assert watching.error.count("waiting for the topic") == 1


def test_a_query_that_nobody_has_is_refused(topics: Topics) -> None:
    outcome = lowmark("watch", "cuont", "-c", str(topics.path))
    assert outcome.code == 1
    said = " ".join(outcome.error.split())
    assert "the configuration has no query cuont" in said
    assert "queries with results here: count, plain" in said


def test_a_quiet_query_says_what_it_waits_for(topics: Topics) -> None:
    with Terminal("watch", "count", "-c", str(topics.path)) as terminal:
        await_true(lambda: "count: it waits for a: it has never been seen, and 1 more" in terminal.text)
        for source in ("a", "b"):
            topics.promise("count", source, 47)
        await_true(lambda: f"the window to {at(40)} waits for the job: all sources are past it" in flat(terminal))
        topics.windows(range(5))
        await_true(lambda: f"the window to {at(50)[:-1]}" not in terminal.text and at(50) in terminal.text)
        terminal.interrupt()
        assert terminal.wait() == 130
    lines = terminal.lines
    assert lines[0].startswith(f"count  {at(0)} … {at(10)}  exact (began before its"), terminal.text
    assert sum(line.startswith("│ 10.0.0.") for line in lines) == 10, terminal.text
    assert not any("waits for" in line or "waiting" in line for line in lines), terminal.text
    assert max(map(len, lines)) <= 80


def flat(terminal: Terminal) -> str:
    return " ".join(terminal.text.split())
