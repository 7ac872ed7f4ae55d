"""Fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where clients find a real Kafka broker that this session's tests share: name topics apart."""
    from lowmark.app.broker import Broker  # tests without a broker do not pay for Kafka's client

    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started.bootstrap
