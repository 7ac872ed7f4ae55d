"""The Spark job through a real broker: the rows of the buckets, each once, whatever kills it."""

from __future__ import annotations

import json
import random
import shutil
import time
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError

import pytest

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.job.check import foresee_job
from lowmark.app.job.roster import listed_and_excluded
from lowmark.wire.records.verdicts import Complete
from tests.integration.jobfeed import (
    ALONE,
    BUSY,
    CHOSEN,
    CROSSED,
    LEVELS,
    PAIRS,
    RUNS,
    SHARES,
    SLIDING,
    STEPS,
    UNANSWERED,
    Feed,
    write_config,
)
from tests.integration.jobprocess import JobProcess, await_true
from tests.naive.compare import differences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def rows_of(feed: Feed) -> int:
    return sum(len(found) for plan in feed.plans for found in feed.results(plan).values())


def test_every_row_once_through_kills_restarts_and_a_new_generation(broker, tmp_path):
    """Of windows over time, and of what only its input tells apart: a selection, a join, windows over rows with PA.
    What goes through an exchange and has no windows is told again, when that is asked for."""
    queries = {"talkers": SLIDING, "busy": BUSY, "chosen": CHOSEN, "pairs": PAIRS, "runs": RUNS, "steps": STEPS}
    path = write_config(tmp_path, broker, **queries)
    # Batches large enough for four stages, small enough for several before a kill.
    path.write_text(path.read_text().replace("max_offsets_per_trigger = 60", "max_offsets_per_trigger = 200"))
    feed = Feed(load_config(path), seed=7)
    assert [plan.name for plan in feed.plans if plan.exchanges is not None] == ["steps"]
    feed.panes(12)

    for die in ("before:2", "after:2"):
        with JobProcess(path, die=die) as job:
            assert job.wait() == -9, job.said

    with JobProcess(path) as job:
        job.url()
        feed.panes(6)
        time.sleep(random.Random().uniform(0, 4))
        job.kill()

    with JobProcess(path) as job:
        url = job.url()
        assert page(f"{url}/readyz")[0] == 200
        before = rows_of(feed)
        feed.panes(3)
        await_true(lambda: rows_of(feed) > before)
        steps = next(plan for plan in feed.plans if plan.name == "steps")  # whose rows go between buckets before
        await_true(lambda: any(feed.results(steps).values()))
        await_true(lambda: 'lowmark_result_rows_total{query="talkers"}' in page(f"{url}/metrics")[1])
        job.terminate()
        assert job.wait() == 0, job.said
        assert [line for line in job.lines if "worker" in line or "WARN" in line or "Exception" in line] == []

    feed.panes(4, end=True)
    changed = tmp_path / "changed.toml"
    changed.write_text(path.read_text() + '[sources.third]\nstream = "Main"\nfile = "third.pcap"\n')
    assert "At its start, source third joins stream Main" in foresee(changed)
    assert "job lowmark: it goes on, with the checkpoint" in foresee(path)
    told = {plan.name: feed.results(plan) for plan in feed.plans}
    # Not removed: the Java of a job that has been killed still tidies up in there.
    (tmp_path / "checkpoint" / "lowmark").rename(tmp_path / "lost")
    lost = foresee(path)
    assert lost.startswith("job lowmark: not here, for the checkpoint")
    assert "is new, but results have been written" in lost
    assert "on the result topics of steps, " in lost
    with JobProcess(path, "--new-generation") as job:
        assert job.wait() == 2, job.said
    assert "on the result topics of steps, " in job.said
    assert "steps: its rows change their bucket" in job.said
    assert "--repeat-rows" in job.said
    assert {plan.name: feed.results(plan) for plan in feed.plans} == told
    with JobProcess(path, "--new-generation", "--repeat-rows", "--until-last") as job:
        assert job.wait() == 0, job.said

    listed, _ = listed_and_excluded(load_config(changed))
    assert [listed(source, "Main") for source in ("left", "right", "third")] == [True, True, False]
    for plan in feed.plans:
        found, expected = feed.results(plan), feed.expected(plan)
        if plan.name == "steps":
            found = {bucket: items[len(told["steps"][bucket]) :] for bucket, items in found.items()}
        if plan.name in ("talkers", "busy"):
            assert found == expected
        for bucket, items in expected.items():
            # Where there are no windows, which of two rows comes first depends on where micro-batches are cut.
            assert Counter(row for row in found[bucket] if isinstance(row, bytes)) == Counter(
                row for row in items if isinstance(row, bytes)
            )
            if plan.name != "steps":
                assert completions(found[bucket]) == completions(items)
            assert counted(found[bucket]) == []
        assert sum(isinstance(item, Complete) for items in found.values() for item in items) > 20
        assert sum(isinstance(item, bytes) for items in found.values() for item in items) > 100


