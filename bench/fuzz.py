"""`python -m bench.fuzz`: the fast build of the kernel and the checked one agree on any number of damaged frames.

The checked build looks at every index and loads bytes one by one; it is what the fast one has to equal. Frames of every
encapsulation and tunnel are overwritten in some bytes and cut anywhere. Ends with exit code 1 and the seed of the first
block on which they differ. With `--guided` coverage leads instead (`bench.host.guided_fuzz`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from bench.host.guided_fuzz import Target, guided
from lowlevel.kernel.codegen.assemble import Build
from lowlevel.node import SourceNodes
from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.compile import compile_query
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock
from lowmark.wire.rows.words import Words
from tests.lowlevel.frames import IP_PACKETS, LINKS, encapsulations
from tests.lowlevel.tunnelled import frames as tunnels

__all__ = ["differing", "fuzz", "fuzzed_node"]

_BLOCK = 8192
_MOST_CHANGES = 4
_SELECTED = ", ".join(field.name for field in (*PACKET_FIELDS, *DERIVED_FIELDS))


@dataclass(frozen=True, slots=True, eq=False)
class _Seeds:
    """Whole frames, one a row, with their lengths and link types."""

    data: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int64]
    link: npt.NDArray[np.int32]


def _seeds() -> _Seeds:
    whole = [frame for packet in IP_PACKETS.values() for frame in encapsulations(packet).values()]
    whole += [(1, frame) for frame in tunnels().values()]
    data = np.zeros((len(whole), max(len(frame) for _, frame in whole)), np.uint8)
    for place, (_, frame) in enumerate(whole):
        data[place, : len(frame)] = np.frombuffer(frame, np.uint8)
    lengths = np.array([len(frame) for _, frame in whole], np.int64)
    return _Seeds(data, lengths, np.array([link for link, _ in whole], np.int32))


def _block(seeds: _Seeds, seed: int) -> FrameBlock:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(seeds.length), _BLOCK)
    data, width = seeds.data[chosen], seeds.data.shape[1]
    for _ in range(_MOST_CHANGES):
        changed = np.flatnonzero(rng.random(_BLOCK) < 0.5)
        data[changed, rng.integers(0, seeds.length[chosen[changed]])] = rng.integers(0, 256, len(changed))
    length = seeds.length[chosen]
    captured = np.where(rng.random(_BLOCK) < 0.5, length, rng.integers(0, length + 1))
    link = seeds.link[chosen]
    link = np.where(rng.random(_BLOCK) < 0.05, rng.choice(np.array(LINKS, np.int32), _BLOCK), link).astype(np.int32)
    ts = np.arange(_BLOCK, dtype=np.int64)
    low = np.zeros(_BLOCK, np.int64)
    offset = np.arange(_BLOCK, dtype=np.int64) * width
    return FrameBlock(data.reshape(-1), offset, captured, length, ts, link, low, 0)


def fuzzed_node() -> Node:
    (node,) = compile_query(f"SELECT {_SELECTED} FROM Main", name="fuzz", streams={"Main": 1}, buckets=1).stage.nodes
    return node


def _nodes(build: Build) -> SourceNodes:
    nodes = SourceNodes([fuzzed_node()], stream="Main", build=build, seed=1)
    nodes.start()
    return nodes


def _rows(nodes: SourceNodes, block: FrameBlock) -> Words:
    outputs = [*nodes.take(block), *nodes.heartbeat(0)]
    return np.concatenate([output.rows for output in outputs])


def differing(frames: int, seed: int) -> int | None:
    """The seed of the first block on which the builds differ; None when they agree on at least so many frames."""
    seeds, fast, checked = _seeds(), _nodes(Build.FAST), _nodes(Build.CHECKED)
    for number in range(seed, seed + -(-frames // _BLOCK)):
        block = _block(seeds, number)
        same = np.array_equal(_rows(fast, block), _rows(checked, block))
        if not same or fast.skipped != checked.skipped:
            return number
    return None


def fuzz(
    frames: Annotated[int, typer.Option(help="Damaged frames.")] = 10_000_000,
    seed: Annotated[int | None, typer.Option(help="Of the first block. Default: from the clock.")] = None,
    guide: Annotated[
        Target | None, typer.Option("--guided", help="Led by coverage, in place of that: of the parser or the readers.")
    ] = None,
    seconds: Annotated[int, typer.Option(help="How long it is led.")] = 60,
) -> None:
    begun = time.monotonic()
    first = time.time_ns() // 1_000_000 if seed is None else seed
    if guide is not None:
        guided(fuzzed_node(), guide, seconds, first % 2**31)
    found = differing(frames, first)
    if found is not None:
        print(f"the builds differ: python -m bench.fuzz --seed {found} --frames 1")
        raise typer.Exit(1)
    print(f"the builds agree on {frames:,} damaged frames (seed {first}, {time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    typer.run(fuzz)
