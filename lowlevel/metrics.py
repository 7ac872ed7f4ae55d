"""Metrics of the low level. Each scrape reads the nodes' own counters, so the metrics equal what was counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from lowlevel.node import SourceNodes
from lowlevel.outbox import Outbox
from lowlevel.sender import TopicState
from lowmark.wire.rows.values import FOREVER, INT64_MIN

__all__ = ["LowLevelMetrics", "Watched"]

_SOURCE = ("source", "stream")
_NODE = (*_SOURCE, "node")
_TOPIC = ("topic",)


@dataclass(frozen=True, slots=True)
class Watched:
    """What the metrics show of one source. `outboxes` and `topics` are by node. The label `node` consists of the stage
    and the node's name in it."""

    source: str
    stream: str
    nodes: SourceNodes
    outboxes: Mapping[str, Outbox]
    topics: Mapping[str, str]


class LowLevelMetrics(Collector):
    """The metrics of all sources; `now_ns` is the clock against which low-watermarks are measured."""

    def __init__(
        self,
        registry: CollectorRegistry,
        topics: Callable[[], Iterable[TopicState]],
        watched: Callable[[], Iterable[Watched]],
        now_ns: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._watched = watched
        self._now_ns = now_ns
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield from self._names()
        yield from self._sources()
        yield from self._nodes()
        yield from self._queue()

    def _names(self) -> Iterator[Metric]:
        """One series a stage, node or topic: one label holds the names of all its queries, so that a join matches
        once."""
        of_topic = InfoMetricFamily(
            "lowmark_topic", "Names of the queries that read the topic, separated by commas.",
            labels=("topic", "queries"),
        )  # fmt: skip
        of_node = InfoMetricFamily(
            "lowmark_node", "Names of the queries that read the node's stage, separated by commas.",
            labels=("node", "stage", "queries"),
        )  # fmt: skip
        queries = {state.topic: ",".join(sorted(state.readers)) for state in self._topics()}
        for topic, names in queries.items():
            of_topic.add_metric((topic, names), {})
        for node, topic in sorted({item for at in self._watched() for item in at.topics.items()}):
            of_node.add_metric((node, node.partition("/")[0], queries.get(topic, "")), {})
        yield from (of_topic, of_node)

    def _sources(self) -> Iterator[Metric]:
        skipped = CounterMetricFamily(
            "lowmark_frames_skipped", "Frames that carry no usable IP packet.", labels=(*_SOURCE, "reason")
        )
        decoded = CounterMetricFamily(
            "lowmark_packets_decoded", "IP packets decoded; frames received = skipped + decoded.", labels=_SOURCE
        )
        dropped = CounterMetricFamily(
            "lowmark_frames_dropped", "Frames that the kernel dropped before lowmark received them.", labels=_SOURCE
        )
        lag = GaugeMetricFamily(
            "lowmark_low_watermark_lag_seconds",
            "Seconds by which the low-watermark of the source trails the clock; 0 after the source ended.",
            labels=_SOURCE,
        )  # fmt: skip
        for at in self._watched():
            labels = (at.source, at.stream)
            for reason, count in at.nodes.skipped.items():
                skipped.add_metric((*labels, reason.name.lower()), count)
            decoded.add_metric(labels, at.nodes.decoded)
            dropped.add_metric(labels, at.nodes.dropped)
            low = at.nodes.low_ns
            if low != INT64_MIN:
                lag.add_metric(labels, 0 if low == FOREVER else max(0, self._now_ns() - low) / 1e9)
        yield from (skipped, decoded, dropped, lag)

    def _nodes(self) -> Iterator[Metric]:
        families = {
            name: CounterMetricFamily(f"lowmark_{metric}", text, labels=_NODE)
            for name, (metric, text) in {
                "filtered": ("tuples_filtered", "Tuples that the query's WHERE left out."),
                "late": (
                    "tuples_late",
                    "Late tuples, which are left out of their window: the low-watermark had passed their granule.",
                ),
                "put_out": (
                    "tuples_in_partials",
                    "Tuples in partials that left the node, and tuples that the query selects.",
                ),
                "evicted": (
                    "partials_evicted",
                    "Partials that left the table because of a collision, or because a sum would exceed 64 bits.",
                ),
                "flushed": ("partials_flushed", "Partials that left the table because their pane had ended."),
                "straight": (
                    "partials_straight",
                    "Partials of one tuple that did not wait in the table, and tuples that the query selects.",
                ),
            }.items()
        }
        sent = {
            name: CounterMetricFamily(f"lowmark_{metric}", text, labels=_NODE)
            for name, (metric, text) in {
                "tuples": ("tuples_queued", "Tuples in records for Kafka, late tuples not included."),
                "given_up": (
                    "tuples_given_up",
                    "Tuples given up because the queue to Kafka was full, late tuples not included.",
                ),
                "late_given_up": (
                    "tuples_late_given_up",
                    "Late tuples given up because the queue to Kafka was full; counted if a query wants late tuples.",
                ),
            }.items()
        }
        resident = GaugeMetricFamily(
            "lowmark_tuples_resident", "Number of tuples in the partials of the table.", labels=_NODE
        )
        groups = GaugeMetricFamily("lowmark_groups_resident", "Number of partials in the table.", labels=_NODE)
        tables = {
            "rate": GaugeMetricFamily(
                "lowmark_table_collisions_ratio",
                "Share of the last million tuples for which a partial left the table because of a collision.",
                labels=_NODE,
            ),
            "slots": GaugeMetricFamily("lowmark_table_slots", "Number of slots of the table.", labels=_NODE),
            "wanted": GaugeMetricFamily(
                "lowmark_table_slots_wanted",
                "Number of slots that would make the table faster; the present number if more would not help.",
                labels=_NODE,
            ),
        }  # fmt: skip
        for at in self._watched():
            for node, pressure in at.nodes.pressures().items():
                crowded = pressure.crowded()
                labels = (at.source, at.stream, node)
                tables["rate"].add_metric(labels, pressure.rate)
                tables["slots"].add_metric(labels, pressure.slots)
                tables["wanted"].add_metric(labels, crowded.wanted if crowded else pressure.slots)
            for node, counts in at.nodes.counts().items():
                labels = (at.source, at.stream, node)
                for name, family in families.items():
                    family.add_metric(labels, getattr(counts, name))
                resident.add_metric(labels, counts.resident)
                groups.add_metric(labels, counts.groups)
            for node, outbox in at.outboxes.items():
                counters = outbox.counters
                for name, family in sent.items():
                    family.add_metric((at.source, at.stream, node), counters[name])
        yield from (*families.values(), *sent.values(), *tables.values(), resident, groups)

    def _queue(self) -> Iterator[Metric]:
        counters = {
            name: CounterMetricFamily(f"lowmark_{metric}", text, labels=_TOPIC)
            for name, (metric, text) in {
                "records": ("kafka_records", "Records that Kafka acknowledged."),
                "size": ("kafka_bytes", "Bytes of record values that Kafka acknowledged, headers not included."),
                "restarts": ("producer_restarts", "Kafka producers that were replaced because they had failed."),
            }.items()
        }
        gauges = {
            name: GaugeMetricFamily(f"lowmark_{metric}", text, labels=_TOPIC)
            for name, (metric, text) in {
                "queued_records": ("queue_records", "Records that wait for Kafka."),
                "queued_bytes": (
                    "queue_bytes",
                    "Bytes of the records that wait for Kafka: values, headers, and 512 bytes of overhead each.",
                ),
                "spilled_bytes": ("queue_disk_bytes", "Bytes of lowmark_queue_bytes that wait on disk."),
            }.items()
        }
        failing = GaugeMetricFamily(
            "lowmark_topic_failing_seconds",
            "Seconds for which Kafka has taken no records of the topic, or of one of its partitions; 0 while it takes "
            "them.",
            labels=_TOPIC,
        )
        age = GaugeMetricFamily(
            "lowmark_queue_age_seconds",
            "Seconds for which the oldest record has waited for Kafka, in memory or on disk; 0 while none waits.",
            labels=_TOPIC,
        )  # fmt: skip
        for state in self._topics():
            for name, family in (counters | gauges).items():
                family.add_metric((state.topic,), getattr(state, name))
            failing.add_metric((state.topic,), state.failing_s)
            age.add_metric((state.topic,), state.age_s)
        yield from (*counters.values(), *gauges.values(), failing, age)
