"""A start that is refused beside a job that is healthy, and one whose checkpoint is an older copy. Neither comes as far
as Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from highlevel.spark.checkpoint.start_conditions import carried_on
from highlevel.spark.errors import CheckpointRefused
from highlevel.spark.sink.claims import Claims
from highlevel.spark.sink.token_notes import note_of, note_of_owner
from highlevel.spark.sink.tokens import restated
from highlevel.spark.sink.transaction import Note, read_notes
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.job.check import foresee_job
from lowmark.app.job.names import job_name
from lowmark.app.job.process import Beginning, run_job
from lowmark.app.job.start import JobStart
from lowmark.watchdog import Watchdog
from lowmark.wire.kafka.clients import transactional_producer
from tests.integration.jobfeed import BUSY, Feed, write_config

pytestmark = pytest.mark.slow


def test_a_refused_start_leaves_the_healthy_job_alone(broker: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, broker, busy=BUSY)
    config = load_config(path)
    Feed(config, seed=8)  # makes the topics
    start = JobStart(config, plan_queries(config), job_name(config.job.name, None))
    claims = Claims(config.kafka, 60, Watchdog(lambda why: None))
    places = start.buckets
    with CheckpointFolder(start.folder) as folder:
        checkpoint = carried_on(
            start.standing(folder, start.written(partial(read_notes, config.kafka), None)), start.history
        )
        folder.write(checkpoint)
    claims.fence([*places.values(), *start.queries.values()])

    def wrote(batch: int) -> Mapping[str, Note]:
        token = restated(None, start.name, checkpoint.id, 1)
        return {place.name: note_of(replace(token, batch=batch)) for place in places.values()}

    claims.write(wrote(7) | {at.name: note_of_owner(start.owners[query]) for query, at in start.queries.items()})

    def run(where: str, name: str = "lowmark") -> str:
        other = load_config(path)
        other = replace(other, job=replace(other.job, checkpoint=where, name=name))
        with pytest.raises(CheckpointRefused) as refused:
            run_job(other, queries=None, master=None, until_last=True, beginning=Beginning(), progress=lambda _: None)
        return str(refused.value)

    assert "is new, but results have been written from checkpoint" in run("elsewhere")
    assert "has planned no batch after -1, but results have been written up to batch 7" in run("checkpoint")
    assert "job lowmark writes those of busy. End that job" in run("elsewhere", "rival")
    claims.write(wrote(8))  # it has not been fenced
    with pytest.raises(CheckpointRefused, match="it is an older copy"):
        foresee_job(config, plan_queries(config), [settings.name for settings in topics_of(config, start.plans)])

    # The transaction of a process that has died is not waited for.
    place = next(iter(places.values()))
    left = transactional_producer(config.kafka, place.name)
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(place.topic, b"half", partition=0)
    left.flush(30)
    assert "up to batch 8" in run("checkpoint")
