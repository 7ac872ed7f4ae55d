"""Sources that come and go while a job runs, against a real broker and Spark: who counts is told, and exact."""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

from highlevel.rosters.roster import Roster
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowlevel.source_registration import SourcesLog
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.job.check import foresee_job
from lowmark.app.job.roster import excluded, members_now, rosters_in_force
from lowmark.app.job.ruler import Ruler
from lowmark.app.job.source_requests import ask
from lowmark.app.kafka import epochs
from lowmark.app.kafka.epochs import refuse_former_epochs, renumber
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import (
    KafkaSettings,
    KafkaUnavailable,
    admin,
    delete_topics,
    ensure_topics,
    producer,
)
from lowmark.wire.kafka.settings import consumer_options
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.registration import Registration, SourceKind
from lowmark.wire.records.rosters import Action, RosterInForce
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from lowmark.wire.rows.words import to_batch
from tests.integration.jobfeed import FIRST_PANE
from tests.integration.jobprocess import PATIENCE_S, JobProcess, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STALL_S = 6
PANE_S = 5


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


class Hosts:
    """Live sources that send what a test says; their windows are panes."""

    def __init__(self, config: Config) -> None:
        (self.plan,) = plan_queries(config)
        self._config = config
        assert ensure_topics(admin(config.kafka), topics_of(config, [self.plan])) == []
        self._stage = self.plan.stage
        (self._node,) = self._stage.nodes
        self._outboxes: dict[str, Outbox] = {}
        self._log = SourcesLog(config.kafka, Topic(TopicKind.SOURCES, None, config.prefix).name)
        self._client = producer(config.kafka)
        self._random = random.Random(3)
        self.sent: dict[str, dict[int, int]] = defaultdict(dict)  # by source and pane: tuples
        self.next = FIRST_PANE

    def register(self, source: str) -> None:
        made = Registration(source, "Main", SourceKind.LIVE, None, 0, "within 50 ms", "host:1")
        origin = Origin(self._stage.fingerprint, source, self._log.append(made), self._node.name)
        self._outboxes[source] = Outbox(self._node, origin, self._stage.buckets)

    def send(self, *sources: str, panes: int = 1) -> None:
        for _ in range(panes):
            for source in sources:
                self.pane(source, self.next)
            self.next += 1

    def pane(self, source: str, pane: int) -> None:
        schema = self._node.reduction.schema
        rows = np.zeros((self._random.randrange(5, 20), schema.words), np.uint64)
        rows[:, schema.offset("pane")] = pane
        rows[:, schema.offset("tuples")] = 1
        for row in rows[:, schema.offset("srcIP") :]:
            row[0], row[2] = 4, 0x0A00_0000 + self._random.randrange(60)
        self.sent[source][pane] = len(rows)
        output = NodeOutput(self._node.name, rows, NodeProgress(self._node.reduction.pane.start(pane + 1)))
        topic = Topic(TopicKind.PARTIALS, self._stage.fingerprint, self._config.prefix).name
        for partition, record in self._outboxes[source].take(output, Ending.NONE):
            if isinstance(record, Rows):
                batch = to_batch(schema, record.rows)
                wire = encode(PartialBatch(record.origin, record.sequence, batch, record.tuples))
            else:
                wire = encode(record)
            self._client.produce(topic, wire.value, partition=partition, headers=list(wire.headers))
        assert self._client.flush(30) == 0

    def answers(self) -> tuple[dict[int, list[Complete]], set[int]]:
        """By window: its completions in all buckets; and the windows that were amended."""
        topic = Topic(TopicKind.RESULTS, "q", self._config.prefix).name
        reader = Consumer(consumer_options(self._config.kafka, uuid4().hex) | {"enable.partition.eof": True})
        reader.assign([TopicPartition(topic, bucket, 0) for bucket in range(self._stage.buckets)])
        found: dict[int, list[Complete]] = defaultdict(list)
        amended: set[int] = set()
        ended = 0
        while ended < self._stage.buckets:
            message = reader.poll(30)
            assert message is not None
            if message.error() is not None:
                ended += 1
                continue
            record = decode(message.headers(), message.value(), lambda origin: None)
            if isinstance(record, Complete | Amendment) and record.windows is not None:
                for window in range(record.windows.first, record.windows.to + 1):
                    if isinstance(record, Complete):
                        found[window].append(record)
                    else:
                        amended.add(window)
        reader.close()
        return {window: each for window, each in found.items() if len(each) == self._stage.buckets}, amended

    def complete(self, pane: int) -> bool:
        return pane in self.answers()[0]

    def reasons(self, pane: int) -> set[Reason]:
        return {reason for each in self.answers()[0][pane] for reason in each.verdict.reasons}

    def missing(self, pane: int) -> set[str]:
        return {source for each in self.answers()[0][pane] for source in each.missing}

    def roster(self) -> RosterInForce:
        (roster,) = rosters_in_force(self._config)
        return roster

    def listed(self) -> set[str]:
        found = rosters_in_force(self._config)
        return set(members_now(found[0])) if found else set()

    def joined(self, source: str) -> int:
        """The first pane in which the source counts."""
        pane = self._node.reduction.pane
        return pane.index(members_now(self.roster())[source].joined - 1) + 1

    def send_until(self, done: Callable[[], bool], *sources: str) -> None:
        """Time goes on while the job decides and reads: no faster than twice as fast as by the clock."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            self.send(*sources)
            next_s = time.monotonic() + PANE_S / 2
            while time.monotonic() < next_s:
                if done():
                    return
                time.sleep(0.1)
        raise AssertionError("it has not come")

    def no_wrong_exact(self) -> int:
        """How many windows say `exact`: each holds exactly the tuples of the sources that its roster lists."""
        roster = Roster.listing({"Main": self.roster().members}, {"Main": 1}).on(self._node.reduction.pane)
        found, amended = self.answers()
        exact = 0
        for window, each in found.items():
            if window in amended or not all(one.verdict.exact for one in each):
                continue
            listed = [source for source in self.sent if roster.belongs(source, ("Main",), window)]
            expected = sum(self.sent[source].get(window, 0) for source in listed)
            assert sum(one.merged for one in each if one.windows.first == one.windows.to) == expected, window
            exact += 1
        return exact


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
            return not excluded(members_now(hosts.roster())["capture-7"])

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