def foresee(path: Path) -> str:
    """What `lowmark check` says of the job."""
    config = load_config(path)
    plans = plan_queries(config)
    return foresee_job(config, plans, [settings.name for settings in topics_of(config, plans)])


def completions(items: list[object]) -> list[Complete]:
    return [item for item in items if isinstance(item, Complete)]


def counted(items: list[object]) -> list[tuple[Complete, int]]:
    """Completions that count other rows than stand between them and the one before, and how many these are."""
    wrong, rows = [], 0
    for item in items:
        if isinstance(item, Complete):
            wrong += [(item, rows)] if item.rows != rows else []
            rows = 0
        else:
            rows += isinstance(item, bytes)
    return wrong


def test_every_pair_once_through_a_kill_in_mid_join(broker, tmp_path):
    """Of inner joins and of others, whose unmatched rows wait for a promise; of one node and of two."""
    path = write_config(tmp_path, broker, pairs=PAIRS, alone=ALONE, crossed=CROSSED, unanswered=UNANSWERED)
    feed = Feed(load_config(path), seed=11)
    assert [len(plan.stage.nodes) for plan in feed.plans] == [1, 1, 2, 2]
    feed.panes(12)
    with JobProcess(path, die="after:2") as job:
        assert job.wait() == -9, job.said
    feed.panes(6, end=True)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    for plan in feed.plans:
        found, expected = feed.results(plan), feed.expected(plan)
        for bucket in expected:
            # Which of two rows comes first depends on where micro-batches are cut; how far they are complete does not.
            rows = [Counter(item for item in items[bucket] if isinstance(item, bytes)) for items in (found, expected)]
            assert rows[0] == rows[1]
            completions = [
                [item for item in items[bucket] if isinstance(item, Complete)] for items in (found, expected)
            ]  # fmt: skip
            assert completions[0] == completions[1]
        told = [item for items in expected.values() for item in items if isinstance(item, bytes)]
        assert len(told) > (20 if plan.name == "unanswered" else 100)
        if len(plan.stage.nodes) > 1:
            rows = [json.loads(item) for items in found.values() for item in items if isinstance(item, bytes)]
            assert not differences(rows, feed.naive(plan))
        assert any(b"null" in row for row in told) is (plan.name == "alone")


def test_every_row_once_through_exchanges_kills_and_a_lost_checkpoint(broker, tmp_path):
    """Killed when what one bucket has sent to another is on its way; then all that was sent is of a generation that is
    gone."""
    path = write_config(tmp_path, broker, levels=LEVELS, shares=SHARES)
    # Batches large enough for the rows that are sent twice between buckets, small enough for several before a kill.
    text = path.read_text().replace("[job]\n", "[job]\nbuckets = 2\n")
    path.write_text(text.replace("max_offsets_per_trigger = 60", "max_offsets_per_trigger = 200"))
    feed = Feed(load_config(path), seed=12)
    assert all(plan.exchanges is not None and plan.stage.buckets > 1 for plan in feed.plans)
    feed.panes(24)
    for die in ("after:2", "before:1"):
        with JobProcess(path, die=die) as job:
            assert job.wait() == -9, job.said
    feed.panes(6, end=True)
    # Not removed: the Java of a job that has been killed still tidies up in there.
    (tmp_path / "checkpoint" / "lowmark").rename(tmp_path / "lost")
    with JobProcess(path, "--new-generation", "--until-last") as job:
        assert job.wait() == 0, job.said
    for plan in feed.plans:
        found, expected = feed.results(plan), feed.expected(plan)
        for bucket in expected:
            rows = [Counter(item for item in items[bucket] if isinstance(item, bytes)) for items in (found, expected)]
            assert rows[0] == rows[1]
            told = [item for item in found[bucket] if isinstance(item, Complete)]
            assert all(complete.verdict.exact for complete in told)
            assert all(b.windows.first == a.windows.to + 1 for a, b in pairwise(told))
            wanted = [item for item in expected[bucket] if isinstance(item, Complete)]
            assert (told[0].windows.first, told[-1].windows.to) == (wanted[0].windows.first, wanted[-1].windows.to)
    assert rows_of(feed) > 50


