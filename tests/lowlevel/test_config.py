"""Settings of the low level: what can be, what it means, and what is refused."""

from __future__ import annotations

import pytest

from lowlevel.config import Flush, LowLevelConfig, LowLevelConfigError, table_size


def test_a_table_is_as_large_as_its_memory_allows() -> None:
    assert table_size("4096") == (4096, 0)
    assert table_size("64M") == table_size("64 MiB") == (0, 64 << 20)
    assert table_size("2g") == (0, 2 << 30)
    config = LowLevelConfig(memory="64M")
    assert config.slots_of(68) == 1 << 19
    assert config.slots_of(64) == 1 << 20
    assert LowLevelConfig(memory="1K").slots_of(4096) == 1
    assert LowLevelConfig(slots=8).slots_of(68) == 8


@pytest.mark.parametrize("text", ["", "0", "-1", "64X", "M", "1.5M"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(LowLevelConfigError, match="64M"):
        table_size(text)


def test_what_cannot_be_together() -> None:
    with pytest.raises(LowLevelConfigError, match="power of two"):
        LowLevelConfig(slots=3)
    with pytest.raises(LowLevelConfigError, match="64M"):
        LowLevelConfig(memory="4096")
    with pytest.raises(LowLevelConfigError, match="slow"):
        LowLevelConfig(flush=Flush.LAZY, flush_every=160)


def test_how_long_a_partial_may_stay() -> None:
    assert LowLevelConfig(flush_every=160, flush_panes=2).patience_ns(60) == 120
    assert LowLevelConfig(flush=Flush.LAZY, flush_panes=2).patience_ns(60) == 120
    assert LowLevelConfig(flush=Flush.FULL).patience_ns(60) == 0
