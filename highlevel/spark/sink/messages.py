"""The output of an executor: encoded messages for one partition of one topic, and a report of each bucket.

A bundle's messages share their headers. Bundles leave in parcels (`result_files`) with the position of the bucket's
input, reports as Spark's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pyspark.sql import Row
from pyspark.sql import types as t

from lowmark.wire.records.record import Header, WireRecord

__all__ = ["REPORT_SCHEMA", "Bundle", "Position", "Report", "read_report"]

REPORT_SCHEMA = t.StructType([t.StructField("report", t.StringType(), False)])


@dataclass(frozen=True, slots=True)
class Bundle:
    """Values of consecutive messages in one partition."""

    topic: str
    partition: int
    headers: tuple[Header, ...]
    starts: bytes
    data: bytes

    @classmethod
    def of(cls, topic: str, partition: int, record: WireRecord) -> Bundle:
        starts = np.array([0, len(record.value)], np.int64).tobytes()
        return cls(topic, partition, record.headers, starts, record.value)

    def __len__(self) -> int:
        return len(self.starts) // 8 - 1

    def values(self) -> Iterator[bytes]:
        for start, end in pairwise(np.frombuffer(self.starts, np.int64).tolist()):
            yield self.data[start:end]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition of partials had been read for the results before this position in a parcel."""

    topic: str
    partition: int
    offset: int  # of the first record not read
    metadata: str  # as `lowmark.wire.records.sink_token` writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A bucket's counts for a micro-batch, and its status after it."""

    stage: str
    bucket: int
    records: int  # read in this micro-batch
    counters: dict[str, int]  # increments of the driver's plain counters
    dead: dict[str, int]  # by reason
    rows: dict[str, int]  # result rows by query
    exchanged: dict[str, int]  # rows sent to other buckets, by query
    late_rows: dict[str, int]
    corrections: dict[str, int]
    windows: list[tuple[str, str | None, int]]  # completed: query, reason (None: exact), how many
    amended: list[tuple[str, str, int]]  # declared lossy after completion: query, reason, how many
    complete_to: dict[str, int | None]  # by query: a value of the windowing attribute, as `Progress` has it
    open_windows: dict[str, int]  # by query
    fronts: dict[str, int]  # by node: the first granule that has not ended
    waiting: list[tuple[str, str]]  # (node, source) that block a frontier
    returned: list[tuple[str, str]]  # (node, source): excluded sources whose promise has reached the frontier
    open_panes: int  # most panes of a node from its frontier to its last tuple
    read: int  # the offset after the last record of partials in this micro-batch; 0: there was none
    heard: dict[str, int]  # by source: when its last record of this micro-batch was appended, in ns; FOREVER: it ended
    ended: bool
    state_bytes: int  # written in this micro-batch
    buffers: list[tuple[str, str, int, int, int, int]]
    """Of joins without windows: query, input; rows predicted and used of it; rows found, those within the former."""
    parcel: str | None  # the file with its results; None: no results

    def row(self) -> Row:
        return Row(report=json.dumps({name: getattr(self, name) for name in self.__slots__}))


def read_report(row: Row) -> Report:
    fields = json.loads(row.report)
    fields["windows"] = [(query, reason, count) for query, reason, count in fields["windows"]]
    fields["amended"] = [(query, reason, count) for query, reason, count in fields["amended"]]
    fields["buffers"] = [tuple(each) for each in fields["buffers"]]
    for pairs in ("waiting", "returned"):
        fields[pairs] = [(node, source) for node, source in fields[pairs]]
    return Report(**fields)
