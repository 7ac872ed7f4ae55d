"""What leaves a kernel does not depend on how many frames it takes at a time."""

from __future__ import annotations

from random import Random

import pytest

from lowlevel import node_memory as table
from lowlevel.config import Flush, LowLevelConfig
from lowlevel.kernel import cache
from lowlevel.kernel.codegen import assemble
from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from tests.lowlevel.merging import merged_rows
from tests.lowlevel.plans import SECOND
from tests.lowlevel.test_table import NODES, Audit, Packet, blocks, expected

RANK = 3


@pytest.mark.slow  # each is a kernel to compile
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_whatever_the_batch(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setitem(assemble._CONSTANTS, "BATCH", batch)
    monkeypatch.setattr(table, "BATCH", batch)
    # Kernels are kept by what they are made of, and of this the cache does not know.
    reductions = [node.reduction for node in NODES]
    text, literals = assemble.assemble(reductions, Build.FAST)
    assert f"\nBATCH = {batch}\n" in text
    kinds = [kind for _, kind in assemble.kernel_parameters(reductions, [False] * len(reductions))]
    run = cache.compile_kernel(text, kinds).load()
    monkeypatch.setattr("lowlevel.node.kernel", lambda *_: (run, literals))
    random = Random(5)
    stream = [
        Packet(
            ts=random.randrange(40) * SECOND // 4 + 17,
            source=random.randrange(12),
            dest=random.randrange(5),
            ports=(random.choice((0, 1, 2, 3, 40000)), random.choice((9, 80))),
            ttl=random.choice((0, 1, 255)),
        )
        for _ in range(700)
    ]
    for slots, flush in ((1, Flush.SLOW), (16, Flush.SLOW), (16, Flush.LAZY), (256, Flush.FULL)):
        config = LowLevelConfig(slots=slots, flush=flush, output_rows=64)
        nodes = SourceNodes(NODES, stream="Main", rank=RANK, config=config, seed=2)
        nodes.start()
        audit = Audit(nodes, config)
        for frames in blocks(stream, [1, 64, 100, 350]):
            audit.take(nodes.take(frames))
        audit.take(nodes.finish())
        for node in NODES[:-1]:
            assert merged_rows(node.reduction, audit.rows[node.name]) == expected(node, stream, RANK)
