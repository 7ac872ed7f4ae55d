"""What a pipe or a file that is followed has promised is let out in a lull; the clock promises nothing there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from highlevel.progress.records import Batch
from ingest.config import FileConfig, Playback
from ingest.disorder.declarations import Disorder, Ordered, Scan, WithinTime
from ingest.files.source import FileSource
from lowlevel.config import LowLevelConfig
from lowmark.app.local.source_feed import Feed
from lowmark.query.compile import compile_query
from lowmark.wire.records.punctuations import Punctuation
from tests.naive.frames import Spec, frame, write_pcap

SECOND = 10**9


def promises(feed: Feed) -> Iterator[int | None]:
    """The bound of each punctuation; None for each step."""
    for records in feed.steps():
        for record in records:
            if isinstance(record, Punctuation):
                (bound,) = record.promise.bounds
                yield bound.below
        yield None


@pytest.mark.parametrize("follow", [False, True])
def test_a_window_that_has_ended_leaves_while_nothing_comes(follow: bool, tmp_path: Path) -> None:
    times = (1, 2, 61)
    path = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * SECOND)) for second in times])
    reading, writing = os.pipe()
    os.write(writing, path.read_bytes())
    (node,) = compile_query(
        "SELECT srcIP, count(*) [RANGE 1 minute] FROM A GROUP BY srcIP", name="q", streams={"A": 1}, buckets=1
    ).stage.nodes
    config = FileConfig(
        name="a", stream="A", path=str(path) if follow else f"/dev/fd/{reading}", disorder=Ordered(), follow=follow
    )
    feed = Feed(FileSource(config), [node], LowLevelConfig(), "stage", False)
    feed.start()
    feed.begin()
    said = promises(feed)
    assert next(bound for bound in said if bound is not None) == 60 * SECOND
    # Many lulls later nothing more has been promised than the packets' own times allow.
    assert set(islice(said, 5)) == {None}
    feed.source.stop()
    feed.source.close()
    os.close(writing)
    os.close(reading)


class Clock:
    """It goes on where a replay waits."""

    def __init__(self) -> None:
        self.now = 0

    def wait(self, seconds: float) -> bool:
        self.now += round(seconds * SECOND)
        return False


@pytest.mark.parametrize("disorder", [Scan(), Ordered(), WithinTime(2 * SECOND)])
def test_a_slow_replay_lets_windows_out_in_its_own_time(disorder: Disorder, tmp_path: Path) -> None:
    """All of the capture is one block of the file."""
    path = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * SECOND)) for second in range(0, 600, 5)])
    plan = compile_query("SELECT srcIP, count(*) [RANGE 1 minute] FROM A GROUP BY srcIP", streams={"A": 1}, buckets=1)
    clock = Clock()
    config = FileConfig(name="a", stream="A", path=str(path), disorder=disorder, replay=Playback(pace=1.0))
    source = FileSource(config, now_ns=lambda: clock.now, wait=clock.wait)
    feed = Feed(source, plan.stage.nodes, LowLevelConfig(), "stage", False)
    feed.start()
    feed.begin()
    said = {bound: clock.now for bound in promises(feed) if bound is not None}
    feed.source.close()
    for minute in range(1, 10):
        promised = min(now for bound, now in said.items() if bound >= minute * 60 * SECOND)
        assert promised <= (minute * 60 + 10) * SECOND, f"the window that ends with minute {minute}"


def test_a_first_occurrence_leaves_while_its_pane_is_open(tmp_path: Path) -> None:
    """The repeat is counted, and has nothing to show before the pane has ended."""
    path = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * SECOND)) for second in (1, 2)])
    reading, writing = os.pipe()
    os.write(writing, path.read_bytes())
    plan = compile_query("SELECT DISTINCT ts / 3600 AS hour, srcIP FROM A", streams={"A": 1}, buckets=1)
    config = FileConfig(name="a", stream="A", path=f"/dev/fd/{reading}", disorder=Ordered())
    feed = Feed(FileSource(config), plan.stage.nodes, LowLevelConfig(), "stage", False)
    feed.start()
    feed.begin()
    first = next(record for records in feed.steps() for record in records)
    assert isinstance(first, Batch)
    assert (len(first.rows), first.tuples) == (1, {0: 1})
    assert [(counts.put_out, counts.resident) for counts in feed.nodes.counts().values()] == [(1, 1)]
    feed.source.stop()
    feed.source.close()
    os.close(writing)
    os.close(reading)
