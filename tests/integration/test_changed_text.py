"""A query's text changes while capture and job go on: no window is missing, partial, or told twice."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.verdicts import Complete
from tests.fixtures.network import Network, namespace, packet
from tests.integration.heads import JOB
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.processes import Command
from tests.integration.readings import records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = f"""{JOB}\
buckets = 2
overlap = "10 minutes"
[streams.Main]
[sources.tap]
stream = "Main"
interface = "near"
fanout = 2
[queries.talkers]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
"""
CHANGED = CONFIG.replace("count(*) AS packets", "count(*) AS packets, max(len) AS largest")
BUCKETS = 2


@pytest.fixture
def net() -> Iterator[Network]:
    with namespace() as made:
        made.pair("far", "near")
        yield made


class Traffic:
    """Packets from several hosts, until `stop`."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: Counter[str] = Counter()

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            for host in range(1, 6):
                self._net.send("far", [packet(host)] * host)
                self.sent[f"10.0.0.{host}"] += host


def told(path: Path) -> list[tuple[list[dict[str, object]], list[Complete]]]:
    """The rows and completions of each bucket."""
    config, found = load_config(path), []
    topic = Topic(TopicKind.RESULTS, "talkers", config.prefix).name
    for bucket in range(BUCKETS):
        rows, completions = [], []
        for message in records(config, topic, bucket):
            record = decode(message.headers(), message.value())
            if isinstance(record, Complete):
                completions.append(record)
            else:
                rows.append(json.loads(message.value()))
        found.append((rows, completions))
    return found


def test_no_window_is_missing_partial_or_told_twice(net: Network, tmp_path: Path) -> None:
    path = tmp_path / "lowmark.toml"
    with Broker(tmp_path / "broker") as broker:
        path.write_text(CONFIG.format(broker=broker.bootstrap, prefix="t"))
        with Command("capture", "-c", str(path)) as capture, JobProcess(path) as job:
            capture.url()
            with Traffic(net) as traffic:
                await_true(lambda: job.ended or "running talkers" in job.said)
                await_true(lambda: job.ended or all(rows for rows, _ in told(path)))
                path.write_text(CHANGED.format(broker=broker.bootstrap, prefix="t"))
                os.kill(job.pid, signal.SIGHUP)
                await_true(lambda: job.ended or "the former text goes on until its sources cover the new" in job.said)
                capture.process.send_signal(signal.SIGHUP)
                await_true(lambda: job.ended or "generation 1, run 2" in job.said)
                assert "the former stage of talkers is served for 10 minutes more" in capture.error
                await_true(lambda: job.ended or all("largest" in rows[-1] for rows, _ in told(path)))
            sent = traffic.sent
            assert not job.ended, job.said

            def counted() -> Counter[object]:
                found: Counter[object] = Counter()
                for rows, _ in told(path):
                    for row in rows:
                        found[row["srcIP"]] += row["packets"]
                return found

            await_true(lambda: job.ended or counted() == sent)
            job.terminate()
            assert job.wait() == 0, job.said
        for rows, completions in told(path):
            assert all(after.windows.first == before.windows.to + 1 for before, after in pairwise(completions))
            partial = [complete.verdict.partial for complete in completions]
            assert partial == sorted(partial, reverse=True), "only windows that began before the capture did"
            assert all(not complete.verdict.reasons for complete in completions)
            texts = ["largest" in row for row in rows]
            assert texts == sorted(texts)
            assert set(texts) == {False, True}
