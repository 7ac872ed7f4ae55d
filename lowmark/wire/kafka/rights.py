"""Asks the broker what a connection's user may do, without doing it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from lowmark.wire.kafka.clients import is_passing
from lowmark.wire.kafka.topics import TopicSettings

__all__ = ["TopicRights", "missing_rights", "refused_creations"]

TopicRights = Mapping[str, frozenset[str]]
"""The operations needed on each topic, with Kafka's names: READ, WRITE …"""

_ANSWER_WITHIN_S = 30.0
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
_PAUSE_S = 0.1


def missing_rights(client: AdminClient, topics: TopicRights, groups: Sequence[str] = ()) -> list[str]:
    """What this user may not do with existing topics, and with the offsets of consumer groups; one line each. `groups`:
    what their names begin with.

    The right to a transactional id is not checked: Kafka reveals it only when a transaction begins.
    """
    problems = []
    described = client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=_ANSWER_WITHIN_S
    )
    for topic, wanted in topics.items():
        if problem := _problem(f"topic {topic}", wanted, described[topic]):
            problems.append(problem)
    for group in groups:
        problem = _problem(f"consumer groups {group}…", frozenset({"READ"}), _described(client, f"{group}any"))
        problems += [problem] if problem else []
    return problems


def _described(client: AdminClient, group: str) -> Future[object]:
    """Describe the group; ask again while the broker is still becoming the group's coordinator."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while True:
        answer: Future[object] = client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=_ANSWER_WITHIN_S
        )[group]
        error = answer.exception()
        passing = isinstance(error, KafkaException) and is_passing(error.args[0])
        if not passing or time.monotonic() > deadline:
            return answer
        client.poll(_PAUSE_S)


def _problem(what: str, wanted: frozenset[str], answer: Future[object]) -> str | None:
    try:
        operations = getattr(answer.result(), "authorized_operations", None)
    except KafkaException as error:
        if error.args[0].code() in _REFUSED:  # the user may not even describe this
            return _lacks(what, wanted)
        return f"{what}: {error.args[0].str()}"
    allowed = {operation.name for operation in operations or ()}
    lacking = wanted - allowed
    return _lacks(what, lacking) if lacking else None


def _lacks(what: str, rights: frozenset[str]) -> str:
    return f"{what}: this user may not {' or '.join(sorted(rights))}"


def refused_creations(client: AdminClient, missing: Iterable[TopicSettings]) -> list[str]:
    """Which of these topics this user could not create here, and why; one line each. Nothing is created."""
    topics = [
        NewTopic(wanted.name, wanted.partitions, wanted.replication, config=dict(wanted.config)) for wanted in missing
    ]
    if not topics:
        return []
    problems = []
    answers = client.create_topics(topics, validate_only=True, request_timeout=_ANSWER_WITHIN_S)
    for topic, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            problems.append(f"topic {topic} is missing and cannot be created: {error.args[0].str()}")
    return problems
