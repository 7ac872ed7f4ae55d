"""The topics of lowmark: their names, and the settings with which they are created and checked. Pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from lowmark.wire.records.record import MAX_RECORD_BYTES

__all__ = [
    "MAX_MESSAGE_BYTES", "Provision", "Topic", "TopicKind", "TopicSettings", "parse_topic", "settings_of", "suits",
]  # fmt: skip

ROOT = "lowmark.v1."
"""The name includes the wire version: another version reads and writes other topics."""

MAX_MESSAGE_BYTES = MAX_RECORD_BYTES + 64 * 1024
"""Size limit of a Kafka message: a record, and the framing of its batch."""

_HOUR_MS = 3_600_000
_LEGAL = re.compile(r"[A-Za-z0-9._-]*")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+")
_MAX_NAME = 249


class TopicKind(Enum):
    PARTIALS = "partials"  # one for each stage
    EXCHANGE = "exchange"  # one for each query with exchanges
    RESULTS = "results"  # one for each query
    LATE = "late"  # one for each query
    DEAD = "dead"
    SOURCES = "sources"

    @property
    def has_subject(self) -> bool:
        return self not in (TopicKind.DEAD, TopicKind.SOURCES)


@dataclass(frozen=True, slots=True)
class Topic:
    """`subject`: the fingerprint of a stage or of exchanges, or a query's name. `prefix`: for shared clusters."""

    kind: TopicKind
    subject: str | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.kind.has_subject != (self.subject is not None):
            raise ValueError(f"a topic for {self.kind.value} {'needs' if self.kind.has_subject else 'has no'} subject")
        if self.subject is not None and not _SUBJECT.fullmatch(self.subject):
            raise ValueError(f"{self.subject!r} cannot stand in a topic's name: letters, digits, _ and - can")
        if not _LEGAL.fullmatch(self.prefix) or ROOT in self.prefix:
            raise ValueError(f"{self.prefix!r} cannot begin a topic's name: letters, digits, '.', _ and - can")
        if len(self.name) > _MAX_NAME:
            raise ValueError(f"the topic's name {self.name!r} is longer than Kafka's {_MAX_NAME} characters")

    @property
    def name(self) -> str:
        subject = "" if self.subject is None else f".{self.subject}"
        return f"{self.prefix}{ROOT}{self.kind.value}{subject}"


def parse_topic(name: str) -> Topic | None:
    """The topic with this name; None if it is not one of lowmark's."""
    prefix, root, rest = name.partition(ROOT)
    kind, dot, subject = rest.partition(".")
    try:
        return Topic(TopicKind(kind), subject if dot else None, prefix) if root else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Provision:
    """The settings that an installation gives its topics. On a cluster, use replication 3."""

    replication: int = 1
    retention_ms: int = 24 * _HOUR_MS  # of partials and exchanges: longer than the longest stall plus downtime
    results_retention_ms: int = 7 * 24 * _HOUR_MS  # of results, late rows and dead letters


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings with which a topic is created, and which it must have. `config` is ordered by name."""

    name: str
    partitions: int
    replication: int
    config: tuple[tuple[str, str], ...]


def settings_of(topic: Topic, partitions: int, provision: Provision) -> TopicSettings:
    """`partitions` is the number of buckets; topics that serve a whole installation have one partition."""
    if not topic.kind.has_subject and partitions != 1:
        raise ValueError(f"{topic.name} has one partition, not {partitions}")
    if partitions < 1:
        raise ValueError(f"{topic.name}: {partitions} partitions")
    config = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(max(1, provision.replication - 1)),
        "unclean.leader.election.enable": "false",
    }
    if topic.kind is TopicKind.SOURCES:
        config["cleanup.policy"] = "compact"
    elif topic.kind in (TopicKind.PARTIALS, TopicKind.EXCHANGE):
        config["retention.ms"] = str(provision.retention_ms)
    else:
        config["retention.ms"] = str(provision.results_retention_ms)
    return TopicSettings(topic.name, partitions, provision.replication, tuple(sorted(config.items())))


def suits(name: str, there: str, wanted: str) -> bool:
    """Whether a topic's value is acceptable: sizes, times and replicas may exceed the wanted value."""
    if name == "retention.ms":
        return there == "-1" or int(there) >= int(wanted)
    if name in ("max.message.bytes", "min.insync.replicas"):
        return int(there) >= int(wanted)
    return there == wanted
