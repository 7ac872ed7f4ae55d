"""Sources that come and go while a job runs, against a real broker and Spark: who counts is told, and exact."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.job.check import foresee_job
from lowmark.app.job.roster import members_now
from lowmark.app.job.ruler import Ruler
from lowmark.app.job.source_requests import ask
from lowmark.app.kafka import epochs
from lowmark.app.kafka.epochs import refuse_former_epochs, renumber
from lowmark.query.plan.nodes import QueryPlan
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import (
    KafkaSettings,
    KafkaUnavailable,
    admin,
    delete_topics,
    ensure_topics,
    producer,
)
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import encode
from lowmark.wire.records.rosters import Action
from lowmark.wire.records.verdicts import Complete, Reason, Verdict, WindowSpan
from tests.integration.jobfeed import FIRST_PANE
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.livesources import Hosts
from tests.integration.processes import get, samples, value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STALL_S = 6


def write_config(folder: Path, broker: str, prefix: str, *roster: str) -> Path:
    path = folder / "lowmark.toml"
    names = ", ".join(f'"{name}"' for name in roster)
    path.write_text(
        f'[kafka]\nbootstrap = "{broker}"\n[topics]\nprefix = "{prefix}"\n'
        '[job]\nmetrics = "127.0.0.1:0"\nheap = "512m"\nbuckets = 2\n'
        f'[streams.Main]\nroster = [{names}]\nstall = "exclude after {STALL_S} s"\n'
        '[queries.q]\nsql = "SELECT srcIP, count(*) [RANGE TUMBLING 5 seconds, WA ts] FROM Main GROUP BY srcIP"\n'
    )
    return path


def foresee(path: Path) -> str:
    config = load_config(path)
    plans = plan_queries(config)
    return foresee_job(config, plans, [settings.name for settings in topics_of(config, plans)])


def test_sources_join_leave_are_excluded_and_return_while_the_job_is_killed(broker, tmp_path):
    prefix = f"{uuid4().hex[:8]}-"
    path = write_config(tmp_path, broker, prefix, "left", "right", "capture-*")
    hosts = Hosts(load_config(path))
    hosts.register("left")
    hosts.register("right")
    with JobProcess(path) as job:
        job.url()
        hosts.send("left", "right", panes=4)
        await_true(lambda: hosts.complete(FIRST_PANE + 3))
        assert hosts.listed() == {"left", "right"}

        # A node of the pattern joins by registering.
        hosts.register("capture-7")
        hosts.send_until(lambda: "capture-7" in hosts.listed(), "left", "right", "capture-7")
        first = hosts.joined("capture-7")
        assert first >= hosts.next, "it has not been promised by then"
        hosts.send("left", "right", "capture-7", panes=max(0, first + 3 - hosts.next))
        await_true(lambda: hosts.complete(first + 1))
        job.kill()

    # One source less and one more in the configuration, while no job runs.
    write_config(tmp_path, broker, prefix, "left", "third", "capture-*")
    hosts.register("third")
    assert re.search(r"third joins stream Main.*right leaves", foresee(path))
    hosts.send("left", "right", "third", "capture-7", panes=2)
    with JobProcess(path) as job:
        job.url()
        hosts.send_until(lambda: "third" in hosts.listed(), "left", "right", "third", "capture-7")
        assert hosts.listed() == {"left", "third", "capture-7"}
        second = hosts.joined("third")
        hosts.send("left", "right", "third", "capture-7", panes=max(0, second + 2 - hosts.next))
        await_true(lambda: hosts.complete(second + 1))

        # A node is silent: windows wait for it no longer than the configured time.
        silent_from = hosts.next
        hosts.send_until(lambda: hosts.complete(silent_from), "left", "third")
        assert (hosts.reasons(silent_from), hosts.missing(silent_from)) == ({Reason.EXCLUDED}, {"capture-7"})

        job.kill()
    with JobProcess(path) as job:
        job.url()
        # It comes back, promises what was missing, and rejoins.
        hosts.pane("capture-7", hosts.next - 1)

        def back() -> bool:
            return not members_now(hosts.roster())["capture-7"].is_excluded

        hosts.send_until(back, "left", "third", "capture-7")
        hosts.send("left", "third", "capture-7", panes=4)
        await_true(lambda: hosts.complete(hosts.next - 1))
        assert hosts.reasons(hosts.next - 1) == set()

        # All are excluded by hand: nothing is closed, until one returns.
        config = load_config(path)
        assert ask(config, "lowmark", "left", Action.EXCLUDE).startswith("left is excluded from stream Main")
        for source in ("third", "capture-7"):
            ask(config, "lowmark", source, Action.EXCLUDE)
        assert set(hosts.roster().by_hand) == {"left", "third", "capture-7"}
        held = hosts.next
        hosts.send("left", panes=3)
        assert "windows wait for it" in ask(config, "lowmark", "left", Action.RETURN)
        await_true(lambda: hosts.complete(held + 2))
        assert (hosts.reasons(held), hosts.missing(held)) == ({Reason.EXCLUDED}, {"third", "capture-7"})
        assert hosts.no_wrong_exact() > 12
        job.terminate()
        assert job.wait() == 0, job.said


def test_a_new_generation_leaves_out_what_only_completed_windows_need(broker, tmp_path):
    """The records of the past have the times of append that a broker would have given them then."""
    path = write_config(tmp_path, broker, f"{uuid4().hex[:8]}-", "left", "right")
    config = load_config(path)
    hosts, told = Hosts(config), FIRST_PANE + 297
    stage, merged = hosts.plan.stage.fingerprint, "lowmark_partials_merged_total"
    partials, results = (
        next(of.name for of in topics_of(config, [hosts.plan]) if kind in of.name) for kind in ("partials", "results")
    )
    stamp_with(config.kafka, partials, "CreateTime")
    for source in ("left", "right"):
        hosts.register(source)
    hosts.send("left", "right", panes=300)
    stamp_with(config.kafka, partials, "LogAppendTime")
    write_completions(config.kafka, results, hosts.plan, told)
    with JobProcess(path, "--new-generation") as job:
        url = job.url()
        hosts.send("left", "right", panes=2)
        await_true(lambda: job.ended or hosts.complete(FIRST_PANE + 301))
        # Results are visible before the batch is counted.
        await_true(lambda: job.ended or bool(value(samples(get(f"{url}/metrics").text), merged, stage=stage)))
        page = samples(get(f"{url}/metrics").text)
        job.terminate()
        assert job.wait() == 0, job.said
    assert "only what was appended from 20" in job.said
    found, amended = hosts.answers()
    assert [window for window, each in found.items() if len(each) != 2] == []
    assert (sorted(found)[-5:], amended) == ([*range(told, told + 5)], set()), "each once, after those told before"
    assert hosts.no_wrong_exact() == 4, "and exact"
    sent = sum(sum(of.values()) for of in hosts.sent.values())
    assert 0 < (value(page, merged, stage=stage) or 0) < sent * 0.6
    assert value(page, "lowmark_records_missing_total", stage=stage) == 0


def stamp_with(kafka: KafkaSettings, topic: str, kind: str) -> None:
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    client = admin(kafka)
    place = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    (done,) = client.incremental_alter_configs([place]).values()
    done.result(30)


def write_completions(kafka: KafkaSettings, topic: str, plan: QueryPlan, last: int) -> None:
    """As a former generation has: of all windows up to this one, in one run a bucket, as if it had lost them."""
    client, over = producer(kafka), plan.window
    for bucket in range(plan.stage.buckets):
        complete = Complete(
            "q", 1, bucket, plan.stage.buckets, WindowSpan(FIRST_PANE, last), over.start(FIRST_PANE), over.end(last),
            "ts", 0, 0, 0, 0, 0, None, (), Verdict(frozenset({Reason.GAP})),
        )  # fmt: skip
        record = encode(complete)
        client.produce(topic, record.value, partition=bucket, headers=list(record.headers))
    assert client.flush(30) == 0


def test_one_process_rules_and_epochs_that_begin_again_are_refused_until_they_are_renumbered(
    broker, tmp_path, monkeypatch
):  # fmt: skip
    """Someone has deleted the topic of sources: the job would ignore all that a new life of a source sends."""
    path = write_config(tmp_path, broker, f"{uuid4().hex[:8]}-", "left")
    config = load_config(path)
    hosts = Hosts(config)
    for _ in range(5):
        hosts.register("left")
    hosts.send("left")
    topics = [settings.name for settings in topics_of(config, [hosts.plan]) if "partials" in settings.name]
    refuse_former_epochs(config.kafka, config.prefix, topics, {"left": 5, "new": 0})
    with pytest.raises(EnvironmentNotReady, match="epochs begin again") as refused:
        refuse_former_epochs(config.kafka, config.prefix, topics, {"left": 1, "new": 0})
    assert refused.value.details == ("source left: it registered as 1, after 4",)
    with pytest.raises(EnvironmentNotReady, match="job lowmark has not begun"):
        ask(config, "lowmark", "left", Action.EXCLUDE)

    with Watchdog(print) as watchdog:
        rulers = [Ruler(config, "lowmark", f"{config.prefix}job", (hosts.plan.stage,), watchdog) for _ in range(2)]
        former, present = rulers
        former.start(former.base(anew=False), hosts.plan.stage.nodes[0].streams)
        await_true(lambda: former.rosters() != [])
        present.start(present.base(anew=True), ())
        await_true(lambda: present.rosters() != [])
        assert ask(config, "lowmark", "left", Action.EXCLUDE).startswith("left is excluded from stream Main")
        await_true(lambda: former.helper.failure is not None)
        assert "another process rules the sources of job lowmark" in str(former.helper.failure)
        assert hosts.roster().by_hand == ("left",)

        sources = Topic(TopicKind.SOURCES, None, config.prefix).name
        assert delete_topics(admin(config.kafka), [sources]) == {}
        await_true(lambda: sources not in admin(config.kafka).list_topics(timeout=10).topics)
        assert ensure_topics(admin(config.kafka), topics_of(config, [hosts.plan])) == []
        await_true(lambda: present.helper.failure is not None)
        assert "was deleted and made anew while the job ran" in str(present.helper.failure)
        for ruler in rulers:
            ruler.stop()
    with monkeypatch.context() as away:  # a broker that goes just then
        away.setattr(epochs, "producer", lambda kafka: producer(KafkaSettings("127.0.0.1:1")))
        away.setattr(epochs, "_ANSWER_WITHIN_S", 1.0)
        with pytest.raises(KafkaUnavailable):
            renumber(config.kafka, config.prefix)
    assert renumber(config.kafka, config.prefix) == (0, 5)
    assert renumber(config.kafka, config.prefix) == (5, 5)
