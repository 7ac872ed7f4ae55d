"""`python -m bench.spark.joins_peer FOLDER BOOTSTRAP TOPIC band|tumbling SECONDS`: Spark's join of two streams.

FOLDER holds `near/` and `far/`, otherwise as `sparkpeer`. Both streams have a watermark without delay, and the
condition bounds the times of one by those of the other, so that Spark lets go of rows as soon as it can.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark.windows_peer import read_files, run

_SCHEMA = "ts timestamp, src long, dst long, sport long, dport long"
_SAME_FLOW = "syn.src = ack.dst AND syn.dst = ack.src AND syn.sport = ack.dport AND syn.dport = ack.sport"


def main(folder: Path, bootstrap: str, topic: str, window: str, seconds: int) -> None:
    """`band`: answers from a second before a packet to so many seconds after it; `tumbling`: in the same ones."""
    before = 1 if window == "band" else seconds
    near = f"answered >= sent - INTERVAL {before} SECONDS AND answered < sent + INTERVAL {seconds} SECONDS"
    run_of = "unix_micros({}) div " + str(seconds * 1_000_000)
    # With a watermark on `window(…)` the rest of a window that a micro-batch has cut would come late.
    within = near if window == "band" else f"{near} AND {run_of.format('sent')} = {run_of.format('answered')}"

    def side(session: SparkSession, name: str, time: str) -> DataFrame:
        rows = read_files(session, folder / name, _SCHEMA).withColumnRenamed("ts", time)
        return rows.withWatermark(time, "0 seconds")

    def pairs(session: SparkSession) -> DataFrame:
        syn, ack = side(session, "near", "sent").alias("syn"), side(session, "far", "answered").alias("ack")
        joined = syn.join(ack, f.expr(f"{_SAME_FLOW} AND {within}"))
        return joined.select("sent", "answered", "syn.src", "syn.dst", f.col("syn.sport").alias("port"))

    run(folder, bootstrap, topic, pairs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
