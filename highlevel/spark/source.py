"""The job's input: the records of its stages' partials topics and of its exchanges, each with its bucket's key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from highlevel.spark.job_spec import JobSpec
from lowmark.wire.kafka.settings import KafkaSettings, spark_options

__all__ = ["KEY", "SourceSettings", "of_exchanges", "of_partials", "partials"]

KEY = "key"
"""The column that Spark groups by: the placement number of a record's stage and bucket, an int."""


_EARLIEST = -2
"""As Spark's reader calls it."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    kafka: KafkaSettings
    max_offsets: int  # records of partials in a micro-batch, over all topics; as many of exchanges
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By topic that a new checkpoint does not read from its beginning: the first offset of each partition."""


def partials(spark: SparkSession, spec: JobSpec, settings: SourceSettings) -> DataFrame:
    """Columns KEY, topic, partition, offset, appended_us (the broker's time of append, us since 1970), headers, value.

    Partition = bucket. A bucket's records come unordered within a micro-batch. Exchanges have a reader of their own:
    a reader gives each topic a share in proportion to its backlog, so beside a backlog of partials an exchange would
    wait until that is read. A job without exchanges has the reader, too, because Spark fixes the number of readers in
    a checkpoint; such a reader has no topic.
    """
    return _read(spark, settings, of_partials(spec)).union(_read(spark, settings, of_exchanges(spec)))


def of_partials(spec: JobSpec) -> dict[str, list[int]]:
    """By topic: the key of each partition, in order. Buckets of stages that have left are read, too: they drop their
    state with the next record."""
    buckets = {stage.fingerprint: stage.buckets for stage in spec.stages().values()} | dict(spec.leaving)
    return {
        spec.partials_topic(stage): [spec.placements[stage, bucket] for bucket in range(count)]
        for stage, count in buckets.items()
    }


def of_exchanges(spec: JobSpec) -> dict[str, list[int]]:
    """An exchange connects the buckets of its query's stage."""
    return {
        spec.exchange_topic(name): [
            spec.placements[plan.stage.fingerprint, bucket] for bucket in range(plan.stage.buckets)
        ]
        for name, plan in spec.exchanges().items()
    }


def _read(spark: SparkSession, settings: SourceSettings, keys: Mapping[str, Sequence[int]]) -> DataFrame:
    numbers = [f.lit(part) for topic, of in (keys or {"": [0]}).items() for part in (topic, of)]
    options = spark_options(settings.kafka) | {
        # A pattern would have the names of all topics of the cluster listed at every look for new records.
        **({"subscribe": ",".join(keys)} if keys else {"assign": "{}"}),
        "includeHeaders": "true",
        "startingOffsets": _starting_offsets(keys, settings.starts),
        "failOnDataLoss": "false",  # sequence numbers detect the loss, and the affected windows report it
        "maxOffsetsPerTrigger": str(settings.max_offsets),
        "kafka.fetch.max.wait.ms": "10",  # at Kafka's 500 every task on fresh data waits half a second
    }
    records = spark.readStream.format("kafka").options(**options).load()
    key = f.element_at(f.element_at(f.create_map(*numbers), f.col("topic")), f.col("partition") + 1)
    appended_us = f.unix_micros("timestamp").alias("appended_us")
    read = records.select(key.alias(KEY), "topic", "partition", "offset", appended_us, "headers", "value")
    # A batch that is run again may hold records of topics that nobody reads any more.
    return read.where(f.col(KEY).isNotNull())


def _starting_offsets(keys: Mapping[str, Sequence[int]], starts: Mapping[str, Sequence[int]]) -> str:
    """Where a reader begins that has no checkpoint yet; a topic that is added later is read from its beginning."""
    if not any(topic in starts for topic in keys):
        return "earliest"
    found = {topic: starts.get(topic, [_EARLIEST] * len(of)) for topic, of in keys.items()}
    return json.dumps({topic: {str(bucket): offset for bucket, offset in enumerate(of)} for topic, of in found.items()})
