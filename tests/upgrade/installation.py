"""A whole installation as a released version left it: a broker's folder with all topics, the checkpoint of a job that
has been stopped, and the configuration."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from lowmark.app.config.file import load_config
from lowmark.app.kafka.broker import Broker
from tests.integration.jobfeed import BUSY, CHOSEN, LEVELS, PAIRS, RUNS, SLIDING, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true

SEED, PANES = 17, 8

QUERIES = {"sliding": SLIDING, "busy": BUSY, "levels": LEVELS, "chosen": CHOSEN, "runs": RUNS, "pairs": PAIRS}
"""`LEVELS` has an exchange; `CHOSEN` has no windows, `RUNS` none over time; `PAIRS` is a join."""

_FOR_EVER = "[topics]\nretention_ms = 4000000000000\nresults_retention_ms = 4000000000000\n"


def rows_of(items: dict[int, list[object]]) -> dict[int, Counter[bytes]]:
    """By bucket. Where there are no windows, which of two rows comes first depends on where micro-batches are cut."""
    return {bucket: Counter(row for row in of if isinstance(row, bytes)) for bucket, of in items.items()}


def make(archive: Path) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(folder / "broker") as broker:
            path = write_config(folder, broker.bootstrap, **QUERIES)
            text = path.read_text().replace("[topics]\n", _FOR_EVER)
            path.write_text(text.replace("max_offsets_per_trigger = 60", "max_offsets_per_trigger = 400\nbuckets = 2"))
            feed = Feed(load_config(path), SEED)
            feed.panes(PANES)
            with JobProcess(path) as job:
                expected = {plan.name: rows_of(feed.expected(plan)) for plan in feed.plans}
                await_true(
                    lambda: job.ended or all(rows_of(feed.results(plan)) == expected[plan.name] for plan in feed.plans)
                )
                job.terminate()
                assert job.wait() == 0, job.said
        with tarfile.open(archive, "w:xz") as packed:
            for kept in ("broker/cluster.id", "broker/data", "checkpoint", "lowmark.toml"):
                packed.add(folder / kept, kept)


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def moved(folder: Path, bootstrap: str) -> Path:
    """Its configuration, with the broker's address of now."""
    path = folder / "lowmark.toml"
    path.write_text(re.sub(r'bootstrap = ".*"', f'bootstrap = "{bootstrap}"', path.read_text()))
    return path
