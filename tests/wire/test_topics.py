from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.kafka.topics import MAX_MESSAGE_BYTES, Provision, Topic, TopicKind, parse_topic, settings_of, suits

SUBJECTS = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)
PREFIXES = st.from_regex(r"([A-Za-z0-9_-]{0,20}[.-])?", fullmatch=True)


@given(st.sampled_from(TopicKind), SUBJECTS, PREFIXES)
def test_names_are_read_back(kind: TopicKind, subject: str, prefix: str) -> None:
    topic = Topic(kind, subject if kind.has_subject else None, prefix)
    assert parse_topic(topic.name) == topic


@given(st.text() | st.text().map(lambda text: "lowmark.v1." + text))
def test_any_other_name_is_nobodys(name: str) -> None:
    topic = parse_topic(name)
    assert topic is None or topic.name == name


def test_names() -> None:
    assert Topic(TopicKind.PARTIALS, "9f3a5c").name == "lowmark.v1.partials.9f3a5c"
    assert Topic(TopicKind.RESULTS, "q8_1", "acme.").name == "acme.lowmark.v1.results.q8_1"
    assert Topic(TopicKind.SOURCES).name == "lowmark.v1.sources"
    assert parse_topic("lowmark.v2.partials.x") is None
    assert parse_topic("lowmark.v1.partials") is None
    assert parse_topic("lowmark.v1.dead.x") is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((TopicKind.DEAD, "x"), "has no subject"), ((TopicKind.LATE,), "needs subject"),
     ((TopicKind.LATE, "a.b"), "cannot stand"), ((TopicKind.LATE, ""), "cannot stand"),
     ((TopicKind.DEAD, None, "a b"), "cannot begin"), ((TopicKind.DEAD, None, "lowmark.v1."), "cannot begin"),
     ((TopicKind.LATE, "x" * 240), "longer than Kafka's 249")],
)  # fmt: skip
def test_names_that_kafka_or_we_could_not_read(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Topic(*arguments)


def test_settings() -> None:
    partials = settings_of(Topic(TopicKind.PARTIALS, "s"), 8, Provision(replication=3, retention_ms=5))
    assert (partials.name, partials.partitions, partials.replication) == ("lowmark.v1.partials.s", 8, 3)
    assert dict(partials.config) == {
        "cleanup.policy": "delete",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
        "retention.ms": "5",
        "unclean.leader.election.enable": "false",
    }
    sources = dict(settings_of(Topic(TopicKind.SOURCES), 1, Provision()).config)
    assert sources["cleanup.policy"] == "compact"
    assert sources["min.insync.replicas"] == "1"
    assert "retention.ms" not in sources
    with pytest.raises(ValueError, match="has one partition, not 2"):
        settings_of(Topic(TopicKind.DEAD), 2, Provision())
    with pytest.raises(ValueError, match="0 partitions"):
        settings_of(Topic(TopicKind.LATE, "q"), 0, Provision())


def test_more_than_is_wanted_will_do() -> None:
    assert suits("retention.ms", "-1", "1000")
    assert suits("retention.ms", "1001", "1000")
    assert not suits("retention.ms", "999", "1000")
    assert not suits("max.message.bytes", "1048588", str(MAX_MESSAGE_BYTES))
    assert not suits("cleanup.policy", "compact,delete", "compact")
