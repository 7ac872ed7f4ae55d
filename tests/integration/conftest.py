"""The run of everything that several test files look at: Spark starts once for all of them."""

from __future__ import annotations

import os
import random

import pytest

from tests.integration.pipelinerun import Pipeline, run_pipeline


@pytest.fixture(scope="session")
def pipeline(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The seed decides where micro-batches are cut; PIPELINE_SEED=… repeats one."""
    seed = int(os.environ.get("PIPELINE_SEED") or random.SystemRandom().randrange(10**6))
    print(f"PIPELINE_SEED={seed}")
    run = run_pipeline(tmp_path_factory.mktemp("pipeline"), broker, seed)
    print(f"seconds: {run.seconds}")
    return run
