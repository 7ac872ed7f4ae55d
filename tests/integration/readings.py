"""What stands on topics: partials, merged as a job would merge them, and results as a committed reader sees them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from highlevel.progress.driver import BucketDriver
from highlevel.progress.outputs import ResultRows
from highlevel.progress.records import Arrival, batch_of_wire
from highlevel.rosters.roster import Roster
from highlevel.state import MemoryState
from lowmark.app.config.file import Config, load_config
from lowmark.app.config.queries import plan_queries
from lowmark.wire.kafka.clients import admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.partials import PartialBatch
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.verdicts import Complete, Reason
from lowmark.wire.rows.schema import Schema
from lowmark.wire.rows.text import json_writer
from tests.integration.committed import committed_messages

_WITHIN_S = 60.0


@dataclass(frozen=True)
class Results:
    """What a job would say of all that is on the partials topic by now."""

    packets: Counter[object]  # by srcIP
    reasons: frozenset[Reason]
    sent: int  # tuples in partials
    partial: bool  # some window began before its sources

    @classmethod
    def of(cls, path: Path, query: str | None = None) -> Results:
        """Of the configuration's only query, or of this one."""
        config = load_config(path)
        (plan,) = plan_queries(config, None if query is None else [query])
        stage = plan.stage
        topic = Topic(TopicKind.PARTIALS, stage.fingerprint, config.prefix).name
        packets: Counter[object] = Counter()
        reasons: set[Reason] = set()
        sent, partial = 0, False
        for bucket in range(stage.buckets):
            roster = Roster.of({"Main": config.roster("Main")})
            driver = BucketDriver(stage, (plan,), bucket, MemoryState(), roster, 0)
            for message in records(config, topic, bucket):
                record = decode(message.headers(), message.value(), lambda origin: stage.nodes[0].reduction.schema)
                arrival = Arrival(message.offset(), SourceKind.LIVE, message.timestamp()[1] * 10**6)
                if isinstance(record, PartialBatch):
                    sent += sum(record.tuples.values())
                    driver.take(batch_of_wire(record, stage.nodes[0].reduction.schema), arrival)
                else:
                    assert isinstance(record, Punctuation)
                    driver.take(record, arrival)
            for output in driver.flush().outputs:
                if isinstance(output, ResultRows):
                    for line in json_writer(output.schema).write(output.rows).tobytes().splitlines():
                        row = json.loads(line)
                        packets[row["srcIP"]] += row["packets"]
                elif isinstance(output, Complete):
                    reasons |= output.verdict.reasons
                    partial = partial or output.verdict.partial
        return cls(packets, frozenset(reasons), sent, partial)


def records(config: Config, topic: str, partition: int) -> Iterator[Message]:
    """All that are there by now, and committed."""
    return committed_messages(config.kafka, [(topic, partition)])


def committed(config: Config, topic: Topic, schema: Schema | None = None) -> list[object]:
    """All that a read_committed reader sees, decoded."""
    partitions = admin(config.kafka).list_topics(topic.name, timeout=_WITHIN_S).topics[topic.name].partitions
    return [
        decode(message.headers(), message.value(), lambda origin: schema)
        for message in committed_messages(config.kafka, [(topic.name, partition) for partition in partitions])
    ]
