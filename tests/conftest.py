"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# What an assertion of a helper compares is shown as that of a test is.
pytest.register_assert_rewrite(*(f"tests.{entry.name}" for entry in Path(__file__).parent.iterdir() if entry.is_dir()))

# The first call of a kernel compiles it, on a loaded machine for seconds. CI draws the same examples in every run: what
# it says of a change is about the change. Everywhere else each run draws anew.
settings.register_profile("lowmark", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("lowmark")

# Processes that share the tests (pytest-xdist) ignore SIGINT, and what they start would inherit that: no Ctrl-C would
# end it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where clients find a real Kafka broker that this session's tests share: name topics apart."""
    from lowmark.app.kafka.broker import Broker  # tests without a broker do not pay for Kafka's client

    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started.bootstrap
