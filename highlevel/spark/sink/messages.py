"""The output of a bucket in a micro-batch: encoded messages for its transactions, and a report for the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pyspark.sql import Row
from pyspark.sql import types as t

from lowmark.wire.records.record import Header, WireRecord
from lowmark.wire.records.sink_token import Told

__all__ = ["REPORT_SCHEMA", "Bundle", "Position", "Report", "left_behind", "read_report"]

REPORT_SCHEMA = t.StructType([t.StructField("report", t.StringType(), False)])


@dataclass(frozen=True, slots=True)
class Bundle:
    """Values of consecutive messages in one partition, with the headers that they share. Completions end a window:
    `closes`."""

    topic: str
    partition: int
    headers: tuple[Header, ...]
    starts: bytes
    data: bytes
    closes: bool = False

    @classmethod
    def of(cls, topic: str, partition: int, record: WireRecord, closes: bool = False) -> Bundle:
        starts = np.array([0, len(record.value)], np.int64).tobytes()
        return cls(topic, partition, record.headers, starts, record.value, closes)

    def __len__(self) -> int:
        return len(self.starts) // 8 - 1

    def values(self) -> Iterator[bytes]:
        for start, end in pairwise(np.frombuffer(self.starts, np.int64).tolist()):
            yield self.data[start:end]

    def split(self, limit: int) -> Iterator[Bundle]:
        """The same messages in bundles of at most so many bytes, but of one message at least."""
        starts = np.frombuffer(self.starts, np.int64)
        first = 0
        while first < len(starts) - 1:
            end = int(np.searchsorted(starts, starts[first] + limit, "right")) - 1
            end = max(first + 1, end)
            yield Bundle(
                self.topic, self.partition, self.headers, (starts[first : end + 1] - starts[first]).tobytes(),
                self.data[starts[first] : starts[end]], self.closes,
            )  # fmt: skip
            first = end


@dataclass(frozen=True, slots=True)
class Position:
    """How far the bucket's partials have been read for the results before this position."""

    read: int  # the offset of the first record not read
    told: Mapping[str, Told]


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
    freed: list[tuple[str, str, int, int, int]]
    """Of punctuated joins: query, input; rows kept, values promised, rows that promises have freed."""

    def row(self) -> Row:
        return Row(report=json.dumps({name: getattr(self, name) for name in self.__slots__}))


def left_behind(stage: str, bucket: int) -> Report:
    """The report of a bucket that has dropped its state, because its stage has left the job."""
    return Report(
        stage=stage, bucket=bucket, records=0, counters={}, dead={}, rows={}, exchanged={}, late_rows={},
        corrections={}, windows=[], amended=[], complete_to={}, open_windows={}, fronts={}, waiting=[], returned=[],
        open_panes=0, read=0, heard={}, ended=True, state_bytes=0, buffers=[], freed=[],
    )  # fmt: skip


def read_report(row: Row) -> Report:
    fields = json.loads(row.report)
    fields["windows"] = [(query, reason, count) for query, reason, count in fields["windows"]]
    fields["amended"] = [(query, reason, count) for query, reason, count in fields["amended"]]
    fields["buffers"] = [tuple(each) for each in fields["buffers"]]
    fields["freed"] = [tuple(each) for each in fields["freed"]]
    for pairs in ("waiting", "returned"):
        fields[pairs] = [(node, source) for node, source in fields[pairs]]
    return Report(**fields)
