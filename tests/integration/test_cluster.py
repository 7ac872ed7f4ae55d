"""A job on a cluster: a master, two workers, the driver, brokers and an S3 server on hosts of their own, with no common
path. Whatever is killed, each result is there once."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from threading import Event

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.job.packed import pack
from lowmark.app.kafka.jars import S3A, SPARK_KAFKA
from lowmark.wire.kafka.clients import admin, ensure_topics, topic_ids
from lowmark.wire.kafka.settings import KafkaSettings
from lowmark.wire.kafka.topics import Provision, Topic, TopicKind, settings_of
from tests.fixtures.sparkhosts import SparkHosts, await_true, kill, spark_hosts
from tests.integration.jobfeed import LEVELS, SLIDING, Feed, write_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHosts]:
    folder = tmp_path_factory.mktemp("cluster")
    with spark_hosts(folder / "hosts", lambda: pack(folder / "packed", (SPARK_KAFKA, S3A), (), False, print)) as found:
        yield found


def configured(folder: Path, cluster: SparkHosts, checkpoint: str, spark: dict[str, str]) -> Path:
    path = write_config(folder, cluster.bootstrap, talkers=SLIDING, levels=LEVELS)
    text = path.read_text().replace("[job]", f'[job]\nmaster = "{cluster.master}"\ncheckpoint = "{checkpoint}"')
    text = text.replace("[topics]", "[topics]\nreplication = 3")
    settings = {"spark.executor.memory": "512m", "spark.driver.host": cluster.driver.address, **spark}
    path.write_text(f"{text}[job.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items()))
    return path


def rows_of(feed: Feed) -> int:
    return sum(len(found) for plan in feed.plans for found in feed.results(plan).values())


def test_topics_are_made_while_brokers_are_away_and_come_back(cluster):
    """A broker that comes back has not heard yet of what was made without it, and questions go to any broker."""
    client, done = admin(KafkaSettings(cluster.bootstrap)), Event()

    def pauses() -> None:
        for node in cycle(cluster.brokers):
            if done.is_set():
                return
            cluster.signal_broker(node, signal.SIGSTOP)
            try:
                done.wait(1)
            finally:
                cluster.signal_broker(node, signal.SIGCONT)
            done.wait(0.3)

    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(pauses)
        try:
            for number in range(10):
                wanted = [
                    settings_of(Topic(TopicKind.PARTIALS, f"paused{number}-{each}"), 4, Provision(replication=3))
                    for each in range(6)
                ]
                assert ensure_topics(client, wanted) == []
                assert topic_ids(client, [topic.name for topic in wanted]).keys() == {topic.name for topic in wanted}
        finally:
            done.set()
        paused.result()


def test_a_host_that_does_not_see_the_checkpoint_is_refused_and_writes_nothing(cluster, tmp_path):
    """`lowmark run` with a driver of its own, whose checkpoint is a folder of the driver's host alone."""
    archive = {"spark.archives": f"{cluster.packed}/environment.tar.gz#environment"}
    path = configured(tmp_path, cluster, "checkpoint", archive | {"spark.pyspark.python": "./environment/bin/python"})
    Feed(load_config(path), seed=1)
    job = cluster.run("run", "-c", str(path))
    assert job.wait(300) == 1
    said = (cluster.driver.folder / "driver.out").read_text()
    assert "cannot work for this job: it does not see the checkpoint" in said, said
    assert any(
        f"host {name} cannot" in said
        for name in (each for worker in cluster.workers for each in (worker.name, worker.address))
    ), said
    written = {entry.name for entry in (tmp_path / "checkpoint" / "lowmark").iterdir()}
    assert written <= {"lock", "nonce", "work", "spark.log"}
    for worker in cluster.workers:
        assert not [*worker.folder.rglob("lowmark.json"), *worker.folder.rglob("state")]
        worker.run("test", "!", "-e", str(tmp_path))


@pytest.mark.skipif(
    not os.environ.get("LOWMARK_TEST_KILLS"),
    reason="three to four minutes on a busy machine, and not yet seen to pass often: LOWMARK_TEST_KILLS=1 runs it",
)
def test_each_result_is_there_once_whatever_is_killed(cluster, tmp_path):
    """Some are killed while others start; and the store of the checkpoint does not answer for a while."""
    path = configured(tmp_path, cluster, "s3a://checkpoints/job", cluster.s3)
    seed = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CLUSTER_SEED={seed}")
    chance, feed = random.Random(seed), Feed(load_config(path), seed=2)
    feed.panes(6)
    submitted = (str(cluster.packed / "lowmark-job.py"), "run", "-c", str(path), "--until-last")
    job = cluster.submit(*submitted)

    def await_said(condition: Callable[[str], bool]) -> None:
        def met() -> bool:
            said = (cluster.driver.folder / "driver.out").read_text()
            assert job.poll() is None, said
            return condition(said)

        await_true(met, cluster.driver.folder)

    def progress() -> None:
        before = rows_of(feed)
        feed.panes(3)
        await_said(lambda said: rows_of(feed) > before)

    progress()
    one, two = cluster.workers
    cluster.kill_broker(1)
    pythons = one.processes("environment/bin/python")  # from the archive: one that starts others, and these
    kill([chance.choice(pythons)])
    progress()
    kill(cluster.executors(one))
    cluster.start_broker(1)
    progress()
    kill(two.processes("spark"))  # the worker and its executor
    cluster.start_worker(two)
    store = cluster.services.processes("moto.server")
    kill(store, signal.SIGSTOP)
    try:
        feed.panes(3)
        await_said(lambda said: "the checkpoint at s3a://checkpoints/job/lowmark has taken no file for" in said)
    finally:
        kill(store, signal.SIGCONT)
    await_said(lambda said: "the checkpoint at s3a://checkpoints/job/lowmark takes files again" in said)
    progress()
    kill(cluster.driver.processes("lowmark-job"))
    job.wait(30)
    job = cluster.submit(*submitted)
    feed.panes(2, end=True)
    assert job.wait(300) == 0, (cluster.driver.folder / "driver.out").read_text()
    for plan in feed.plans:
        feed.assert_told(plan)
