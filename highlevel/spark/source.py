"""The job's input: the records of its stages' partials topics and of its exchanges, each with its bucket's key."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from highlevel.spark.job_spec import JobSpec
from lowmark.wire.kafka.settings import KafkaSettings, spark_options

__all__ = ["KEY", "SourceSettings", "partials"]

KEY = "key"
"""The column that Spark groups by: the placement number of a record's stage and bucket, an int."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    kafka: KafkaSettings
    max_offsets: int  # records of a micro-batch, over all topics: a backlog is read in steps of this size


def partials(spark: SparkSession, spec: JobSpec, settings: SourceSettings) -> DataFrame:
    """Columns KEY, topic, partition, offset, appended_us (the broker's time of append, us since 1970), headers, value.

    Partition = bucket. A bucket's records come unordered within a micro-batch.
    """
    numbers = [f.lit(part) for topic, keys in _keys(spec).items() for part in (topic, keys)]
    options = spark_options(settings.kafka) | {
        "subscribe": ",".join(_keys(spec)),
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",  # sequence numbers detect the loss, and the affected windows report it
        "maxOffsetsPerTrigger": str(settings.max_offsets),
        "kafka.fetch.max.wait.ms": "10",  # at Kafka's 500 every task on fresh data waits half a second
    }
    records = spark.readStream.format("kafka").options(**options).load()
    key = f.element_at(f.element_at(f.create_map(*numbers), f.col("topic")), f.col("partition") + 1)
    appended_us = f.unix_micros("timestamp").alias("appended_us")
    return records.select(key.alias(KEY), "topic", "partition", "offset", appended_us, "headers", "value")


def _keys(spec: JobSpec) -> dict[str, list[int]]:
    """By topic: the key of each partition, in order. An exchange connects the buckets of its query's stage."""
    topics = [(spec.partials_topic(stage.fingerprint), stage) for stage in spec.stages().values()]
    topics += [(spec.exchange_topic(name), plan.stage) for name, plan in spec.exchanges().items()]
    return {
        topic: [spec.placements[stage.fingerprint, bucket] for bucket in range(stage.buckets)]
        for topic, stage in topics
    }
