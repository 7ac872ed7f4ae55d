"""Checks that the tables of groups fit into this machine's memory, before any is allocated."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lowlevel.config import LowLevelConfig, LowLevelConfigError
from lowlevel.node_memory import table_bytes
from lowmark.query.plan.nodes import Node

__all__ = ["asked_table", "check_tables", "usable_bytes"]

_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def check_tables(nodes: Iterable[Node], config: LowLevelConfig, asked: str) -> None:
    """LowLevelConfigError if the tables need more memory than this process may use. `nodes`: one for each table, over
    all sources. `asked`: the setting that gives the size of the tables, as it was written."""
    sizes = [size for node in nodes if (size := table_bytes(node.reduction, config))]
    usable = usable_bytes()
    if sum(sizes) > usable:
        takes = "a table of it takes" if len(sizes) == 1 else f"{len(sizes)} tables of it, one for each node, take"
        raise LowLevelConfigError(
            f"{asked}: {takes} {_shown(sum(sizes))}, and this machine has {_shown(usable)} of memory"
        )


def asked_table(config: LowLevelConfig) -> str:
    """The table size as `[capture.table]` of a configuration writes it."""
    given = f'memory = "{config.memory}"' if config.memory else f"slots = {config.slots}"
    return f"capture.table: {given}"


def usable_bytes() -> int:
    """Most bytes of memory that this process may use: the machine's memory, or a lower limit of the process or its
    cgroup."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    with suppress(OSError, ValueError):  # there is no such file, or it says "max"
        limits.append(int(_GROUP_LIMIT.read_text()))
    return min(limits)


def _shown(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"
