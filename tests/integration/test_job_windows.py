"""Windows and joins of every kind in one job that is killed in the middle of them, and queries that reach their limits:
the rows of the definitions, each once."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from highlevel.progress.records import Batch, Record
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.job.check import foresee_job
from lowmark.query.plan.nodes import Join, QueryPlan
from lowmark.query.plan.shared_joins import shares
from lowmark.wire.kafka.clients import admin, ensure_topics, producer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.values import parse_time
from lowmark.wire.rows.words import to_batch
from tests.acceptance.bucketrun import records_of
from tests.acceptance.interleaved import packets_of
from tests.acceptance.traffic import Traffic
from tests.acceptance.valued import with_values
from tests.integration.committed import committed_messages
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.compare import differences
from tests.naive.evaluate import ResultRow, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WINDOWS = {
    "sliding": "SELECT srcIP, count(*), sum(len), approx_count_distinct(destIP, destPort) AS d [RANGE 10 s, SLIDE 5 s] "
    "FROM A GROUP BY srcIP",
    "tumbling": "SELECT proto, max(len), heavy_hitter(srcIP, 1) AS h [RANGE 10 s] FROM A UNION B GROUP BY proto",
    "rows": "SELECT count(*), sum(len), first(srcIP) [RANGE 9 rows, SLIDE 4 rows, WA row_num] FROM A",
    "partitioned": "SELECT srcIP, count(*), max(ts) AS m [RANGE 5 rows, SLIDE 2 rows, WA row_num, PA srcIP] FROM A",
    "landmark": "SELECT srcIP, count(*) [RANGE ALL, SLIDE 10 s] FROM B GROUP BY srcIP",
    "arrival": "SELECT count(*), sum(len) [RANGE 20 s, RATTR ts, SLIDE 7 rows, SATTR row_num] FROM A",
    "rank": "SELECT srcIP, max(len) [RANGE 20 s, RATTR ts, SLIDE 3 rows, SATTR rank(ts), PA srcIP] FROM B",
    "ungated": "SELECT ten, proto, count(*) FROM A GROUP BY ts / 10 AS ten, proto HAVING count(*) > 1",
    "distinct": "SELECT DISTINCT ts / 10 AS ten, srcIP, destPort FROM A UNION B",
    "union": "CREATE STREAM p AS SELECT srcIP, count(*) AS n [RANGE 10 s] FROM A GROUP BY srcIP; CREATE STREAM q AS "
    "SELECT destIP AS srcIP, count(*) AS n [RANGE 10 s] FROM B GROUP BY destIP ORDER BY n DESC LIMIT 2; "
    "SELECT * FROM p UNION q",
    "stages": "CREATE STREAM s AS SELECT srcIP, count(*) AS n [RANGE 5 s] FROM A UNION B GROUP BY srcIP; "
    "SELECT srcIP, max(n) AS m [RANGE 30 s, SLIDE 15 s, WA window_end] FROM s GROUP BY srcIP",
    "wid": "SELECT destIP, max(len) AS m, count(*) [RANGE 12 s, SLIDE 4 s] FROM A GROUP BY destIP",
    "adapt": "SELECT destIP, srcIP, max(len) AS m, sum(len) [RANGE 20 s, SLIDE 5 s] FROM B GROUP BY destIP, srcIP",
    "landmarkrows": "SELECT proto, count(*), sum(len) [RANGE ALL, SLIDE 20 rows, WA row_num] FROM A GROUP BY proto",
    "top": "SELECT srcIP, sum(len) AS b, 100.0 * sum(len) / total(sum(len)) AS p [RANGE 15 s, SLIDE 5 s] "
    "FROM A UNION B GROUP BY srcIP ORDER BY b DESC, srcIP LIMIT 2",
    "idle": "SELECT srcIP, destIP, count(*) [RANGE 3 rows, SLIDE 2 rows, WA row_num, PA srcIP, destIP] FROM A",
}
_AB = "FROM A AS x [RANGE {0} s], B AS y [RANGE {0} s] WHERE x.destIP = y.destIP"
JOINS = {
    "punctuated": "SELECT /*+ algorithm(punctuated) */ x.ts, y.ts AS u, x.len "
    + _AB.format(7)
    + " AND x.proto = y.proto",
    "ondisk": "SELECT /*+ buffer(disk) */ x.ts, y.ts AS u, x.len FROM A AS x, B AS y WHERE x.ts/3 = y.ts/3 "
    "AND x.srcIP = y.srcIP",
    "hybrid": "SELECT /*+ buffer(hybrid) */ x.ts, y.ts AS u, x.len FROM A AS x, B AS y WHERE x.ts/5 = y.ts/5 "
    "AND x.srcIP = y.destIP",
    "ordered": "SELECT x.ts, y.ts AS u, x.len " + _AB.format(4) + " ORDER BY ts",
    "short": "SELECT x.ts, y.ts AS u, x.destIP " + _AB.format(6),
    "middle": "SELECT x.destIP, count(*) AS n, max(x.ts) AS m [RANGE 10 s, SLIDE 5 s, WA y.ts] "
    + _AB.format(9)
    + " GROUP BY x.destIP",
    "long": "SELECT y.ts, x.ts AS t " + _AB.format(12),
    "outer": "SELECT x.ts, y.ts AS u, x.destIP FROM A AS x [RANGE 4 s] LEFT JOIN B AS y [RANGE 2 s] "
    "ON x.destIP = y.destIP AND x.ts < y.ts",
    "unanswered": "SELECT ts, srcIP FROM A AS x [RANGE 4 s] "
    "WHERE NOT EXISTS (SELECT ts FROM B AS y [RANGE 2 s] WHERE x.srcIP = y.srcIP)",
}
STRATEGIES = {"wid": "wid", "adapt": "adapt"}
IDLE_S = {"idle": 2}
FEW = 2
"""Groups of a bucket, which has more."""
TRAFFIC = Traffic(seed=5, sizes=(("A", 260), ("A", 240), ("B", 250)), disorder_s=2, nanoseconds=True)


def write_config(folder: Path, broker: str, queries: Mapping[str, str], offsets: int = 40) -> Path:
    """`offsets`: at most so many records of all topics are in a micro-batch."""
    path = folder / "lowmark.toml"
    lines = [
        f'[kafka]\nbootstrap = "{broker}"',
        f'[topics]\nprefix = "{uuid4().hex[:8]}-"',
        f'[job]\nmetrics = "127.0.0.1:0"\nmax_offsets_per_trigger = {offsets}\nheap = "512m"\nbuckets = 2',
        *(f"[streams.{stream}]" for stream in TRAFFIC.sources),
    ]
    for stream, sources in TRAFFIC.sources.items():
        lines += [f'[sources.{stream}-{i}]\nstream = "{stream}"\nfile = "not-read"' for i in range(len(sources))]
    for name, sql in queries.items():
        lines += [f'[queries.{name}]\nsql = "{sql}"', f'strategy = "{STRATEGIES.get(name, "auto")}"']
        lines += [f'limits = {{expire_idle = "{IDLE_S[name]} s"}}'] if name in IDLE_S else []
    path.write_text("\n".join(lines) + "\n")
    return path


def sent(plan: QueryPlan, chance: random.Random) -> list[tuple[int, Record]]:
    """What sources send for a query, each in its own order, with their partitions; with promises about values where a
    join uses them."""
    valued = any(isinstance(step.plan, Join) and step.plan.punctuated for step in plan.steps)
    streams = packets_of(TRAFFIC)
    lanes = [
        [(bucket, record) for record in (with_values(plan, records, chance) if valued else records)]
        for stream, sources in streams.items()
        for rank, packets in enumerate(sources)
        for node in plan.stage.nodes
        if stream in node.streams
        for bucket, records in enumerate(records_of(plan, node, stream, rank, packets, chance))
    ]
    turns = [number for number, lane in enumerate(lanes) for _ in lane]
    chance.shuffle(turns)
    queues = [iter(lane) for lane in lanes]
    return [next(queues[turn]) for turn in turns]


def produce(config: Config, plan: QueryPlan, records: Sequence[tuple[int, Record]]) -> None:
    client = producer(config.kafka)
    topic = Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix).name
    schemas = {node.name: node.reduction.schema for node in plan.stage.nodes}
    for bucket, record in records:
        if isinstance(record, Batch):
            rows = to_batch(schemas[record.origin.node], record.rows)
            wire = encode(PartialBatch(record.origin, record.sequence, rows, record.tuples))
        else:
            wire = encode(record)
        client.produce(topic, wire.value, partition=bucket, headers=list(wire.headers))
    assert client.flush(30) == 0


def shown(config: Config, plan: QueryPlan) -> tuple[list[ResultRow], list[Complete]]:
    """The rows that a read_committed reader sees, and the completions."""
    topic = Topic(TopicKind.RESULTS, plan.name, config.prefix).name
    rows: list[ResultRow] = []
    completions: list[Complete] = []
    for message in committed_messages(config.kafka, [(topic, bucket) for bucket in range(plan.stage.buckets)]):
        record = decode(message.headers(), message.value())
        if isinstance(record, Complete):
            completions.append(record)
        else:
            rows.append(json.loads(message.value()))
    return rows, completions


def test_every_kind_of_window_and_join_through_kills(broker: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("WINDOWS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"WINDOWS_SEED={seed}")
    chance = random.Random(seed)
    queries = WINDOWS | JOINS
    config = load_config(path := write_config(tmp_path, broker, queries, offsets=160))
    plans: Mapping[str, QueryPlan] = {plan.name: plan for plan in plan_queries(config)}
    assert ensure_topics(admin(config.kafka), topics_of(config, list(plans.values()))) == []
    by_stage = {plan.stage.fingerprint: plan for plan in plans.values()}
    together = [plan for plan in plans.values() if plan.stage == plans["long"].stage]
    assert [share.queries for share in shares(together)] == [(("short",), ("middle",), ("long",))]
    waiting = {plan.name: sent(plan, chance) for plan in by_stage.values()}

    def feed(share: float) -> None:
        """Ends somewhere within each query's windows."""
        for name, records in waiting.items():
            count = round(len(records) * share)
            produce(config, plans[name], records[:count])
            del records[:count]

    def completed() -> int:
        return sum(len(shown(config, plan)[1]) for plan in plans.values())

    feed(0.4)
    with JobProcess(path, die=f"{chance.choice(('before', 'after'))}:{chance.randrange(2, 5)}") as job:
        assert job.wait() == -9, job.said
    feed(0.5)
    with JobProcess(path) as job:
        before = completed()
        job.url()
        await_true(lambda: completed() > before)
        time.sleep(chance.uniform(0, 2))
        job.kill()
    feed(1)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    streams = packets_of(TRAFFIC)
    for name, plan in plans.items():
        rows, completions = shown(config, plan)
        text = queries[name].removesuffix(" ORDER BY ts")
        assert differences(rows, rows_of(text, streams, IDLE_S.get(name))) == [], name
        assert len(rows) > 5
        if name == "ordered":
            latest = [max(parse_time(str(row[time])) for time in ("x.ts", "u")) for row in rows]
            assert latest == sorted(latest)
        reasons = {reason for complete in completions for reason in complete.verdict.reasons}
        assert reasons == ({Reason.NUMBERING} if name in IDLE_S else set()), name


