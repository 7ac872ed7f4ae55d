"""The images that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.images import Images, build, build_image
from tests.fixtures import docker


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="session")
def images(build_folder: Path) -> Iterator[Images]:
    """That of the capture is built."""
    with docker.engine() as engine, build(engine, build_folder) as images:
        build_image(images, build_folder, "capture")
        yield images


@pytest.fixture(scope="session")
def both_images(images: Images, build_folder: Path) -> Images:
    """That of the job is built, too."""
    if not os.environ.get("LOWMARK_TEST_JOB_IMAGE"):
        pytest.skip("building the job's image takes a minute or more: LOWMARK_TEST_JOB_IMAGE=1 has it built and tested")
    build_image(images, build_folder, "job")
    return images
