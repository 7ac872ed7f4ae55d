"""A job that comes back to more than fits into its memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lowmark.app.config.file import load_config
from lowmark.query.plan.nodes import Node
from lowmark.wire.rows.words import Words
from tests.integration.jobfeed import SLIDING, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_HEAP = 512 << 20
_PANES, _ROWS, _HOSTS = 14, 300_000, 20_000


class Backlog(Feed):
    """Panes of many rows, of not so many hosts; `sent` counts the bytes."""

    sent = 0

    def _rows(self, node: Node, pane: int) -> Words:
        schema = node.reduction.schema
        random = np.random.default_rng(pane)
        rows = np.zeros((_ROWS, schema.words), np.uint64)
        rows[:, schema.offset("pane")], rows[:, schema.offset("tuples")] = pane, 1
        rows[:, schema.offset("srcIP")] = 4
        rows[:, schema.offset("srcIP") + 2] = 0x0A00_0000 + random.integers(0, _HOSTS, _ROWS, np.uint64)
        rows[:, schema.offset("_add0")] = random.integers(64, 1500, _ROWS, np.uint64)
        self.sent += rows.nbytes
        return rows


def test_a_backlog_need_not_fit_into_memory(broker: str, tmp_path: Path) -> None:
    """All of it is one micro-batch, and of one bucket. The job is killed in the middle of it, and comes back."""
    path = write_config(tmp_path, broker, talkers=SLIDING)
    path.write_text(
        re.sub(r"max_offsets_per_trigger = \d+", "max_offsets_per_trigger = 100000\nbuckets = 1", path.read_text())
    )
    feed = Backlog(load_config(path), seed=3)
    feed.panes(_PANES, end=True)

    spilled = tmp_path / "checkpoint" / "lowmark" / "parcels"
    with JobProcess(path) as job:
        await_true(lambda: any(spilled.glob("*")))
        job.kill()
    peaks: dict[str, int] = {}
    with JobProcess(path, "--until-last") as job:

        def ended() -> bool:
            peaks.update({name: max(peak, peaks.get(name, 0)) for name, peak in job.peak_bytes().items()})
            return job.ended

        await_true(ended)
        assert job.wait() == 0, job.said
    # Of the workers: Python, its libraries and kernels are half of it.
    assert peaks["python"] < feed.sent, peaks
    assert peaks["java"] < 2 * _HEAP, peaks
    (plan,) = feed.plans
    assert feed.results(plan) == feed.expected(plan)
