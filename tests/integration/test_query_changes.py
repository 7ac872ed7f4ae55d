"""Queries that are added, dropped, changed and come back between the starts of a job: real Kafka, real Spark."""

from __future__ import annotations

from itertools import pairwise

import pytest

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.job.checkpoint_view import describe
from lowmark.app.job.start import JobStart
from lowmark.wire.records.verdicts import Complete
from tests.integration.jobfeed import BUSY, CHOSEN, LEVELS, SLIDING, Feed, write_config
from tests.integration.jobprocess import JobProcess, await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BUSIER = BUSY.replace("> 3", "> 5")


def test_what_stays_goes_on_and_what_joins_tells_each_window_once(broker, tmp_path):
    queries = {"busy": BUSY, "gone": SLIDING, "beside": BUSIER, "levels": LEVELS, "chosen": CHOSEN}
    path = write_config(tmp_path, broker, **queries)
    feed = Feed(load_config(path), seed=21)
    plans = {plan.name: plan for plan in feed.plans}
    text = path.read_text()

    def configure(*names: str, **changed: str) -> None:
        head, *parts = text.split("[queries.")
        kept = [part for part in parts if part.split("]")[0] in names]
        said = "".join(f"[queries.{part}" for part in kept)
        for name, sql in changed.items():
            said = said.replace(queries[name], sql)
        path.write_text(head + said)

    def completions(name: str) -> list[list[Complete]]:
        return [[one for one in of if isinstance(one, Complete)] for of in feed.results(plans[name]).values()]

    configure("busy", "gone", "chosen")
    feed.panes(12)
    with JobProcess(path, "--reload-on-change") as job:
        await_true(lambda: job.ended or (all(completions("busy")) and all(completions("gone"))))
        good = path.read_text()
        path.write_text(good.replace("count(*) > 3", "count(*) >"))
        await_true(lambda: job.ended or "the old one stays in use" in job.said)
        path.write_text(f"# Nothing else.\n{good}")
        await_true(lambda: job.ended or "nothing has changed that concerns the job" in job.said)
        configure("busy", "beside", "levels")
        await_true(lambda: job.ended or "generation 1, run 2" in job.said)
        feed.panes(12)
        await_true(lambda: job.ended or (all(completions("beside")) and all(completions("levels"))))
        job.terminate()
        assert job.wait() == 0, job.said
    said = job.said
    assert said.count("starting Spark") == 1, "it is the same session"
    for name, what in (("gone", "dropped"), ("chosen", "dropped"), ("beside", "new"), ("levels", "new")):
        assert f"query {name} is {what}: it takes effect now" in said
    configure("busy", "beside", "gone", beside=BUSY.replace("> 3", "> 7"))
    feed.panes(12, end=True)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    assert "query beside has another plan now: it takes effect now" in job.said

    assert feed.results(plans["busy"]) == feed.expected(plans["busy"])
    for name in ("busy", "beside", "gone", "levels"):
        for told in completions(name):
            assert all(b.windows.first == a.windows.to + 1 for a, b in pairwise(told)), name
    for told in completions("beside"):
        assert told
        assert not told[-1].verdict.partial
    # One that comes back: what it missed is told as such, what it told before is not told again.
    for bucket, told in enumerate(completions("gone")):
        wanted = [one for one in feed.expected(plans["gone"])[bucket] if isinstance(one, Complete)]
        assert (told[0].windows.first, told[-1].windows.to) == (wanted[0].windows.first, wanted[-1].windows.to)
    job_row, rows = describe(JobStart(load_config(path), tuple(plan_queries(load_config(path))), "lowmark"))
    assert (job_row["run"], job_row["damage"], job_row["token"]["checkpoint"]) == (3, None, job_row["checkpoint"])
    assert [(row["query"], row["generation"], row["state"]) for row in rows] == [
        ("beside", 3, "in use"), ("busy", 1, "in use"), ("gone", 3, "in use"),
    ]  # fmt: skip
    with CheckpointFolder(tmp_path / "checkpoint" / "lowmark") as folder:
        checkpoint = folder.read()
    assert checkpoint is not None
    assert checkpoint.generation == 1
    assert checkpoint.lives == {"beside": 3, "gone": 3}
