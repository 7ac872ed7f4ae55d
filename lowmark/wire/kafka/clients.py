"""Kafka clients made from one configuration, with errors for people; creates topics and checks their settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType, TopicMetadata

from lowmark.wire.kafka.repeated_messages import Seldom, Unheard
from lowmark.wire.kafka.settings import (
    TRANSACTION_TIMEOUT_MS,
    KafkaSettings,
    KafkaSettingsError,
    Options,
    SaslMechanism,
    Secret,
    SecurityProtocol,
    consumer_options,
    producer_options,
    spark_options,
    transactional_options,
)
from lowmark.wire.kafka.topics import TopicSettings, suits

__all__ = [
    "FENCED", "KafkaProblem", "KafkaRefused", "KafkaSettings", "KafkaSettingsError", "KafkaUnavailable",
    "SaslMechanism", "Secret", "SecurityProtocol", "TopicProblem", "admin", "consumer", "delete_topics",
    "ensure_topics", "gapless_producer", "is_passing", "last_written_ms", "log_problem", "producer", "spark_options",
    "topic_ids", "transactional_producer", "translate", "unasked_admin", "until_end", "verify_topics", "watermarks",
]  # fmt: skip

_LOG = logging.getLogger("lowmark.kafka")
_LOG.addFilter(Seldom())
_LOG.addFilter(Unheard())

_PAUSE_S = 0.02
_MISSING_AFTER_MS = 5000  # after this, a topic that brokers do not know is reported as missing, not as too new
_ANSWER_WITHIN_S = 10.0
_NEXT_RECORD_WITHIN_S = 30.0
_FIRST_ANSWER_WITHIN_S = 6.0  # a command that gets no answer says so within ten seconds, including its own start

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Errors of a producer after another process has taken over its transactional id."""

_UNAVAILABLE = {
    KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NETWORK_EXCEPTION,
}  # fmt: skip
_AWAY = _UNAVAILABLE | {KafkaError.NOT_CONTROLLER}
_NO_FAMILY = "Address family for hostname not supported"
_REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}

_UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}

_NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
    *_UNKNOWN,
}  # fmt: skip


class KafkaProblem(Exception):
    """Kafka's error, where it occurred, and what may help. `fatal`: the client that reported it is unusable."""

    def __init__(self, message: str, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class KafkaUnavailable(KafkaProblem):
    """No broker answers, or not now: trying again may help."""


class KafkaRefused(KafkaProblem):
    """A broker answers and refuses: credentials, certificates or rights are wrong."""


_PASSING = {
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._WAIT_COORD,
}  # fmt: skip


def is_passing(error: KafkaError) -> bool:
    """Whether the same call may succeed a moment later. For example, a group's coordinator is chosen at the first
    request, and moves when its broker stops."""
    return error.retriable() or error.code() in _PASSING


def translate(error: KafkaError, settings: KafkaSettings | None = None) -> KafkaProblem:
    """Translate librdkafka's error to one of ours. `settings`: those of the client that reported it, if known."""
    where = "Kafka" if settings is None else f"Kafka at {settings.bootstrap} ({settings.security.value})"
    return _problem(error, where)


_LACKING = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "This user lacks a right to a topic: `lowmark check` names both.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "This user lacks a right to a consumer group: the job READ on "
    "those that begin with lowmark.v1.job.NAME. or lowmark.v1.query., everybody DESCRIBE on those that begin with "
    "lowmark-.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "This user may not WRITE with the job's transactional ids, "
    "which begin with lowmark.v1.job.NAME. or lowmark.v1.query.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "This user lacks a right to the cluster, mostly CREATE of topics.",
}


def _problem(error: KafkaError, where: str) -> KafkaProblem:
    said = f"{where}: {error.str()}"
    if error.code() in _LACKING:
        return KafkaRefused(f"{said}. {_LACKING[error.code()]}", error.fatal())
    if _NO_FAMILY in said:
        return KafkaUnavailable(
            f"{said}. This host has IPv6 addresses, and no IPv4 address beside loopback: Kafka's client then finds no "
            "IPv4 address. Use [::1] in place of 127.0.0.1, or give an interface an IPv4 address",
            error.fatal(),
        )
    if error.code() in _UNAVAILABLE:
        hint = "Is the address right, the broker up, and does its listener speak this protocol?"
        return KafkaUnavailable(f"{said}. {hint}", error.fatal())
    if error.code() in _REFUSED:
        return KafkaRefused(f"{said}. Check user, password, certificates and the rights of this user.", error.fatal())
    if error.code() in _UNKNOWN:
        return KafkaProblem(
            f"{said}. Was the topic deleted? `lowmark topics` lists those that are wanted", error.fatal()
        )
    return KafkaProblem(said, error.fatal())


