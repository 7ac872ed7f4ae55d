"""Metrics of the low level, read from its own counters on request, so they equal what was counted."""

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
    """A source's part in the metrics. `outboxes` and `topics` are by node. The label `node` consists of the stage and
    the node's name in it."""

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
        """One series of each: all names of what several queries read are in one label, so that a join finds it once."""
        of_topic = InfoMetricFamily(
            "lowmark_topic", "The queries that read what is sent to a topic, by name, with commas between.",
            labels=("topic", "queries"),
        )  # fmt: skip
        of_node = InfoMetricFamily(
            "lowmark_node", "The queries that read a node's stage, by name, with commas between.",
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
            "lowmark_packets_decoded", "Packets; received = skipped + decoded.", labels=_SOURCE
        )
        dropped = CounterMetricFamily(
            "lowmark_frames_dropped", "Frames that the kernel dropped before they could be received.", labels=_SOURCE
        )
        lag = GaugeMetricFamily(
            "lowmark_low_watermark_lag_seconds", "How far a source's low-watermark is behind the clock; 0 when ended.",
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
                "late": ("tuples_late", "Tuples whose granule had ended at the low-watermark: counted and left out."),
                "put_out": ("tuples_in_partials", "Tuples in partials that left the table (or were selected)."),
                "evicted": (
                    "partials_evicted",
                    "Partials that left the table because of a collision, or before a sum left 64 bits.",
                ),
                "flushed": ("partials_flushed", "Partials that left the table because their pane had ended."),
                "straight": ("partials_straight", "Partials that never were in the table, and selected tuples."),
            }.items()
        }
        sent = {
            name: CounterMetricFamily(f"lowmark_{metric}", text, labels=_NODE)
            for name, (metric, text) in {
                "tuples": ("tuples_queued", "Tuples in records that got a sequence number."),
                "given_up": ("tuples_given_up", "Tuples given up because the queue to Kafka was full."),
                "late_given_up": (
                    "tuples_late_given_up",
                    "Late tuples that were to be sent and for the same reason were not.",
                ),
            }.items()
        }
        resident = GaugeMetricFamily("lowmark_tuples_resident", "Tuples in partials in the table.", labels=_NODE)
        groups = GaugeMetricFamily("lowmark_groups_resident", "Partials in the table.", labels=_NODE)
        tables = {
            "rate": GaugeMetricFamily(
                "lowmark_table_collisions_per_tuple",
                "Partials that left the table because of a collision, a tuple: of the last million of tuples.",
                labels=_NODE,
            ),
            "slots": GaugeMetricFamily("lowmark_table_slots", "Slots of the table.", labels=_NODE),
            "wanted": GaugeMetricFamily(
                "lowmark_table_slots_wanted", "Slots with which the table would be faster; its own if none would be.",
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
                "size": ("kafka_bytes", "Bytes of the values of records that Kafka acknowledged."),
                "restarts": ("producer_restarts", "Producers that were replaced because they had failed."),
            }.items()
        }
        gauges = {
            name: GaugeMetricFamily(f"lowmark_{metric}", text, labels=_TOPIC)
            for name, (metric, text) in {
                "queued_records": ("queue_records", "Records that wait for Kafka."),
                "queued_bytes": (
                    "queue_bytes",
                    "Bytes that records take that wait for Kafka: values, headers, and half a KiB each for the queue.",
                ),
                "spilled_bytes": ("queue_disk_bytes", "Bytes of lowmark_queue_bytes that wait on disk."),
            }.items()
        }
        failing = GaugeMetricFamily(
            "lowmark_topic_failing_seconds",
            "For how long Kafka has taken no records of the topic, or of one of its partitions; 0: it takes them.",
            labels=_TOPIC,
        )
        for state in self._topics():
            for name, family in (counters | gauges).items():
                family.add_metric((state.topic,), getattr(state, name))
            failing.add_metric((state.topic,), state.failing_s)
        yield from (*counters.values(), *gauges.values(), failing)
