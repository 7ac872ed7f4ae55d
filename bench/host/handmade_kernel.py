"""The kernel of kernel.c, with tables of its own, and whether it puts out what the generated one does."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lowlevel.config import FlushOrder, LowLevelConfig
from lowlevel.kernel.row_form import RowForm
from lowlevel.node import SourceNodes, _secrets
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock

__all__ = ["HandMade", "compiled_library", "differences"]

_FOLDER = Path(__file__).parent
_SLOT = 8  # words
_LEAST = -(2**62)


class _Node(ctypes.Structure):
    """`node` of kernel.c."""

    _fields_ = (
        ("table", ctypes.c_void_p), ("slots", ctypes.c_int64), ("ring", ctypes.c_void_p),
        ("panes", ctypes.c_int64 * 512),
        *((name, ctypes.c_int64) for name in (
            "head", "length", "open", "open_until", "due", "old", "walk", "done", "hurry", "since",
            "width", "delay", "within", "every", "most",
        )),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in (
            "room", "put", "evicted", "straight", "flushed", "late", "filtered", "taken",
        )),
    )  # fmt: skip


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("nodes", _Node * 10), ("secrets", ctypes.c_uint64 * 16), ("decoded", ctypes.c_int64),
        ("skipped", ctypes.c_int64),
    )  # fmt: skip


def compiled_library(folder: Path) -> ctypes.CDLL:
    library = folder / "kernel.so"
    source = _FOLDER / "kernel.c"
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


class HandMade:
    """For one of the queries of kernel.c, or for all ten."""

    def __init__(
        self, library: ctypes.CDLL, nodes: Sequence[Node], config: LowLevelConfig, seed: int = 1, room: int = 8192
    ) -> None:
        """`room`: rows, a power of two, that are there before they are written over."""
        name = "take_one" if len(nodes) == 1 else "take_ten"
        self._run = getattr(library, f"{name}_in_order" if config.order is FlushOrder.PRESERVED else name)
        self._run.restype = None
        self._kernel = _Kernel()
        self._kernel.secrets = (ctypes.c_uint64 * 16)(*(int(word) % 2**64 for word in _secrets(seed)))
        self._held: list[npt.NDArray[np.generic]] = []
        self._out: list[npt.NDArray[np.int64]] = []
        self._forms = [RowForm(node.reduction) for node in nodes]
        for node, of, form in zip(self._kernel.nodes, nodes, self._forms, strict=False):
            width, words = of.reduction.pane.width, form.words
            raw = np.zeros(_SLOT * config.slots + 16, np.int64)
            ring, out = np.zeros(config.slots, np.uint32), np.zeros((room, words), np.int64)
            node.table, node.ring, node.out = (
                raw.ctypes.data + -raw.ctypes.data % 128,
                ring.ctypes.data,
                out.ctypes.data,
            )
            node.slots, node.room, node.width = config.slots, room, width
            node.open = node.open_until = node.due = _LEAST
            node.delay, node.within = config.delay_panes(), config.within_ns(width)
            node.every, node.most = config.flush_every, config.flush_panes
            self._held += [raw, ring]
            self._out.append(out)

    def take(self, block: FrameBlock) -> None:
        columns = (block.data, block.offset, block.captured, block.length, block.ts, block.link, block.low)
        pointers = (ctypes.c_void_p(column.ctypes.data) for column in columns)
        frames, low_after = ctypes.c_int64(len(block)), ctypes.c_int64(block.low_after)
        self._run(ctypes.byref(self._kernel), *pointers, frames, low_after)

    def rows(self, place: int) -> npt.NDArray[np.int64]:
        """All that a query has put out."""
        put = int(self._kernel.nodes[place].put)
        if put > len(self._out[place]):
            raise ValueError(f"{put} rows were put out, and {len(self._out[place])} are there")
        return self._forms[place].unpacked(self._out[place][:put].view(np.uint64)).view(np.int64)

    def counts(self, place: int) -> dict[str, int]:
        node = self._kernel.nodes[place]
        return {name: int(getattr(node, name)) for name in ("evicted", "straight", "flushed", "late", "filtered")}


def differences(
    library: ctypes.CDLL, nodes: Sequence[Node], config: LowLevelConfig, blocks: Sequence[FrameBlock]
) -> list[str]:
    """Between what the two put out of these packets: none, row by row and in the same order."""
    generated = SourceNodes(nodes, stream="Main", config=config, seed=1)
    generated.start()
    by_hand = HandMade(library, nodes, config, seed=1, room=1 << 21)
    found: dict[str, list[npt.NDArray[np.int64]]] = {node.name: [] for node in nodes}
    for block in blocks:
        for output in generated.take(block):
            found[output.node].append(output.rows.view(np.int64))
        by_hand.take(block)
    said = []
    for place, node in enumerate(nodes):
        # The rest of a block's output is drained with the promise behind it, or with the next block's.
        for output in generated.heartbeat(0) if place == 0 else ():
            found[output.node].append(output.rows.view(np.int64))
        theirs, counts = by_hand.rows(place), by_hand.counts(place)
        ours = np.concatenate([np.empty((0, theirs.shape[1]), np.int64), *found[node.name]])
        of = generated.counts()[node.name]
        if not np.array_equal(ours, theirs):
            said.append(f"{node.name}: {len(ours)} rows, by hand {len(theirs)}")
        said += [
            f"{node.name}: {name} {getattr(of, name)}, by hand {count}"
            for name, count in counts.items()
            if getattr(of, name) != count
        ]
    return said
