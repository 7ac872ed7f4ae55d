"""`python -m bench.fuzz --guided parser` (or `readers`): frames and captures that coverage leads to.

Atheris (`pip install --group fuzz`) sees which branches of a parser's Python text an input takes, and changes those
inputs further that took new ones. The text is the checked build's, and the walkers' of the capture formats, run as
plain Python; what the native code makes of the same bytes has to be equal.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import numpy as np
import typer

from ingest.files import pcap, pcapng
from ingest.files.capture import open_capture
from ingest.files.errors import CaptureError
from lowlevel.kernel.codegen.assemble import Build, SkipReason, assemble
from lowlevel.kernel.inlined.community import SCHEDULE
from lowlevel.node import SourceNodes
from lowlevel.node_memory import NodeMemory
from lowmark.query.plan.nodes import Node
from lowmark.wire.frames import FrameBlock
from tests.fixtures import captures as build
from tests.lowlevel.frames import IP_PACKETS, LINKS, encapsulations
from tests.lowlevel.tunnelled import frames as tunnels

__all__ = ["Target", "frame_inputs", "guided", "parser_test"]

_KERNEL = "kernel"
_COLUMNS = ("offset", "captured", "length", "ts", "link")
_NOTHING = np.empty(0, np.int32)


class Target(Enum):
    PARSER = "parser"
    READERS = "readers"


def _frame_of(data: bytes) -> FrameBlock:
    """An input's first byte chooses the link type, the rest is the frame."""
    frame = np.frombuffer(data[1:] or b"\0", np.uint8)
    size = np.array([len(data) - 1], np.int64)
    zero = np.zeros(1, np.int64)
    link = np.array([LINKS[data[0] % len(LINKS)]], np.int32)
    return FrameBlock(frame, zero, size, size, zero, link, zero, 0)


def _cut(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


_PRIMITIVES: dict[str, object] = {
    "of_width": lambda rows, words: rows,
    "wrap_mul": lambda a, b: _cut(int(a) * int(b)),
    "wrap_sub": lambda a, b: _cut(int(a) - int(b)),
    "high_unsigned": lambda a, b: _cut((int(a) % (1 << 64)) * (int(b) % (1 << 64)) >> 64),
}
"""What plain Python lacks of the names that a parser's kernel uses."""


def _plain_parser(node: Node, instrument: Callable[[FunctionType], FunctionType]) -> Callable[[FrameBlock], list[int]]:
    """The checked build of a selection's kernel as plain Python: of a block of one frame its row, or why it was
    skipped."""
    text, literals = assemble([node.reduction], Build.CHECKED)
    names: dict[str, object] = {}
    exec(compile(text.replace("@njit(**INNER)", ""), _KERNEL, "exec"), names)  # of our own making, as for the compiler
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__code__.co_filename == _KERNEL:
            names[name] = instrument(value)
    names |= _PRIMITIVES
    run = names["run"]
    assert isinstance(run, FunctionType)

    def parsed(block: FrameBlock) -> list[int]:
        memory = NodeMemory(node.reduction, SourceNodes([node], stream="Main")._config, 0, 0)
        progress, skipped = np.zeros(3, np.int64), np.zeros(len(SkipReason), np.int64)
        columns = (block.data, block.offset, block.captured, block.length, block.ts, block.link, block.low, _NOTHING)
        shared = (0, 2**62, 0, progress, skipped, np.zeros(16, np.int64), np.zeros(SCHEDULE, np.int64))
        run(*columns, *shared, literals, *memory.arguments)
        rows = memory.drain()
        return rows[0].tolist() if len(rows) else skipped.tolist()

    return parsed


def guided(node: Node, target: Target, seconds: int, seed: int) -> None:
    """Ends the process: with another exit code than 0 when an input made a difference, which is told and kept."""
    if find_spec("atheris") is None:
        print("the guided form takes Atheris: python -m pip install --group fuzz", file=sys.stderr)
        raise typer.Exit(2)
    import atheris

    with tempfile.TemporaryDirectory(prefix="lowmark-fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        if target is Target.PARSER:
            test = parser_test(node, atheris.instrument_func)
            _keep(corpus, frame_inputs())
        else:
            test = _readers(Path(folder) / "capture", atheris.instrument_func)
            _keep(corpus, _captures())
        options = [f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=2048", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], test)
        atheris.Fuzz()


def _keep(corpus: Path, inputs: Mapping[str, bytes]) -> None:
    for name, data in inputs.items():
        (corpus / name).write_bytes(data)


def frame_inputs() -> dict[str, bytes]:
    whole = [frame for packet in IP_PACKETS.values() for frame in encapsulations(packet).values() if frame[0] in LINKS]
    whole += [(1, frame) for frame in tunnels().values()]
    return {f"frame-{place}": bytes([LINKS.index(link)]) + frame for place, (link, frame) in enumerate(whole)}


def parser_test(node: Node, instrument: Callable[[FunctionType], FunctionType]) -> Callable[[bytes], None]:
    """AssertionError for an input that the native parser reads otherwise than the plain one."""
    plain, native = _plain_parser(node, instrument), SourceNodes([node], stream="Main", seed=1)
    native.start()

    def test(data: bytes) -> None:
        if not data:
            return
        block = _frame_of(data)
        native._progress[:], native._skipped[:] = 0, 0
        rows = [row for output in (*native.take(block), *native.heartbeat(0)) for row in output.rows.tolist()]
        found = rows[0] if rows else list(native.skipped.values())
        if (expected := plain(block)) != found:
            raise AssertionError(f"frame {data[1:].hex()} of link type {block.link[0]}: {found}, not {expected}")

    return test


def _captures() -> dict[str, bytes]:
    frames = [bytes(60), bytes(range(90))]
    found = {}
    for order, name in (("<", "little"), (">", "big")):
        blocks = [build.section(order), build.interface(order, resolution=9, offset_s=7)]
        for make in (build.enhanced, build.obsolete):
            blocks += [make(order, 0, 5, frame, len(frame)) for frame in frames]
        blocks += [build.simple(order, frame, len(frame)) for frame in frames]
        found[f"pcapng-{name}"] = b"".join(blocks)
        found[f"pcap-{name}"] = bytes(build.pcap([(frame, 99, 1, 2) for frame in frames], order=order).data)
    return found


def _readers(path: Path, instrument: Callable[[FunctionType], FunctionType]) -> Callable[[bytes], None]:
    formats = (pcap, pcapng)
    native = [module._walk for module in formats]
    plain = [_plain(module._walk.__wrapped__, instrument) for module in formats]
    for method, function in list(vars(pcapng.PcapngWalker).items()):
        if isinstance(function, FunctionType):
            setattr(pcapng.PcapngWalker, method, instrument(function))

    def read(walks: Sequence[object]) -> object:
        for module, walk in zip(formats, walks, strict=True):
            vars(module)["_walk"] = walk
        try:
            capture = open_capture(str(path))
        except CaptureError as error:
            return str(error)
        columns = [frames.columns for frames in capture.blocks()]
        capture.close()
        of = [[getattr(one, name).tolist() for name in _COLUMNS] for one in columns]
        return of, str(capture.damages)

    def test(data: bytes) -> None:
        path.write_bytes(data)
        found, expected = read(native), read(plain)
        if found != expected:
            raise AssertionError(f"capture {data.hex()}: {found}, not {expected}")

    return test


def _plain(walk: FunctionType, instrument: Callable[[FunctionType], FunctionType]) -> FunctionType:
    names = {**walk.__globals__, "prefetch": lambda data, at: None}
    return instrument(FunctionType(walk.__code__, names, walk.__name__, walk.__defaults__))
