"""The rosters in force: the sources that jobs list now, as the topic `sources` says."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable

from confluent_kafka import TopicPartition

from lowmark.app.config.file import Config
from lowmark.wire.kafka.clients import admin, consumer, until_end
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.rosters import ListedSource, RosterInForce
from lowmark.wire.rows.values import FOREVER

__all__ = ["awaited", "listed_and_excluded", "listing", "members_now", "rosters_in_force"]

Listed = Callable[[str, str], bool | None]
"""Whether a job lists a source of a stream; None: not known."""


def rosters_in_force(config: Config) -> list[RosterInForce]:
    """By job and stream, what is in force. Empty if no job has begun."""
    topic = Topic(TopicKind.SOURCES, None, config.prefix).name
    if topic not in admin(config.kafka).list_topics(timeout=10).topics:
        return []
    reader = consumer(config.kafka, f"lowmark-rosters-{uuid.uuid4()}", tell_ends=True)
    found: dict[tuple[str, str], RosterInForce] = {}
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        for message in until_end(reader, config.kafka):
            record = decode(message.headers(), message.value())
            if isinstance(record, RosterInForce):
                found[record.job, record.stream] = record
    finally:
        reader.close()
    return [found[key] for key in sorted(found)]


def members_now(roster: RosterInForce) -> dict[str, ListedSource]:
    """The sources that it lists from now on, by name."""
    return {member.source: member for member in roster.members if member.left == FOREVER}


def awaited(
    streams: Collection[str], rosters: Iterable[RosterInForce], ruled: Collection[str], then: Config
) -> set[str] | None:  # fmt: skip
    """The live sources that windows of these streams wait for. `rosters`: those in force of the streams that the job
    has `ruled` until now, as far as they are known; None: one of them is not. `then`: says of other streams which
    sources they have."""
    known = {roster.stream: roster for roster in rosters}
    found: set[str] = set()
    for stream in streams:
        if stream in known:
            found.update(name for name, member in members_now(known[stream]).items() if not member.is_excluded)
        elif stream in ruled:
            return None
        else:
            found.update(then.named_sources(stream))
    return found - then.kinds.keys()


def listed_and_excluded(config: Config) -> tuple[Listed, frozenset[tuple[str, str]]]:
    """Whom jobs list now, and (stream, source) of whom they have excluded."""
    rosters = rosters_in_force(config)
    found = ((roster.stream, members_now(roster)) for roster in rosters)
    out = ((stream, name) for stream, members in found for name, member in members.items() if member.is_excluded)
    return listing(rosters), frozenset(out)


def listing(rosters: Iterable[RosterInForce]) -> Listed:
    """A source is listed if a job lists it; not known if no job has a roster of the stream."""
    found: dict[str, set[str]] = {}
    for roster in rosters:
        found.setdefault(roster.stream, set()).update(members_now(roster))

    def listed(source: str, stream: str) -> bool | None:
        return source in found[stream] if stream in found else None

    return listed
