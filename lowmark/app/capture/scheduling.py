"""The CPU and the priority of the thread of a source."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lowmark.app.errors import StartRefused

__all__ = ["ThreadScheduling"]


@dataclass(frozen=True, slots=True)
class ThreadScheduling:
    """`cpu` None: any. `priority`: SCHED_FIFO, 1 to 99; 0: no real-time priority."""

    cpu: int | None = None
    priority: int = 0

    def check(self, source: str) -> None:
        """Tries `apply` in another thread. StartRefused if it fails."""
        if self == ThreadScheduling():
            return
        with ThreadPoolExecutor(1) as trial:
            trial.submit(self.apply, source).result()

    def apply(self, source: str) -> None:
        """Applies the settings to the calling thread. StartRefused if this process may not."""
        if self.cpu is not None:
            try:
                os.sched_setaffinity(0, {self.cpu})
            except OSError:
                usable = ", ".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
                raise StartRefused(
                    f"source {source} is to run on CPU {self.cpu}, which this process may not use",
                    f"choose `cpus` from these: {usable}",
                ) from None
        if self.priority:
            try:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(self.priority))
            except PermissionError:
                raise StartRefused(
                    f"source {source} is to run with real-time priority {self.priority}, and this process may not",
                    "grant CAP_SYS_NICE (AmbientCapabilities=CAP_NET_RAW CAP_SYS_NICE in a systemd unit), start as "
                    "root with --user, or leave `priority` out",
                ) from None
