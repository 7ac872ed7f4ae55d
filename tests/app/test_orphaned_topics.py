"""Which topics a configuration could ever delete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowmark.app.kafka.orphaned_topics import orphaned
from lowmark.wire.kafka.topics import Provision, Topic, TopicKind, settings_of

PREFIXES = st.sampled_from(["", "a-", "b-", "lowmark.", "a-b-"])
KINDS = st.sampled_from([kind for kind in TopicKind if kind.has_subject])
OURS = st.builds(Topic, KINDS, st.sampled_from(["q", "r", "0f"]), PREFIXES)
WHOLE = st.builds(Topic, st.sampled_from([TopicKind.DEAD, TopicKind.SOURCES]), st.none(), PREFIXES)
OTHERS = st.text("alowmrk.v12-results_q", max_size=30)


@given(prefix=PREFIXES, there=st.sets(OURS | WHOLE), wanted=st.sets(OURS | WHOLE), others=st.sets(OTHERS))
def test_only_what_is_this_installation_s_and_not_wanted(
    prefix: str, there: set[Topic], wanted: set[Topic], others: set[str]
) -> None:
    settings = [settings_of(topic, 1, Provision()) for topic in wanted]
    found = orphaned([topic.name for topic in there] + sorted(others), prefix, settings)
    expected = {topic for topic in there - wanted if topic.prefix == prefix and topic.kind.has_subject}
    assert expected <= set(found)
    for topic in set(found) - expected:  # a random name can be one of lowmark's
        assert topic.name in others
        assert topic.name.startswith(f"{prefix}lowmark.v1.")
        assert topic not in wanted
