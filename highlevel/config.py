"""The settings of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lowmark.query.options import DEFAULT_LIMITS, Limits

__all__ = ["JobConfig", "JobLimits"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_HEAP = re.compile(r"[1-9][0-9]*[kmgKMG]")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of each query that has none of its own. Raises ValueError for an invalid value."""

    groups: int = DEFAULT_LIMITS.groups

    def __post_init__(self) -> None:
        Limits(groups=self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Settings of the Spark job. Raises ValueError for an invalid value.

    The first start fixes `buckets` and `shuffle_partitions`: another value needs another stage or another checkpoint.
    """

    checkpoint: Path = Path("checkpoint")  # folder that survives restarts, relative to the configuration file
    name: str = "lowmark"  # one job of a name may run on a cluster at a time
    buckets: int = 4  # partitions of a stage's partials, unless its query sets them
    max_offsets_per_trigger: int = 20_000  # records of a micro-batch, at most
    master: str = "local[2]"
    shuffle_partitions: int = 2  # buckets that the job works on at a time, at most
    heap: str = "1g"  # heap of the driver JVM
    metrics: str = "127.0.0.1:9465"  # host:port
    limits: JobLimits = field(default_factory=JobLimits)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}: letters, digits, '.', _ and -, at most 100")
        for setting in ("buckets", "max_offsets_per_trigger", "shuffle_partitions"):
            if (value := getattr(self, setting)) < 1:
                raise ValueError(f"{setting} is {value}: it is 1 or more")
        if not _HEAP.fullmatch(self.heap):
            raise ValueError(f"heap is {self.heap!r}: a number and k, m or g, for example 1g")
