"""The kernel by hand, which the generated one is measured against, does what that does."""

from __future__ import annotations

import ctypes
import shutil

import pytest

from bench.common.frames import Traffic
from bench.host.handmade_kernel import HandMade, compiled_library, differences
from bench.kernel import _MODES, _TEN, _later, nodes_of, packets_of
from lowlevel.config import FlushOrder, LowLevelConfig

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

PACKETS, GROUPS = 40_000, 5_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled_library(tmp_path_factory.mktemp("bench"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("slots", [1 << 10, 1 << 14])
def test_the_same_rows_in_the_same_order(library: ctypes.CDLL, mode: str, slots: int) -> None:
    of = _MODES[mode]
    config = LowLevelConfig(
        slots=slots, flush=of.flush, flush_every=of.flush_every, order=of.order, output_rows=1 << 16
    )  # fmt: skip
    for traffic in (Traffic(GROUPS), Traffic(GROUPS, zipf=True, version=6)):
        blocks = packets_of(traffic, PACKETS)
        for queries in (1, 10) if of.order is FlushOrder.ANY else (1,):
            assert differences(library, nodes_of(_TEN[:queries]), config, [*blocks, *_later(blocks, 1)]) == []


def test_a_difference_is_noticed(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: HandMade, place: int) -> dict[str, int]:
        return {"evicted": -1}

    monkeypatch.setattr(HandMade, "counts", other)
    blocks = packets_of(Traffic(GROUPS), PACKETS)
    (said,) = differences(library, nodes_of(_TEN[:1]), LowLevelConfig(slots=1 << 14, output_rows=1 << 16), blocks)
    assert said.endswith("by hand -1")
    lost = [*blocks[:-1], blocks[0]]
    rows = HandMade.rows
    monkeypatch.setattr(HandMade, "rows", lambda self, place: rows(self, place)[:-1])
    assert len(differences(library, nodes_of(_TEN[:1]), LowLevelConfig(slots=1 << 10, output_rows=1 << 16), lost)) == 2