OnProblem = Callable[[KafkaProblem], None]


def log_problem(problem: KafkaProblem) -> None:
    """Log a problem, but not an absent broker: clients report that many times a second. Code that must know asks Kafka
    (`lowmark.app.kafka.reachability`)."""
    if not isinstance(problem, KafkaUnavailable) or problem.fatal:
        _LOG.warning("%s", problem)


def _reporting(options: Options, settings: KafkaSettings, on_problem: OnProblem) -> dict[str, object]:
    return {**options, "error_cb": lambda error: on_problem(translate(error, settings))}


def producer(settings: KafkaSettings, linger_ms: int = 5, on_problem: OnProblem = log_problem) -> Producer:
    """An idempotent producer. It connects in the background; its `poll` calls `on_problem`."""
    return _made(Producer, producer_options(settings, linger_ms), settings, on_problem)


def gapless_producer(settings: KafkaSettings, linger_ms: int = 5, on_problem: OnProblem = log_problem) -> Producer:
    """Like `producer`, but a message that cannot be delivered is fatal: no later message arrives without it. For
    messages that are already compressed."""
    options = producer_options(settings, linger_ms) | {
        "enable.gapless.guarantee": True,
        "compression.type": "none",
        "topic.metadata.propagation.max.ms": _MISSING_AFTER_MS,
    }
    return _made(Producer, options, settings, on_problem)


def transactional_producer(
    settings: KafkaSettings, transactional_id: str, linger_ms: int = 0, on_problem: OnProblem = log_problem,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
) -> Producer:  # fmt: skip
    """A producer of transactions. The caller calls `init_transactions`, which fences the predecessor."""
    options = transactional_options(settings, transactional_id, linger_ms, timeout_ms)
    return _made(Producer, options | {"topic.metadata.propagation.max.ms": _MISSING_AFTER_MS}, settings, on_problem)


def consumer(
    settings: KafkaSettings, group: str, reset: str = "earliest", on_problem: OnProblem = log_problem,
    tell_ends: bool = False, stable: bool = True,
) -> Consumer:  # fmt: skip
    """A read_committed consumer that commits only on request. With `tell_ends` it reports at once when a partition has
    no more records for now (_PARTITION_EOF); by default brokers hold an empty answer for half a second. Without
    `stable` it reads a group's offsets without waiting for open transactions, and so without their offsets."""
    ends: dict[str, str | int | bool] = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    options = consumer_options(settings, group, reset) | (ends if tell_ends else {})
    if not stable:
        options["isolation.level"] = "read_uncommitted"
    return _made(Consumer, options, settings, on_problem)


def until_end(reader: Consumer, settings: KafkaSettings) -> Iterator[Message]:
    """The records up to the end of the one partition that is assigned. The reader tells ends."""
    while True:
        message = reader.poll(_NEXT_RECORD_WITHIN_S)
        error = KafkaError(KafkaError._TIMED_OUT) if message is None else message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise translate(error, settings)


