"""What a job says when what it stands on is damaged, full or gone: a sentence that names it, and no traceback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from lowmark.app.config.file import Config, load_config
from lowmark.wire.kafka.clients import admin
from lowmark.wire.kafka.topics import Topic, TopicKind
from tests.integration.jobfeed import BUSY, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENGINES = ("Traceback", "Py4J", "collectToPython", "java.", "org.apache", "Erroneous state", "An error occurred")


def refused(path: Path, code: int = 2) -> str:
    """What a job says last that does not go on. 2: nor does it at another start."""
    with JobProcess(path) as job:
        return last_words(job, code)


def last_words(job: JobProcess, code: int = 1) -> str:
    assert job.wait() == code, job.said
    assert [word for word in ENGINES if word in job.said] == [], job.said
    return job.lines[-1]


def results(config: Config, feed: Feed) -> str:
    return Topic(TopicKind.RESULTS, feed.plans[0].name, config.prefix).name


def delete(client: AdminClient, topic: str) -> None:
    client.delete_topics([topic])[topic].result(30)
    await_true(lambda: topic not in client.list_topics(timeout=10).topics)


OLDER = """\
import highlevel.state
highlevel.state.STATE_VERSION -= 1
"""


def test_a_damaged_checkpoint_another_state_and_a_deleted_topic(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    config = load_config(path)
    feed = Feed(config, seed=21)
    feed.panes(3)
    topic, client = results(config, feed), admin(config.kafka)
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "sitecustomize.py").write_text(OLDER)
    with JobProcess(path, python_path=str(tmp_path / "older")) as job:
        job.url()
        # Results are visible before Spark keeps the state that they come from.
        await_true(lambda: any((tmp_path / "checkpoint" / "lowmark").glob("*/commits/0")))
        job.terminate()
        assert job.wait() == 0, job.said

    (metadata,) = (tmp_path / "checkpoint" / "lowmark").glob("*/metadata")
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[: len(whole) // 2])
    assert f"{metadata}, of Spark's checkpoint, is damaged. Restore" in refused(path)
    metadata.write_bytes(whole)

    feed.panes(1)
    said = refused(path)
    assert "StateRefused in bucket" in said
    assert "this program reads" in said
    assert "--new-generation" in said

    # Missing, made anew by somebody else, and while the job runs.
    delete(client, topic)
    for _ in range(2):
        assert f"{topic}: this topic of results was deleted" in refused(path)
        Feed(config, seed=21)  # makes the topics that are missing
        await_true(lambda: topic in client.list_topics(timeout=10).topics)
    with JobProcess(path, "--new-generation") as job:
        job.url()
        await_true(lambda: any(feed.results(feed.plans[0]).values()))
        delete(client, topic)
        feed.panes(2)
        assert f"{topic}: this topic of results was deleted" in last_words(job, 2)


def jvm_of(job: JobProcess) -> int | None:
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(job.pid)], capture_output=True, text=True, check=False
    )
    return next((int(line.split()[0]) for line in listed.stdout.splitlines() if "SparkSubmit" in line), None)


@pytest.mark.parametrize("moment", ["at once", "when it answers"])
def test_spark_that_is_killed_while_it_starts(broker, tmp_path, moment):
    path = write_config(tmp_path, broker, busy=BUSY)
    log = tmp_path / "checkpoint" / "lowmark" / "spark.log"
    with JobProcess(path) as job:
        await_true(lambda: jvm_of(job) is not None and (moment == "at once" or log.exists()))
        jvm = jvm_of(job)
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        said = last_words(job)
    assert said.startswith("Spark could not be started: its process ")
    assert "killed" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> None:
    number = len(list(disk.glob("filling*")))
    (disk / f"filling{number}").write_bytes(bytes(shutil.disk_usage(disk).free))


def test_a_disk_that_is_full(broker, tmp_path, small_disk):
    path = write_config(tmp_path, broker, busy=BUSY)
    path.write_text(path.read_text().replace("[job]\n", f'[job]\ncheckpoint = "{small_disk}"\n'))
    feed = Feed(load_config(path), seed=22)
    feed.panes(2)
    with JobProcess(path) as job:
        job.url()
        await_true(lambda: any(feed.results(feed.plans[0]).values()))
        fill(small_disk)
        feed.panes(2)
        said = last_words(job)
    assert f"no space is left in {small_disk / 'lowmark'}: make room there" in said
    shutil.rmtree(small_disk / "lowmark" / "work")  # which a job does first
    fill(small_disk)
    assert f"no space is left in {small_disk / 'lowmark'}" in refused(path, 1)

    for filling in small_disk.glob("filling*"):
        filling.unlink()
    feed.panes(1, end=True)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    assert feed.results(feed.plans[0]) == feed.expected(feed.plans[0])
