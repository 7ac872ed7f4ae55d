"""Topics of queries and stages that a configuration no longer has, and who still uses them.

Sources can be asked whether they live; jobs of other configurations cannot. So a topic counts as used for ten minutes
after its last record, whoever wrote it: most jobs write about their windows more often than that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from lowmark.app.config.file import Config
from lowmark.app.kafka.source_registry import sources_sending
from lowmark.wire.kafka.clients import last_written_ms
from lowmark.wire.kafka.topics import Topic, TopicKind, TopicSettings, parse_topic

__all__ = ["Orphan", "orphaned", "orphans"]

_USED_FOR_MS = 600_000


@dataclass(frozen=True, slots=True)
class Orphan:
    """A topic that no query of the configuration needs. `used`: who uses it nevertheless; None: nobody is known to."""

    name: str
    partitions: int
    used: str | None


def orphaned(names: Iterable[str], prefix: str, wanted: Iterable[TopicSettings]) -> list[Topic]:
    """The topics of this installation, by prefix and name, that are not wanted."""
    needed = {settings.name for settings in wanted}
    parsed = (parse_topic(name) for name in sorted(names) if name not in needed)
    return [topic for topic in parsed if topic is not None and topic.prefix == prefix and topic.kind.has_subject]


def orphans(config: Config, client: AdminClient, wanted: Sequence[TopicSettings], now_ms: int) -> list[Orphan]:
    """The present orphans. Sources are asked whether they live, which takes up to 5 s."""
    there = {name: len(of.partitions) for name, of in client.list_topics(timeout=10).topics.items()}
    found = orphaned(there, config.prefix, wanted)
    written = last_written_ms(client, {topic.name: there[topic.name] for topic in found})
    partials = [topic.name for topic in found if topic.kind is TopicKind.PARTIALS]
    process = f"{os.uname().nodename}:{os.getpid()}"
    senders = sources_sending(config.kafka, config.prefix, partials, process) if partials else {}
    return [
        Orphan(topic.name, there[topic.name], _used(topic.name, senders, written[topic.name], now_ms))
        for topic in found
    ]


def _used(name: str, senders: Mapping[str, str], written_ms: int | None, now_ms: int) -> str | None:
    if name in senders:
        return senders[name]
    if written_ms is not None and now_ms - written_ms < _USED_FOR_MS:
        ago_s, rest_s = (now_ms - written_ms) // 1000, (_USED_FOR_MS - now_ms + written_ms) // 1000
        return f"it was written to {max(0, ago_s)} s ago; without another record it can be deleted in {rest_s} s"
    return None