def test_a_lost_checkpoint_an_older_one_and_a_second_job_are_refused(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    feed = Feed(load_config(path), seed=8)
    feed.panes(3)
    checkpoint = tmp_path / "checkpoint" / "lowmark"
    with JobProcess(path) as job:
        job.url()
        with JobProcess(path) as second:
            assert second.wait() == 1
        assert "in use by process" in second.lines[-1]
        await_true(lambda: rows_of(feed) > 0)
        rival = tmp_path / "rival.toml"
        rival.write_text(path.read_text().replace("[job]\n", '[job]\nname = "rival"\n'))
        with JobProcess(rival) as second:
            assert second.wait() == 2
        assert "job lowmark writes those of busy. End that job" in second.lines[-1]
        before = rows_of(feed)
        feed.panes(2)
        await_true(lambda: rows_of(feed) > before)  # those that were refused have not disturbed it
        job.terminate()
        assert job.wait() == 0, job.said
    shutil.copytree(checkpoint, tmp_path / "older")

    feed.panes(2, end=True)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 0, job.said
    told = feed.results(feed.plans[0])
    assert told == feed.expected(feed.plans[0])
    checkpoint.rename(tmp_path / "newest")
    (tmp_path / "older").rename(checkpoint)
    with JobProcess(path, "--until-last") as job:
        assert job.wait() == 2
    assert "it is an older copy" in job.lines[-1]
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    assert feed.results(feed.plans[0]) == told

    checkpoint.rename(tmp_path / "elsewhere")
    with JobProcess(path) as job:
        assert job.wait() == 2
    assert "is new, but results have been written from checkpoint" in job.said
    assert "--new-generation" in job.said
    assert "Traceback" not in job.said

    shutil.rmtree(checkpoint)
    (tmp_path / "elsewhere").rename(checkpoint)
    text = path.read_text()
    fewer = text.replace('[sources.right]\nstream = "Main"', '[sources.right]\nstream = "Other"')
    for other, said in (
        (f'{text}[sources.third]\nstream = "Main"\nfile = "third.pcap"\n', "source third joins stream Main"),
        (fewer, "source right leaves stream Main"),
    ):
        path.write_text(other)
        assert said in foresee(path)
    path.write_text(text.replace("count(*) > 3", "count(*) > 4"))
    assert "query busy has another plan: it tells windows from the frontier of its stage on" in foresee(path)


def test_a_job_that_has_ended_ends_again_at_once(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    feed = Feed(load_config(path), seed=9)
    feed.panes(2, end=True)
    for _ in range(2):
        with JobProcess(path, "--until-last") as job:
            assert job.wait() == 0, job.said
        assert feed.results(feed.plans[0]) == feed.expected(feed.plans[0])
    with CheckpointFolder(tmp_path / "checkpoint" / "lowmark") as folder:
        checkpoint = folder.read()
    assert checkpoint is not None
    assert checkpoint.run == 2
    assert len(checkpoint.ended) == feed.plans[0].stage.buckets


FAILING = """\
from highlevel.progress.driver import BucketDriver
def take(self, record, arrival):
    raise RuntimeError("no room in the attic")
BucketDriver.take = take
"""


def test_a_failing_operator_stops_the_job_and_says_where(broker, tmp_path):
    path = write_config(tmp_path, broker, busy=BUSY)
    feed = Feed(load_config(path), seed=10)
    feed.panes(2)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(FAILING)
    with JobProcess(path, python_path=str(broken)) as job:
        assert job.wait() == 1, job.said
    stage = feed.plans[0].stage.fingerprint
    assert f"of stage {stage} (queries: busy): no room in the attic" in job.lines[-1]
    assert "java" not in job.said.lower()
    assert "Traceback" not in job.said
