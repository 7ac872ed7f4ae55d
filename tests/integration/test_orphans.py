"""Topics that a configuration no longer needs: listed, and deleted when nobody uses them."""

from __future__ import annotations

import io
import json
import signal
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.kafka.orphaned_topics import Orphan, orphans
from lowmark.app.kafka.source_registry import seen_sources
from lowmark.wire.kafka.clients import admin, ensure_topics, last_written_ms
from tests.acceptance.command import lowmark
from tests.acceptance.test_golden import at
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.naive.frames import frame, write_pcap

pytestmark = pytest.mark.slow

CONFIG = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}"
[capture]
metrics = "127.0.0.1:0"
[job]
buckets = 2
[streams.Main]
disorder = "ordered"
[sources.tap]
stream = "Main"
file = "{file}"
follow = true
[queries.kept]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
"""
OLD = """
[queries.old]
sql = "SELECT srcIP, count(*) [RANGE 10 s] FROM Main GROUP BY srcIP"
late = "emit"
"""
LATER_MS = 11 * 60_000


def test_topics_of_queries_that_are_gone(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"{uuid4().hex[:8]}-"
    config, file = tmp_path / "lowmark.toml", write_pcap(tmp_path / "grows.pcap", [frame(at(n)) for n in range(30)])
    now = CONFIG.format(broker=broker, prefix=prefix, file=file)
    config.write_text(now + OLD)
    loaded = load_config(config)
    client = admin(loaded.kafka)
    before = topics_of(loaded, plan_queries(loaded))
    assert ensure_topics(client, before) == []
    foreign = [
        f"{prefix}other",
        f"{prefix}lowmark.v2.results.old",
        f"{prefix}lowmark.v1.unknown.old",
        f"x{prefix}lowmark.v1.results.old",
        f"{prefix}x-lowmark.v1.partials.abc",
    ]
    _make(client, foreign)
    (old,) = plan_queries(loaded, ["old"])
    partials, results, late = (
        f"{prefix}lowmark.v1.{kind}"
        for kind in (f"partials.{old.stage.fingerprint}", "results.old", "late.old")
    )  # fmt: skip

    def judged(later_ms: int = 0) -> dict[str, str | None]:
        loaded = load_config(config)
        wanted = topics_of(loaded, plan_queries(loaded))
        found = orphans(loaded, client, wanted, time.time_ns() // 1_000_000 + later_ms)
        assert all(isinstance(orphan, Orphan) and orphan.partitions == 2 for orphan in found)
        return {orphan.name: orphan.used for orphan in found}

    assert judged() == {}
    config.write_text(now)
    assert judged() == {partials: None, results: None, late: None}, "nobody lives"
    config.write_text(now + OLD)

    with Command("capture", "-c", str(config)) as capture:
        capture.url()
        await_true(lambda: last_written_ms(client, {partials: 2})[partials] is not None)
        config.write_text(now)
        used = judged(LATER_MS)
        assert used.keys() == {partials, results, late}
        assert (used[results], used[late]) == (None, None)
        assert used[partials] is not None
        assert used[partials].startswith("source tap (")

        listed = lowmark("topics", "-c", str(config))
        assert listed.code == 0, listed.out
        states = {row["topic"]: row["state"] for row in map(json.loads, listed.out.splitlines())}
        assert sorted(states.values()) == sorted(["ok"] * (len(states) - 3) + ["not needed"] * 3)
        assert states[results] == "not needed"
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        refused = lowmark("topics", "--delete", "-c", str(config))
        assert refused.code == 1
        assert f"to be deleted: {results}, 2 partitions" in refused.out
        assert f"left alone: {partials}: source tap (" in refused.out
        assert _all(client, prefix) == {topic.name for topic in before} | set(foreign)
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        agreed = lowmark("topics", "--delete", "-c", str(config))
        assert (agreed.code, agreed.out.splitlines()[-1][-9:]) == (0, "2 deleted")
        await_true(lambda: _all(client, prefix) == {topic.name for topic in before} - {results, late} | set(foreign))

        # The source lives on, and says in the topic that it sends nothing more.
        capture.process.send_signal(signal.SIGHUP)
        await_true(lambda: "queries are kept" in capture.error)
        await_true(lambda: judged(LATER_MS) == {partials: None})
        assert (judged()[partials] or "").startswith("it was written to ")
        alone = lowmark("topics", "--delete", "--yes", "-c", str(config))
        assert alone.code == 0
        assert f"left alone: {partials}: it was written to " in alone.out
        assert alone.out.endswith("there is nothing to delete\n")

        monkeypatch.setattr("lowmark.app.kafka.orphaned_topics._USED_FOR_MS", 0)
        assert lowmark("topics", "--delete", "--yes", "-c", str(config)).out.endswith("1 deleted\n")
        left = {topic.name for topic in before} - {partials, results, late}
        await_true(lambda: _all(client, prefix) == left | set(foreign))
        assert [seen.registration.source for seen in seen_sources(loaded.kafka, prefix)] == ["tap"]
        assert not capture.error.count("takes no records")

    # A process that was killed uses nothing any more; one that lives may be about to.
    assert ensure_topics(client, before) == []
    config.write_text(now + OLD)
    with Command("capture", "-c", str(config), "--take-over") as capture:
        capture.url()
        await_true(lambda: last_written_ms(client, {partials: 2})[partials] is not None)
        config.write_text(now)
        assert (judged(LATER_MS)[partials] or "").startswith("source tap (")
        unwritten = f"{prefix}lowmark.v1.partials.0123"
        _make(client, [unwritten])
        assert (judged(LATER_MS)[unwritten] or "").startswith("nothing has been sent to it yet, and source tap (")
    assert judged(LATER_MS) == dict.fromkeys((partials, results, late, unwritten))


def _make(client: AdminClient, names: list[str]) -> None:
    for answer in client.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        answer.result(30)
    await_true(lambda: set(names) <= client.list_topics(timeout=10).topics.keys())


def _all(client: AdminClient, prefix: str) -> set[str]:
    return {name for name in client.list_topics(timeout=10).topics if prefix in name}
