"""Whether the tables of groups fit into this machine, before any is allocated."""

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
    """`nodes`: one for each table, of all sources; `asked`: the setting that gives their size, as people wrote it.
    LowLevelConfigError where they take more memory than there is."""
    sizes = [size for node in nodes if (size := table_bytes(node.reduction, config))]
    usable = usable_bytes()
    if sum(sizes) > usable:
        takes = "a table of it takes" if len(sizes) == 1 else f"{len(sizes)} tables of it, one for each node, take"
        raise LowLevelConfigError(
            f"{asked}: {takes} {_shown(sum(sizes))}, and this machine has {_shown(usable)} of memory"
        )


def asked_table(config: LowLevelConfig) -> str:
    """As `[capture.table]` of a configuration says it."""
    given = f'memory = "{config.memory}"' if config.memory else f"slots = {config.slots}"
    return f"capture.table: {given}"


def usable_bytes() -> int:
    """What a process may have at the most: the machine's memory, or what is left to it of that."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    with suppress(OSError, ValueError):  # there is none, or it says "max"
        limits.append(int(_GROUP_LIMIT.read_text()))
    return min(limits)


def _shown(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"
