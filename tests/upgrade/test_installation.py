"""A job goes on from the checkpoint and the topics that a released version has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.kafka.broker import Broker
from lowmark.wire.records.verdicts import Complete
from tests.integration.jobfeed import Feed
from tests.integration.jobprocess import JobProcess
from tests.upgrade.installation import PANES, SEED, moved, rows_of, unpack
from tests.upgrade.stored import FOLDER

pytestmark = pytest.mark.slow

ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_job_goes_on_from_an_installation_of_a_released_version(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    with Broker(tmp_path / "broker") as broker:
        path = moved(tmp_path, broker.bootstrap)
        feed = Feed(load_config(path), SEED)
        feed.panes(PANES, sent=True)
        before = {plan.name: feed.results(plan) for plan in feed.plans}
        feed.panes(4, end=True)
        with JobProcess(path, "--until-last") as job:
            assert job.wait() == 0, job.said
        assert "generation 1, run 2" in job.said
        assert "it takes effect now" not in job.said, "the plan of a query has another digest"
        for plan in feed.plans:
            found, expected = feed.results(plan), feed.expected(plan)
            assert rows_of(found) == rows_of(expected)
            for bucket, told in before[plan.name].items():
                assert found[bucket][: len(told)] == told
                assert len(found[bucket]) > len(told) > 0
                completions = [item for item in found[bucket] if isinstance(item, Complete)]
                assert completions == [item for item in expected[bucket] if isinstance(item, Complete)]


def test_there_is_an_installation_of_a_released_version() -> None:
    assert ARCHIVES
