"""What the tests of the sink's side share."""

from __future__ import annotations

import pytest

from tests.spark.place import Place


@pytest.fixture
def place(broker: str) -> Place:
    return Place(broker)
