"""The traffic of the benchmark of PUNCTUATE ON: connections that close, and are promised."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.closings import SQL, connections
from bench.kernel import nodes_of
from lowlevel.config import LowLevelConfig
from lowlevel.node import SourceNodes


@pytest.mark.parametrize(("closing", "promised"), [(True, 45), (False, 0)])
def test_each_connection_closes_once(closing: bool, promised: int) -> None:
    """Five close every 9 s, for the last time at the end; two seconds later they are promised."""
    nodes = SourceNodes(nodes_of([f"{SQL} PUNCTUATE ON conn"]), stream="Main", config=LowLevelConfig(slots=64))
    nodes.start()
    outputs = [output for block in connections(500, 5, 10, closing, block=4) for output in nodes.take(block)]
    told = Counter(value for output in outputs for closed in output.closed for value in closed.values.tuples())
    assert (len(told), told.total()) == (promised, promised)
    outputs += nodes.finish()
    assert sum(int(output.rows[:, 2].sum()) for output in outputs) == 500
