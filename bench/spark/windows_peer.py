"""`python -m bench.spark.windows_peer FOLDER BOOTSTRAP TOPIC HAVING PANES`: Spark's windowed aggregation of rows.

FOLDER holds `rows/` (parquet files, FILES of them a micro-batch) and gets the checkpoint. Results go to Kafka as JSON
rows by Spark's own sink. The session is set up as the job's is: same master, shuffle partitions, state store, heap.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark.runs import FILES
from highlevel.config import JobConfig
from highlevel.spark.session import Spark
from highlevel.spark.spark_options import SparkSettings
from lowmark.app.kafka.jars import SPARK_KAFKA, obtain
from lowmark.app.kafka.java import find_java, spark_java_home

__all__ = ["read_files", "run"]

_SCHEMA = "ts timestamp, src long, dst long, packets long, bytes long"
_MICROSECONDS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def main(folder: Path, bootstrap: str, topic: str, having: int, held: int) -> None:
    """Windows of `held` minutes; more than one slides by a minute."""

    def totals(session: SparkSession) -> DataFrame:
        window = f.window("ts", f"{held} minutes", "1 minute")
        return (
            read_files(session, folder / "rows", _SCHEMA)
            .withWatermark("ts", "0 seconds")
            .groupBy(window, "src", "dst")
            .agg(f.sum("packets").alias("packets"), f.sum("bytes").alias("bytes"))
            .where(f.col("packets") > having)
            .select(f.col("window.start").alias("window_start"), "src", "dst", "packets", "bytes")
        )

    run(folder, bootstrap, topic, totals)


def read_files(session: SparkSession, folder: Path, schema: str) -> DataFrame:
    return session.readStream.schema(schema).option("maxFilesPerTrigger", FILES).parquet(str(folder))


def run(folder: Path, bootstrap: str, topic: str, query: Callable[[SparkSession], DataFrame]) -> None:
    """Until all files are read. Leaves `batches.json`: number and rows of each micro-batch."""
    java = find_java()
    defaults = JobConfig()
    settings = SparkSettings(
        master=defaults.master, java_home=spark_java_home(java), jars=obtain(SPARK_KAFKA, java=java),
        shuffle_partitions=defaults.shuffle_partitions, heap=defaults.heap, work_dir=folder / "work",
        log=folder / "spark.log",
    )  # fmt: skip
    with Spark(settings) as spark:
        rows = query(spark.session).select(f.to_json(f.struct("*"), _MICROSECONDS).alias("value"))
        writer = rows.writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        running = writer.start()
        running.awaitTermination()
        batches = [(progress["batchId"], progress["numInputRows"]) for progress in running.recentProgress]
    (folder / "batches.json").write_text(json.dumps(batches))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
