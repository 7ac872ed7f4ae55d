"""What Prometheus is shown is what was counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from lowlevel.config import LowLevelConfig
from lowlevel.metrics import LowLevelMetrics, Watched
from lowlevel.node import SourceNodes
from lowlevel.outbox import Outbox
from lowlevel.sender import TopicState
from lowmark.wire.records.partials import Origin
from tests.lowlevel.naive import block
from tests.lowlevel.plans import SECOND
from tests.lowlevel.test_table import ALL_FOLDS, NODES, Packet

TOPICS = [
    TopicState("a", ("q", "p"), records=3, size=700, queued_records=2, queued_bytes=90, restarts=1),
    TopicState("b", ("r",), queued_records=5, failing="gone", failing_s=12.0, age_s=13.0),
]


def test_a_source_its_nodes_and_the_queue_are_shown() -> None:
    nodes = SourceNodes(NODES, stream="Main", config=LowLevelConfig(slots=1), seed=1)
    nodes.start()
    outboxes = {node.name: Outbox(node, Origin("stage", "eth0", 1, node.name), 2) for node in NODES}
    frames = [Packet(0, place, 0, (1, 9 if place == 0 else 80), 1).frame for place in range(5)]
    taken = block([*frames, b"short"], ts=[SECOND] * 6, low=[SECOND] * 6, low_after=SECOND)
    object.__setattr__(taken, "dropped", 8)
    for output in nodes.take(taken):
        list(outboxes[output.node].take(output))
    registry = CollectorRegistry()
    topics = {node.name: "a" for node in NODES}
    watched = [Watched(source, "Main", nodes, outboxes, topics) for source in ("eth0", "eth1")]
    LowLevelMetrics(registry, lambda: TOPICS, lambda: watched, lambda: 4 * SECOND)

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"lowmark_{name}", {"source": "eth0", "stream": "Main"} | labels)

    assert shown("packets_decoded_total") == 5
    assert shown("frames_skipped_total", reason="truncated") == 1
    assert shown("frames_skipped_total", reason="not_ip") == 0
    assert shown("frames_dropped_total") == 8
    assert shown("low_watermark_lag_seconds") == 3
    assert shown("tuples_filtered_total", node=ALL_FOLDS.name) == 1
    assert shown("tuples_late_total", node=ALL_FOLDS.name) == 0
    in_partials = shown("tuples_in_partials_total", node=ALL_FOLDS.name)
    resident = shown("tuples_resident", node=ALL_FOLDS.name)
    assert (in_partials, resident) == (3, 1)
    assert shown("partials_evicted_total", node=ALL_FOLDS.name) == 3
    assert shown("table_slots", node=ALL_FOLDS.name) == shown("table_slots_wanted", node=ALL_FOLDS.name) == 1
    assert shown("table_collisions_ratio", node=ALL_FOLDS.name) == 3 / 4
    assert shown("tuples_given_up_total", node=ALL_FOLDS.name) == 0
    for name, values in {
        "kafka_records_total": (3, 0),
        "kafka_bytes_total": (700, 0),
        "queue_records": (2, 5),
        "producer_restarts_total": (1, 0),
        "topic_failing_seconds": (0, 12),
        "queue_age_seconds": (0, 13),
    }.items():
        assert tuple(registry.get_sample_value(f"lowmark_{name}", {"topic": topic}) for topic in "ab") == values
    node = {"node": ALL_FOLDS.name, "stage": ALL_FOLDS.name.partition("/")[0]}
    assert registry.get_sample_value("lowmark_node_info", node | {"queries": "p,q"}) == 1
    assert registry.get_sample_value("lowmark_topic_info", {"topic": "b", "queries": "r"}) == 1
    (info,) = (family for family in registry.collect() if family.name == "lowmark_node")
    assert len(info.samples) == len(NODES)
