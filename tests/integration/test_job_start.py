"""What a job says when Spark does not start, or dies, and that it ends when it is told to while Kafka is away, or when
Kafka's client hangs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.kafka.broker import Broker
from tests.acceptance.test_golden import at
from tests.integration.jobfeed import BUSY, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.processes import Command, get, samples, value
from tests.naive.frames import frame, write_pcap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def configure(folder: Path, broker: str, job: str) -> Path:
    path = write_config(folder, broker, busy=BUSY)
    path.write_text(path.read_text().replace('heap = "512m"', job))
    return path


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ('master = "local[many]"', "Could not parse Master URL: 'local[many]'"),
        ('heap = "1k"', "Too small maximum heap"),
    ],
)
def test_spark_that_does_not_start(broker, tmp_path, job, said):
    with JobProcess(configure(tmp_path, broker, job)) as process:
        assert process.wait() == 1
    assert process.lines[-1].startswith("Spark could not be started: ")
    assert said in process.lines[-1]
    assert "Traceback" not in process.said


def test_spark_that_is_killed(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    Feed(load_config(path), seed=11).panes(1)
    with JobProcess(path) as process:
        process.url()
        listed = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
        )
        (jvm,) = [int(line.split()[0]) for line in listed.stdout.splitlines() if "SparkSubmit" in line]
        os.kill(jvm, signal.SIGKILL)
        assert process.wait() == 1
    assert "Traceback" not in process.said
    assert "Spark" in process.lines[-1]


def test_a_job_whose_broker_is_gone_ends_when_it_is_told_to(tmp_path):
    with Broker(tmp_path / "broker") as broker:
        path = write_config(tmp_path, broker.bootstrap, busy=BUSY)
        config = load_config(path)
        Feed(config, seed=12).panes(1)
        with JobProcess(path) as process:
            process.url()
            os.kill(broker.pid, signal.SIGKILL)
            log = path.parent / config.job.checkpoint / config.job.name / "spark.log"
            await_true(lambda: "could not be established" in log.read_text())
            process.terminate()
            assert process.wait() == 0
    assert "Traceback" not in process.said


def test_without_a_broker_job_and_capture_wait_until_they_are_told_to_end_and_commands_say_so(tmp_path):
    with socket.socket() as bound:  # an address that nobody listens on
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        path = write_config(tmp_path, address, busy=BUSY)
        path.write_text(path.read_text() + '[capture]\nmetrics = "127.0.0.1:0"\n')
        for source in ("left", "right", "far"):
            write_pcap(tmp_path / f"{source}.pcap", [frame(at(1))])
        for command in (["run"], ["capture"]):
            with Command(*command, "-c", str(path)) as process:
                await_true(lambda: "waiting for Kafka, for " in process.error)
                assert f"Kafka at {address}" in process.error.replace("\n", " ")
                (url,) = re.findall(r"(http://\S+)/readyz", process.error)
                ready, lives = get(f"{url}/readyz"), get(f"{url}/healthz")
                assert (ready.status, lives.status) == (503, 200)
                assert re.match(r"has not answered for \d+ s: Kafka at ", ready.json["kafka"])
                assert (value(samples(get(f"{url}/metrics").text), "lowmark_kafka_unreachable_seconds") or 0) > 0
                told = time.monotonic()
                process.process.terminate()
                assert process.wait() == -signal.SIGTERM
                assert time.monotonic() - told < 20  # Kafka's client would wait for longer
                assert "Traceback" not in process.error
        began = time.monotonic()
        for command in (["sources"], ["watch", "busy"]):
            with Command(*command, "-c", str(path)) as process:
                assert process.wait() == 1
                assert "Is the address right, the broker up" in process.error
        assert time.monotonic() - began < 60  # two times ten seconds; the rest is a busy machine's


HANGING = """\
import ctypes, os
import confluent_kafka

class Hanging(confluent_kafka.Producer):
    def send_offsets_to_transaction(self, *arguments):
        while os.path.exists({flag!r}):
            ctypes.CDLL(None).pause()
        super().send_offsets_to_transaction(*arguments)

confluent_kafka.Producer = Hanging
from lowmark.watchdog import Watchdog
within = Watchdog.within
def sooner(self, seconds, what):  # of the call that hangs: others may take long on a busy machine
    hangs = "send_offsets_to_transaction" in what and os.path.exists({flag!r})
    return within(self, {within} if hangs else seconds, what)
Watchdog.within = sooner
"""


def test_a_call_that_never_returns_ends_the_job(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    feed = Feed(load_config(path), seed=13)
    flag = tmp_path / "hang"

    def job(within: float, *options: str) -> JobProcess:
        (tmp_path / "sitecustomize.py").write_text(HANGING.format(flag=str(flag), within=within))
        return JobProcess(path, *options, python_path=str(tmp_path))

    with job(5) as process:  # in a worker
        process.url()
        feed.panes(2)
        await_true(lambda: any(feed.results(feed.plans[0]).values()))
        flag.touch()
        feed.panes(2)
        assert process.wait() == 1, process.said
        said = "a worker process has ended itself: the call send_offsets_to_transaction of Kafka's client took longer"
        assert said in process.lines[-1]
        assert "Traceback" not in process.said

    with job(2) as process:  # in the driver, which claims the buckets
        assert process.wait() == 1, process.said
    assert "the call send_offsets_to_transaction of Kafka's client took longer than 2 s" in process.said
    assert "Traceback" not in process.said

    flag.unlink()
    feed.panes(1, end=True)
    with job(60, "--until-last") as process:
        assert process.wait() == 0, process.said
    assert feed.results(feed.plans[0]) == feed.expected(feed.plans[0])
