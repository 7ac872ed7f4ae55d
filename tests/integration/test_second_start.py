"""A start that is refused beside a job that is healthy, and one whose checkpoint is an older copy. Neither comes as far
as Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from highlevel.spark.checkpoint import CheckpointFolder
from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.opening import carried_on
from highlevel.spark.sink.transaction import TransactionalSink
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.job.check import foresee_job
from lowmark.app.job.names import job_name
from lowmark.app.job.process import run_job
from lowmark.app.job.start import JobStart
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import transactional_producer
from lowmark.wire.records.sink_token import Token
from tests.integration.jobfeed import BUSY, Feed, write_config

pytestmark = pytest.mark.slow


def test_a_refused_start_leaves_the_healthy_job_alone(broker: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, broker, busy=BUSY)
    config = load_config(path)
    Feed(config, seed=8)  # makes the topics
    start = JobStart(config, plan_queries(config), job_name(config.job.name, None))
    sink = TransactionalSink(config.kafka, start.group, start.token_topic, start.inputs, Watchdog(lambda why: None))
    with sink:
        with CheckpointFolder(start.folder) as folder:
            checkpoint = carried_on(start.standing(folder, *start.committed()), start.history)
            folder.write(checkpoint)
        sink.write([], Token(start.name, checkpoint.id, 1, 7))

        def run(where: str) -> str:
            other = load_config(path)
            other = replace(other, job=replace(other.job, checkpoint=Path(where)))
            with pytest.raises(CheckpointRefused) as refused:
                run_job(
                    other, queries=None, master=None, until_last=True, new_generation=None, progress=lambda text: None
                )
            return str(refused.value)

        assert "is new, but results have been written from checkpoint" in run("elsewhere")
        assert "has planned no batch after -1, but results have been written up to batch 7" in run("checkpoint")
        sink.write([], Token(start.name, checkpoint.id, 1, 8))  # it has not been fenced
        with pytest.raises(CheckpointRefused, match="it is an older copy"):
            foresee_job(config, plan_queries(config), [start.token_topic])

        # The transaction of a process that has died is not waited for.
        left = transactional_producer(config.kafka, start.group)
        left.init_transactions(30)
        left.begin_transaction()
        left.produce(start.token_topic, b"half", partition=0)
        left.flush(30)
        assert "up to batch 8" in run("checkpoint")
