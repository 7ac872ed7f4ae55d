"""The heartbeat of the nodes on a source that may have to wait for data."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lowlevel.node import NodeOutput, SourceNodes
from lowmark.wire.frames import FrameBlock

__all__ = ["Beating"]

_EVERY_NS = 200_000_000


class Beating:
    """Passes blocks to the nodes, and calls their heartbeat: between the blocks of a live source, which come all the
    time, and at the empty blocks of a waiting pipe, followed file or replay. A waiting source still sends the panes
    that it has promised. It promises nothing more, because the clock of its packets is unknown."""

    def __init__(self, nodes: SourceNodes) -> None:
        self._nodes = nodes
        self._beaten_ns = 0

    def take(self, block: FrameBlock) -> Iterator[NodeOutput]:
        yield from self._nodes.take(block)
        if block.taken_ns is None and len(block):
            return
        clock_ns = time.monotonic_ns()
        if clock_ns - self._beaten_ns >= _EVERY_NS:
            self._beaten_ns = clock_ns
            yield from self._nodes.heartbeat(clock_ns)