def watermarks(reader: Consumer, place: TopicPartition, settings: KafkaSettings) -> tuple[int, int]:
    """The first offset of a partition, and the offset after its last record. Asks again while the partition moves or is
    new: brokers learn of a new one at different times."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while True:
        try:
            low, high = reader.get_watermark_offsets(place, timeout=_ANSWER_WITHIN_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise translate(error.args[0], settings) from None
            time.sleep(_PAUSE_S)
        else:
            return low, high


C = TypeVar("C")
T = TypeVar("T")


def _made(client: Callable[..., C], options: Options, settings: KafkaSettings, on_problem: OnProblem) -> C:
    try:
        return client(_reporting(options, settings, on_problem), logger=_LOG)
    except KafkaException as error:  # usually a file that is not a certificate
        raise KafkaSettingsError(f"Kafka's client does not accept the settings: {error.args[0].str()}") from None


def unasked_admin(settings: KafkaSettings, on_problem: OnProblem) -> AdminClient:
    """A client for topics and the cluster. It connects in the background; its `poll` calls `on_problem`. Asking for a
    topic does not create it."""
    return _made(AdminClient, settings.librdkafka() | {"allow.auto.create.topics": False}, settings, on_problem)


def admin(
    settings: KafkaSettings, timeout_s: float = _FIRST_ANSWER_WITHIN_S, waiting: OnProblem | None = None
) -> AdminClient:  # fmt: skip
    """A client for topics that a broker has answered; raises KafkaUnavailable or KafkaRefused after `timeout_s`. With
    `waiting` it tries until a broker answers, passes the reason to `waiting` every few seconds, and raises only
    KafkaRefused."""
    problems: list[KafkaProblem] = []
    client = unasked_admin(settings, problems.append)
    until, step_s = time.monotonic() + timeout_s, 1.0  # short at first: signals are handled after each step
    while True:
        try:
            client.list_topics(timeout=step_s if waiting else min(step_s, max(0.1, until - time.monotonic())))
        except KafkaException as error:
            client.poll(0)  # collects problems that occurred during the wait
            refused = [problem for problem in problems if isinstance(problem, KafkaRefused)]
            problem = (refused or problems or [translate(error.args[0], settings)])[0]
        else:
            return client
        if refused or not isinstance(problem, KafkaUnavailable) or (waiting is None and time.monotonic() >= until):
            raise problem
        if waiting is not None:
            waiting(problem)
        del problems[1:]  # otherwise it grows while no broker answers
        step_s = min(2 * step_s, 5.0)


@dataclass(frozen=True, slots=True)
class TopicProblem:
    topic: str
    what: str
    there: str
    wanted: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.what} is {self.there}, wanted is {self.wanted}"


def ensure_topics(client: AdminClient, wanted: Sequence[TopicSettings], timeout_s: float = 30.0) -> list[TopicProblem]:
    """Create missing topics, and check existing ones without changing them; returns the remaining problems. Each
    question may reach another broker, and some are away or behind: what may pass is tried again until `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    present = _topics(client, deadline)
    missing = [settings for settings in wanted if settings.name not in present]
    problems = _create(client, missing, deadline)
    failed = {problem.topic for problem in problems}
    rest = [settings for settings in wanted if settings.name not in failed]
    topics = _visible(client, {settings.name for settings in rest}, present.keys(), deadline)
    return problems + _differing(client, rest, topics, deadline)


def _asked(question: Callable[[float], T], about: str, deadline: float) -> T:
    """The answer to a question, which is asked again until the deadline while a broker is away or has not heard of a
    topic. The question gets the time of one try: the client repeats no request whose answer is lost."""
    while True:
        try:
            return question(max(1.0, min(_ANSWER_WITHIN_S, deadline - time.monotonic())))
        except KafkaException as error:
            if error.args[0].code() not in _AWAY | _NOT_YET or time.monotonic() > deadline:
                raise _problem(error.args[0], f"Kafka, asked for {about}") from None
            time.sleep(_PAUSE_S)


def _topics(client: AdminClient, deadline: float) -> dict[str, TopicMetadata]:
    topics: dict[str, TopicMetadata] = _asked(
        lambda try_s: client.list_topics(timeout=try_s), "its topics", deadline
    ).topics
    return topics


def _visible(client: AdminClient, names: set[str], former: Set[str], deadline: float) -> dict[str, TopicMetadata]:
    """All topics, as a broker knows them that has heard of those with these names, and of leaders of the new ones."""
    while True:
        topics = _topics(client, deadline)
        heard = all(name in topics and (name in former or _has_leaders(topics[name])) for name in names)
        if heard or time.monotonic() > deadline:
            return topics
        client.poll(_PAUSE_S)


def _has_leaders(topic: TopicMetadata) -> bool:
    return topic.error is None and all(partition.leader >= 0 for partition in topic.partitions.values())


def topic_ids(client: AdminClient, names: Sequence[str], timeout_s: float = 30.0) -> dict[str, str]:
    """The ids of existing topics. A topic that is deleted and created again gets another id. A topic is missing if
    brokers have said so for some seconds: one of them may not have heard of it."""
    found: dict[str, str] = {}
    start = time.monotonic()
    while missing := [name for name in names if name not in found]:
        found |= _asked(partial(_ids, client, missing), "its topics", start + timeout_s)
        if time.monotonic() > start + _MISSING_AFTER_MS / 1000:
            break
        time.sleep(_PAUSE_S)
    return found


def _ids(client: AdminClient, names: Sequence[str], try_s: float) -> dict[str, str]:
    found = {}
    for name, answer in client.describe_topics(TopicCollection(list(names)), request_timeout=try_s).items():
        try:
            found[name] = str(answer.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:
                raise
    return found


def _create(client: AdminClient, missing: Sequence[TopicSettings], deadline: float) -> list[TopicProblem]:
    waiting = {
        wanted.name: NewTopic(wanted.name, wanted.partitions, wanted.replication, config=dict(wanted.config))
        for wanted in missing
    }
    too_few = time.monotonic() + _MISSING_AFTER_MS / 1000
    problems = []
    while waiting:
        try_s = max(1.0, min(_ANSWER_WITHIN_S, deadline - time.monotonic()))
        answers = client.create_topics([*waiting.values()], operation_timeout=try_s, request_timeout=try_s)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                code = error.args[0].code()
                # Brokers that have just started do not count as places for replicas until the controller knows them.
                until = deadline if code in _AWAY else too_few if code == KafkaError.INVALID_REPLICATION_FACTOR else 0
                if time.monotonic() < until:
                    continue
                # If another process has just created it, it is checked like any existing topic.
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    there = f"refused ({error.args[0].str()})"
                    problems.append(TopicProblem(name, "its creation", there, "a new topic"))
            del waiting[name]
        if waiting:
            time.sleep(_PAUSE_S)
    return problems


def delete_topics(client: AdminClient, names: Sequence[str], timeout_s: float = 30.0) -> dict[str, str]:
    """Delete topics with all their records. Returns the topics that could not be deleted, and why."""
    answers = client.delete_topics(list(names), operation_timeout=timeout_s, request_timeout=timeout_s)
    refused = {}
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:  # another process has just deleted it
                refused[name] = error.args[0].str()
    return refused


def last_written_ms(
    client: AdminClient, partitions: Mapping[str, int], timeout_s: float = 30.0
) -> dict[str, int | None]:
    """By topic, the time of its newest record by the broker's clock; None if it holds no record. Asks again while a
    partition moves or is new."""
    written: dict[str, int | None] = dict.fromkeys(partitions)
    parts = [TopicPartition(name, part) for name, count in partitions.items() for part in range(count)]
    deadline = time.monotonic() + timeout_s
    while parts:
        answers = client.list_offsets(dict.fromkeys(parts, OffsetSpec.max_timestamp()), request_timeout=timeout_s)
        parts = []
        for part, answer in answers.items():
            try:
                at_ms = answer.result().timestamp
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                    raise _problem(error.args[0], f"Kafka, asked when topic {part.topic} was written to") from None
                parts.append(part)
                time.sleep(_PAUSE_S)
            else:
                if at_ms >= 0:
                    written[part.topic] = max(at_ms, written[part.topic] or 0)
    return written


def verify_topics(client: AdminClient, wanted: Sequence[TopicSettings], timeout_s: float = 30.0) -> list[TopicProblem]:
    """The differences between existing topics and the wanted settings."""
    deadline = time.monotonic() + timeout_s
    return _differing(client, wanted, _topics(client, deadline), deadline)


def _differing(
    client: AdminClient, wanted: Sequence[TopicSettings], topics: Mapping[str, TopicMetadata], deadline: float
) -> list[TopicProblem]:  # fmt: skip
    there = [settings.name for settings in wanted if settings.name in topics and topics[settings.name].error is None]
    configs = _asked(partial(_configs, client, there), "the settings of its topics", deadline)
    problems: list[TopicProblem] = []
    for settings in wanted:
        topic = topics.get(settings.name)
        if topic is None:
            size = "1 partition" if settings.partitions == 1 else f"{settings.partitions} partitions"
            problems.append(TopicProblem(settings.name, "the topic", "missing", size))
        elif topic.error is not None:
            problems.append(TopicProblem(settings.name, "the topic", topic.error.str(), "a readable topic"))
        else:
            problems += _differences(settings, topic, configs[settings.name])
    return problems


def _configs(client: AdminClient, names: Sequence[str], try_s: float) -> dict[str, dict[str, str]]:
    """The settings of each topic, by topic."""
    if not names:
        return {}
    found = {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    for resource, answer in client.describe_configs(resources, request_timeout=try_s).items():
        try:
            found[resource.name] = {entry.name: str(entry.value) for entry in answer.result().values()}
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaRefused(f"topic {resource.name}: this user may not DESCRIBE_CONFIGS") from None
            raise
    return found


def _differences(settings: TopicSettings, topic: TopicMetadata, config: dict[str, str]) -> list[TopicProblem]:
    found = []
    if len(topic.partitions) != settings.partitions:
        found.append(("the number of partitions", str(len(topic.partitions)), str(settings.partitions)))
    replicas = min((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    if replicas < settings.replication:
        found.append(("the number of replicas", str(replicas), str(settings.replication)))
    for name, value in settings.config:
        there = config.get(name)
        if there is None or not suits(name, there, value):
            found.append((name, there or "not known to the broker", value))
    return [TopicProblem(settings.name, *difference) for difference in found]
