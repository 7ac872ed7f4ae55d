"""Live sources that a test speaks for: they register, promise and fall silent, and their windows are checked."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from highlevel.rosters.roster import Roster
from lowlevel.node import NodeOutput, NodeProgress
from lowlevel.outbox import Outbox, Rows
from lowlevel.source_registration import SourcesLog
from lowmark.app.config.file import Config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.job.roster import members_now, rosters_in_force
from lowmark.wire.kafka.clients import admin, ensure_topics, producer
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.partials import Origin, PartialBatch
from lowmark.wire.records.punctuations import Ending
from lowmark.wire.records.registration import Registration, SourceKind
from lowmark.wire.records.rosters import RosterInForce
from lowmark.wire.records.verdicts import Amendment, Complete, Reason
from lowmark.wire.rows.words import to_batch
from tests.integration.committed import committed_messages
from tests.integration.jobfeed import FIRST_PANE
from tests.integration.jobprocess import PATIENCE_S

PANE_S = 5
_WITHIN_S = 300.0


class Hosts:
    """Live sources of one query, that send what a test says; their windows are panes."""

    def __init__(self, config: Config, query: str = "q", stream: str = "Main") -> None:
        (self.plan,) = plan_queries(config, [query])
        self._stream = stream
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
        made = Registration(source, self._stream, SourceKind.LIVE, None, 0, "within 50 ms", "host:1")
        origin = Origin(self._stage.fingerprint, source, self._log.append(made, PATIENCE_S), self._node.name)
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
            at_ms = pane * PANE_S * 1000  # a topic ignores it, unless its settings say otherwise
            self._client.produce(topic, wire.value, partition=partition, headers=list(wire.headers), timestamp=at_ms)
        assert self._client.flush(_WITHIN_S) == 0

    def answers(self) -> tuple[dict[int, list[Complete]], set[int]]:
        """By window: its completions in all buckets; and the windows that were amended."""
        topic = Topic(TopicKind.RESULTS, self.plan.name, self._config.prefix).name
        found: dict[int, list[Complete]] = defaultdict(list)
        amended: set[int] = set()
        places = [(topic, bucket) for bucket in range(self._stage.buckets)]
        for message in committed_messages(self._config.kafka, places):
            record = decode(message.headers(), message.value())
            if isinstance(record, Complete | Amendment) and record.windows is not None:
                for window in range(record.windows.first, record.windows.to + 1):
                    if isinstance(record, Complete):
                        found[window].append(record)
                    else:
                        amended.add(window)
        return {window: each for window, each in found.items() if len(each) == self._stage.buckets}, amended

    def complete(self, pane: int) -> bool:
        return pane in self.answers()[0]

    def reasons(self, pane: int) -> set[Reason]:
        return {reason for each in self.answers()[0][pane] for reason in each.verdict.reasons}

    def missing(self, pane: int) -> set[str]:
        return {source for each in self.answers()[0][pane] for source in each.missing}

    def roster(self) -> RosterInForce:
        (roster,) = self._rosters()
        return roster

    def _rosters(self) -> list[RosterInForce]:
        return [roster for roster in rosters_in_force(self._config) if roster.stream == self._stream]

    def listed(self) -> set[str]:
        found = self._rosters()
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
        roster = Roster.listing({self._stream: self.roster().members}, {self._stream: 1}).on(self._node.reduction.pane)
        found, amended = self.answers()
        exact = 0
        for window, each in found.items():
            if window in amended or not all(one.verdict.exact for one in each):
                continue
            listed = [source for source in self.sent if roster.belongs(source, (self._stream,), window)]
            expected = sum(self.sent[source].get(window, 0) for source in listed)
            assert sum(one.merged for one in each if one.windows.first == one.windows.to) == expected, window
            exact += 1
        return exact
