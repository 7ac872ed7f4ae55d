"""The settings of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from highlevel.spark.spark_options import refusals
from lowmark.query.options import DEFAULT_LIMITS, Limits, parse_span

__all__ = ["JobConfig", "JobLimits"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""A name has no point, so that rights to the prefix `job.NAME.` concern only this job and jobs of some of its
queries."""

_HEAP = re.compile(r"[1-9][0-9]*[kmgKMG]")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of each query that sets none of its own. Raises ValueError for impossible values."""

    groups: int = DEFAULT_LIMITS.groups
    open_panes: int = 100_000  # open panes of a node in a bucket; beyond it, sources that hold panes open are excluded

    def __post_init__(self) -> None:
        Limits(groups=self.groups)
        if self.open_panes < 1:
            raise ValueError(f"open_panes is {self.open_panes}: it is 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Settings of the Spark job. Raises ValueError for impossible values.

    `buckets` and `shuffle_partitions` are fixed by the first start: other values mean another stage and another
    checkpoint.
    """

    checkpoint: str = "checkpoint"  # a permanent folder, relative to the configuration file; or a URL that Spark knows
    name: str = "lowmark"  # only one job of this name may run on a cluster at a time
    buckets: int = 4  # partitions of a stage's partials, unless its query sets them
    max_offsets_per_trigger: int = 20_000  # records of a micro-batch: a backlog is processed in steps of this size
    master: str = "local[4]"  # more tasks than buckets at a time: those that read records mostly wait for a broker
    shuffle_partitions: int = 2  # most buckets that are processed at a time
    transaction_timeout: str = "60 s"  # limit for writing a part of a batch's results
    overlap: str = "5 minutes"  # how long captures serve the former stage of a changed query beside the new one
    heap: str = "1g"  # heap of the driver JVM, for example `1g`
    metrics: str = "127.0.0.1:9465"  # host:port
    limits: JobLimits = field(default_factory=JobLimits)
    spark: Mapping[str, str] = field(default_factory=dict)  # Spark's settings, by name

    @property
    def transaction_timeout_s(self) -> float:
        try:
            seconds = parse_span(self.transaction_timeout) / 1e9
        except ValueError as error:
            raise ValueError(f"transaction_timeout: {error}") from None
        if seconds < 1:
            raise ValueError(f"transaction_timeout is {self.transaction_timeout!r}: it is 1 s or more")
        return seconds

    @property
    def overlap_s(self) -> float:
        try:
            return parse_span(self.overlap) / 1e9
        except ValueError as error:
            raise ValueError(f"overlap: {error}") from None

    def __post_init__(self) -> None:
        self.transaction_timeout_s  # noqa: B018  # raises
        self.overlap_s  # noqa: B018  # raises
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}: letters, digits, _ and -, at most 100")
        for setting in ("buckets", "max_offsets_per_trigger", "shuffle_partitions"):
            if (value := getattr(self, setting)) < 1:
                raise ValueError(f"{setting} is {value}: it is 1 or more")
        if not _HEAP.fullmatch(self.heap):
            raise ValueError(f"heap is {self.heap!r}: a number and k, m or g, for example 1g")
        if found := refusals(self.spark):
            raise ValueError(f"spark: {'; '.join(found)}")