def test_a_query_at_its_limit_stops_alone_and_a_new_generation_releases_it(broker: str, tmp_path: Path) -> None:
    """One after the other of two that fail is quarantined, and stays so when the job starts again. What the third one
    writes is exact, each row once; so is in the end what the two write."""
    names = ("landmark", "partitioned", "sliding")
    path = write_config(tmp_path, broker, {name: WINDOWS[name] for name in names})
    text = path.read_text()
    config = load_config(path)
    plans = {plan.name: plan for plan in plan_queries(config)}
    assert ensure_topics(admin(config.kafka), topics_of(config, list(plans.values()))) == []
    for plan in plans.values():
        produce(config, plan, sent(plan, random.Random(1)))
    streams = packets_of(TRAFFIC)

    def exact(name: str) -> bool:
        rows, completions = shown(config, plans[name])
        assert all(complete.verdict.exact for complete in completions), name
        return differences(rows, rows_of(WINDOWS[name], streams)) == []

    failing = ("landmark", "partitioned")
    path.write_text(text + "".join(f"[queries.{name}.limits]\ngroups = {FEW}\n" for name in failing))
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 2, job.said  # windows of quarantined queries are not written
    for name in failing:
        (said,) = (line for line in job.lines if f"query {name} is quarantined: " in line)
        assert f"of stage {plans[name].stage.fingerprint} (queries: {name}): query {name}: more than {FEW}" in said
        assert re.search(r"LimitReached in bucket \d+ of stage", said), said
        assert "different (srcIP) in a bucket" in said
        assert f"limits.groups. Raise it ([queries.{name}.limits]" in said
        assert "start the job once with --release and its name" in said
        assert "with --new-generation" in said
    assert "Traceback" not in job.said
    assert exact("sliding")

    path.write_text(text)  # a higher limit alone releases nobody
    with JobProcess(path) as job:
        url = job.url()
        page = samples(get(f"{url}/metrics").text)
        assert {name: value(page, "lowmark_query_quarantined", query=name) for name in names} == {
            "landmark": 1, "partitioned": 1, "sliding": 0,
        }  # fmt: skip
        await_true(lambda: get(f"{url}/readyz").status == 200)
        assert set(get(f"{url}/readyz").json) >= {"quarantined landmark", "quarantined partitioned"}
        there = set(admin(config.kafka).list_topics(timeout=10).topics)
        assert "query landmark is quarantined: LimitReached" in foresee_job(config, list(plans.values()), there)
        job.terminate()
        assert job.wait() == 0, job.said
    assert set(stopped(path)) == set(failing)
    for name in failing:
        assert f"query {name} is still quarantined: " in job.said
        assert not exact(name)

    with JobProcess(path, "--new-generation", "--until-last") as job:
        assert job.wait() == 0, job.said
    assert "quarantined" not in job.said
    assert stopped(path) == []
    assert [name for name in names if not exact(name)] == []


def stopped(path: Path) -> list[str]:
    """The queries that `watch --progress` calls quarantined."""
    with Command("watch", "--progress", "--once", "--json", "-c", str(path)) as progress:
        assert progress.wait() == 0, progress.error
    return [str(row["query"]) for row in progress.rows if "the query is quarantined" in json.dumps(row["waiting"])]
