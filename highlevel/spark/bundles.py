"""What leaves an executor: messages for one partition of one topic, already encoded, and a report of each bucket.

A bundle's messages share their headers, so that the rows of a window are one row of Spark's and not one each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pyspark.sql import Row
from pyspark.sql import types as t

from lowmark.wire.record import Header, WireRecord

__all__ = ["BUNDLE_SCHEMA", "Bundle", "Report", "read_bundle", "read_report"]

_HEADER = t.StructType([t.StructField("name", t.StringType(), False), t.StructField("value", t.BinaryType(), False)])

BUNDLE_SCHEMA = t.StructType(
    [
        t.StructField("topic", t.StringType()),  # null: the data are a report
        t.StructField("partition", t.IntegerType()),
        t.StructField("place", t.LongType(), False),  # order among the bundles of one bucket
        t.StructField("headers", t.ArrayType(_HEADER), False),
        t.StructField("starts", t.BinaryType(), False),  # int64: message i is data[starts[i]:starts[i + 1]]
        t.StructField("data", t.BinaryType(), False),
    ]
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Values of messages that follow each other in one partition."""

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

    def row(self, place: int) -> Row:
        headers = [Row(name=name, value=value) for name, value in self.headers]
        return Row(
            topic=self.topic, partition=self.partition, place=place, headers=headers, starts=self.starts,
            data=self.data,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a bucket counted in a micro-batch, and where it stands after it."""

    stage: str
    bucket: int
    records: int  # read in this micro-batch
    counters: dict[str, int]  # increments of the driver's plain counters
    dead: dict[str, int]  # by reason
    rows: dict[str, int]  # result rows by query
    windows: list[tuple[str, str | None, int]]  # completed: query, reason (None: exact), how many
    complete_to: dict[str, int | None]  # by query: a value of the windowing attribute, as `Progress` has it
    open_windows: dict[str, int]  # by query
    waiting: list[tuple[str, str]]  # (node, source) that hold a frontier
    ended: bool
    state_bytes: int  # written in this micro-batch

    def row(self, place: int) -> Row:
        fields = {name: getattr(self, name) for name in self.__slots__}
        data = json.dumps(fields).encode()
        return Row(topic=None, partition=None, place=place, headers=[], starts=b"", data=data)


def read_report(row: Row) -> Report:
    fields = json.loads(bytes(row.data))
    fields["windows"] = [(query, reason, count) for query, reason, count in fields["windows"]]
    fields["waiting"] = [(node, source) for node, source in fields["waiting"]]
    return Report(**fields)


def read_bundle(row: Row) -> Bundle:
    headers = tuple((header.name, bytes(header.value)) for header in row.headers)
    return Bundle(row.topic, row.partition, headers, bytes(row.starts), bytes(row.data))
