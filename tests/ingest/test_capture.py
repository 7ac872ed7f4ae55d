"""Reading captures: every variant of the formats, wherever they are cut, whatever stands in them."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import dpkt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapNgReader

from ingest.columns import LARGEST
from ingest.files.capture import CaptureFile, open_capture
from ingest.files.errors import CaptureError
from lowmark.wire.frames import BAD_TIME, NO_TIME, UNKNOWN_INTERFACE
from tests.fixtures import captures
from tests.fixtures.captures import Built, Frame, delivered

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "queries" / "cases"

packets = st.lists(
    st.tuples(st.binary(max_size=70), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    max_size=12,
)
in_tmp = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def read(path: Path, data: bytes, **sizes: int) -> tuple[list[Frame], CaptureFile]:
    path.write_bytes(data)
    capture = open_capture(str(path))
    frames = list(delivered(capture, **sizes))
    capture.close()
    return frames, capture


def told(capture: CaptureFile) -> str:
    (damage,) = capture.damages
    return str(damage)


def unknown(data: bytes, length: int) -> Frame:
    return Frame(data, length, 0, UNKNOWN_INTERFACE)


def mixed(order: str = "<") -> Built:
    """A pcapng with everything that may stand in one."""
    built, other = Built(), ">" if order == "<" else "<"
    built.add(captures.section(order))
    built.add(captures.interface(order))
    built.add(captures.interface(order, 101, 20, resolution=9, offset_s=-3))
    built.add(
        captures.enhanced(order, 0, 1_700_000_000_123_456, b"abcde", 60),
        Frame(b"abcde", 60, 1_700_000_000_123_456_000, 1),
    )
    built.add(captures.block(order, 5, b"statistics.."))
    built.add(captures.enhanced(order, 1, 5_000_000_007, b"", 0), Frame(b"", 0, 2_000_000_007, 101))
    built.add(captures.enhanced(order, 2, 1, b"of no interface", 15), unknown(b"of no interface", 15))
    built.add(captures.obsolete(order, 1, 4_000_000_000, b"xyz", 3), Frame(b"xyz", 3, 1_000_000_000, 101))
    built.add(captures.obsolete(order, 9, 4_000_000_000, b"xyz", 3), unknown(b"xyz", 3))
    built.add(captures.simple(order, b"simply", 6), Frame(b"simply", 6, 0, NO_TIME))
    built.add(captures.section(other))
    built.add(captures.simple(other, b"too early", 9), unknown(b"too early", 9))
    built.add(captures.interface(other, 1, 4, resolution=0x80 | 10))
    built.add(captures.simple(other, b"long", 400), Frame(b"long", 400, 0, NO_TIME))
    built.add(captures.enhanced(other, 0, (7 << 10) | 1, b"q" * 33, 33), Frame(b"q" * 33, 33, 7_000_976_562, 1))
    return built


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
@given(packets=packets, link=st.integers(0, 2**32 - 1))
@in_tmp
def test_pcap_gives_back_what_was_written(
    tmp_path: Path, order: str, nanoseconds: bool, packets: list[tuple[bytes, int, int, int]], link: int
) -> None:
    built = captures.pcap(packets, order=order, nanoseconds=nanoseconds, link=link)
    frames, capture = read(tmp_path / "a.pcap", bytes(built.data))
    assert frames == built.frames
    assert not capture.damages


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_with_everything_in_it(tmp_path: Path, order: str) -> None:
    built = mixed(order)
    frames, capture = read(tmp_path / "a.pcapng", bytes(built.data))
    assert frames == built.frames
    assert not capture.damages


@given(
    units=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2**40)),
    resolution=st.integers(0, 255),
    offset_s=st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(10**10), 10**10), st.just(0)),
)
@in_tmp
def test_any_resolution_and_offset_is_floored_exactly(
    tmp_path: Path, units: int, resolution: int, offset_s: int
) -> None:
    base = 2 ** (resolution & 127) if resolution & 128 else 10**resolution
    expected = units * 10**9 // base + offset_s * 10**9
    data = captures.section("<") + captures.interface("<", resolution=resolution, offset_s=offset_s)
    (frame,), _ = read(tmp_path / "a.pcapng", data + captures.enhanced("<", 0, units, b"x", 1))
    if -(2**63) <= expected < 2**63:
        assert (frame.ts, frame.link) == (expected, 1)
    else:
        assert frame.link == BAD_TIME


@pytest.mark.parametrize("ns", [-(2**63) - 1, -(2**63), 2**63 - 1, 2**63])
def test_the_first_and_the_last_nanosecond_that_int64_can_tell(tmp_path: Path, ns: int) -> None:
    data = captures.section("<") + captures.interface("<", resolution=9, offset_s=ns // 10**9)
    (frame,), _ = read(tmp_path / "a.pcapng", data + captures.enhanced("<", 0, ns % 10**9, b"x", 1))
    assert (frame.link == BAD_TIME) == (ns not in range(-(2**63), 2**63))
    assert frame.link == BAD_TIME or frame.ts == ns


def every_cut(built: Built, first: int, path: Path) -> None:
    for cut in range(first, len(built.data) + 1):
        frames, capture = read(path, bytes(built.data[:cut]))
        assert frames == [f for f, end in zip(built.frames, built.ends, strict=True) if end <= cut]
        assert (not capture.damages) == (cut in built.cuts), cut
        for damage in capture.damages:
            assert damage.offset == max(c for c in built.cuts | {0} if c < cut)
            assert f"at byte {damage.offset}" in str(damage)
            assert path.name in str(damage)


def test_a_pcap_cut_anywhere_gives_the_whole_frames_before(tmp_path: Path) -> None:
    built = captures.pcap([(b"", 0, 1, 1), (b"abc", 3, 2, 2), (b"d" * 30, 1500, 3, 3)])
    every_cut(built, 24, tmp_path / "a.pcap")


def test_a_pcapng_cut_anywhere_gives_the_whole_frames_before(tmp_path: Path) -> None:
    every_cut(mixed(), 16, tmp_path / "a.pcapng")


@pytest.mark.slow
def test_a_cut_gzip_gives_the_whole_frames_that_came_out(tmp_path: Path) -> None:
    built = captures.pcap([(os.urandom(200), 200, 1, n) for n in range(20)])
    packed = gzip.compress(bytes(built.data))
    for cut in range(400, len(packed)):
        frames, capture = read(tmp_path / "a.pcap.gz", packed[:cut])
        assert frames == built.frames[: len(frames)]
        assert "compressed data end too soon" in told(capture)
    assert len(frames) == 20


def test_a_damaged_gzip_is_damage(tmp_path: Path) -> None:
    built = captures.pcap([(os.urandom(200), 200, 1, n) for n in range(20)])
    packed = bytearray(gzip.compress(bytes(built.data)))
    packed[-6] ^= 1  # of its checksum
    frames, capture = read(tmp_path / "a.pcap.gz", bytes(packed))
    assert frames == built.frames
    assert "compressed data are damaged" in told(capture)


def nonsense_pcap(captured: int) -> bytes:
    good = captures.pcap([(b"good", 4, 1, 1)])
    return bytes(good.data) + struct.pack("<IIII", 1, 1, captured, 60) + bytes(100)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (nonsense_pcap(LARGEST + 1), f"claims {LARGEST + 1} captured bytes"),
        (nonsense_pcap(2**32 - 1), "claims 4294967295 captured bytes"),
        (nonsense_pcap(101), "in the middle of a packet or block (116 bytes are left of at least 117)"),
    ],
)
def test_a_nonsense_captured_length_is_damage(tmp_path: Path, data: bytes, said: str) -> None:
    frames, capture = read(tmp_path / "a.pcap", data)
    assert [f.data for f in frames] == [b"good"]
    assert said in told(capture)
    assert "at byte 44" in told(capture)


def bad_blocks() -> list[tuple[bytes, str]]:
    word = struct.Struct("<I").pack
    return [
        (word(6) + word(8) + bytes(40), "length of 8 bytes"),
        (word(6) + word(33) + bytes(40), "length of 33 bytes"),
        (word(99) + word(2**32 - 4) + bytes(40), f"length of {2**32 - 4} bytes"),
        (word(6) + word(28) + bytes(16) + word(28), "length of 28 bytes"),
        (word(3) + word(12) + word(12), "length of 12 bytes"),
        (word(5) + word(16) + bytes(4) + word(20), "16 bytes in front and of 20 behind"),
        (word(6) + word(32) + bytes(12) + word(1) + bytes(4) + word(32), "claims 1 bytes of a block of 32"),
        (word(1) + word(16) + bytes(4) + word(16), "interface's description claims a length of 16"),
        (captures.block("<", 1, struct.pack("<HHIHH", 1, 0, 0, 9, 50)), "ends within one of its options"),
        (captures.block("<", 0x0A0D0D0A, bytes(16)), "byte-order mark 00000000"),
        (captures.block("<", 0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)), "version 2.0"),
        (captures.block("<", 0x0A0D0D0A, struct.pack("<I", 0x1A2B3C4D)), "header claims a length of 16"),
    ]


@pytest.mark.parametrize(("harm", "said"), [("cut", "end too soon"), ("change", "are damaged")])
def test_zstd_that_is_damaged_gives_what_came_out(tmp_path: Path, harm: str, said: str) -> None:
    random.seed(1)
    built = captures.pcap([(bytes(random.choices(b"abcd", k=1000)), 1000, n, n) for n in range(3000)])
    packed = bytearray(zstd(bytes(built.data)))
    third = len(packed) // 3
    if harm == "cut":
        del packed[2 * third :]
    else:
        packed[2 * third : 2 * third + 10_000] = bytes(10_000)
    frames, capture = read(tmp_path / "a.zst", bytes(packed))
    assert said in told(capture)
    assert frames == built.frames[: len(frames)]
    assert len(frames) > 1500


def xz_of_dictionary(data: bytes, code: int) -> bytes:
    """xz whose header asks for a dictionary of that code's size: 28 is 64 MiB (`xz -9`), 30 128 MiB, 40 4 GiB."""
    packed = bytearray(lzma.compress(data))
    assert packed[14:16] == b"\x21\x01"  # LZMA2, and one byte of properties
    packed[16] = code
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    return bytes(packed)


def zstd_of_window(data: bytes, bits: int) -> bytes:
    """One raw block, in a frame of such a window."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([bits - 10 << 3]) + (1 | len(data) << 3).to_bytes(3, "little") + data


@pytest.mark.parametrize(
    ("packed", "enough", "too_much"),
    [(xz_of_dictionary, (28, 30), (31, 32, 40)), (zstd_of_window, (20, 27), (28, 31, 41))],
)
def test_what_takes_more_memory_to_unpack_than_it_is_given_is_refused(
    tmp_path: Path, packed: Callable[[bytes, int], bytes], enough: tuple[int, ...], too_much: tuple[int, ...]
) -> None:
    built = captures.pcap([(b"x", 1, 1, 1)])
    for size in enough:
        frames, capture = read(tmp_path / "a", packed(bytes(built.data), size))
        assert frames == built.frames
        assert not capture.damages
    for size in too_much:
        with pytest.raises(CaptureError, match="take more than 130 MiB of memory to unpack"):
            read(tmp_path / "a", packed(bytes(built.data), size))


@pytest.mark.timeout(60)
def test_options_are_read_once_each(tmp_path: Path) -> None:
    """Eight MiB of empty ones took minutes."""
    empty = captures.option("<", 5, b"") * (2 << 20)
    described = captures.block("<", 1, struct.pack("<HHI", 1, 0, 0) + empty + captures.option("<", 9, b"\x09"))
    data = captures.section("<") + described + captures.enhanced("<", 0, 5_000_000_007, b"x", 1)
    (frame,), _ = read(tmp_path / "a.pcapng", data)
    assert frame.ts == 5_000_000_007


def test_a_section_of_more_interfaces_than_any_has_is_damage(tmp_path: Path) -> None:
    one = captures.block("<", 1, struct.pack("<HHI", 1, 0, 0))
    frame = captures.enhanced("<", 65_535, 7, b"x", 1)
    frames, capture = read(tmp_path / "a.pcapng", captures.section("<") + one * 65_536 + frame)
    assert [frame.link for frame in frames] == [1]
    assert not capture.damages
    frames, capture = read(tmp_path / "a.pcapng", captures.section("<") + one * 65_537 + frame)
    assert not frames
    assert "a section describes more than 65536 interfaces" in told(capture)


@pytest.mark.parametrize(("bad", "said"), bad_blocks())
def test_a_block_that_contradicts_itself_is_damage(tmp_path: Path, bad: bytes, said: str) -> None:
    good = captures.section("<") + captures.interface("<") + captures.enhanced("<", 0, 5, b"good", 4)
    frames, capture = read(tmp_path / "a.pcapng", good + bad + good)
    assert [f.data for f in frames] == [b"good"]
    assert said in told(capture)
    assert f"at byte {len(good)}" in told(capture)


@given(data=st.binary(max_size=400), head=st.sampled_from([b"", b"pcap", b"pcapng"]))
@in_tmp
def test_random_bytes_never_crash(tmp_path: Path, data: bytes, head: bytes) -> None:
    start = {
        b"": b"",
        b"pcap": bytes(captures.pcap([]).data),
        b"pcapng": captures.section("<") + captures.interface("<"),
    }
    try:
        frames, _ = read(tmp_path / "a", start[head] + data)
    except CaptureError:
        return
    assert sum(len(f.data) for f in frames) <= len(data)


@given(at=st.integers(16, 600), new=st.binary(min_size=1, max_size=8))
@in_tmp
def test_changed_bytes_never_crash(tmp_path: Path, at: int, new: bytes) -> None:
    data = mixed().data
    data[at : at + len(new)] = new
    frames, _ = read(tmp_path / "a.pcapng", bytes(data))
    assert len(frames) <= 40


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
@pytest.mark.parametrize(
    "how", ["plain", "gzip", "gzip in two members", "xz", "zstd", "zstd in two frames", "pipe", "gzip in a pipe"]
)
@pytest.mark.parametrize("frames", [1, 3, 1000])
@pytest.mark.parametrize("stretch", [1, 100, 1 << 20])
def test_neither_cuts_nor_compression_nor_pipes_change_the_frames(
    tmp_path: Path, suffix: str, how: str, frames: int, stretch: int
) -> None:
    built = mixed() if suffix == "pcapng" else captures.pcap([(bytes([n]) * n, n, n, n) for n in range(50)])
    data = bytes(built.data)
    packed = {
        "gzip": gzip.compress(data),
        "gzip in two members": gzip.compress(data[:77]) + gzip.compress(data[77:]),
        "xz": lzma.compress(data),
        "zstd": zstd(data),
        "zstd in two frames": zstd(data[:77]) + zstd(data[77:]),
        "gzip in a pipe": gzip.compress(data),
    }.get(how, data)
    path = tmp_path / "capture"
    if "pipe" in how:
        os.mkfifo(path)
        writer = threading.Thread(target=trickle, args=(path, packed))
        writer.start()
        capture = open_capture(str(path))
        assert list(delivered(capture, frames=frames, stretch=stretch)) == built.frames
        writer.join()
        assert not capture.rereadable
        with pytest.raises(CaptureError, match="read twice"):
            next(capture.blocks())
    else:
        path.write_bytes(packed)
        capture = open_capture(str(path))
        for _ in range(2):
            assert list(delivered(capture, frames=frames, stretch=stretch)) == built.frames
        assert capture.read_bytes == capture.total_bytes == len(packed)
    assert not capture.damages
    capture.close()


def trickle(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as pipe:
        for at in range(0, len(data), 61):
            pipe.write(data[at : at + 61])


def test_a_pipe_delivers_what_has_arrived(tmp_path: Path) -> None:
    built = captures.pcap([(b"one", 3, 1, 1), (b"two", 3, 2, 2)])
    path = tmp_path / "pipe"
    os.mkfifo(path)
    first, goon = built.ends[0] + 5, threading.Event()

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(built.data[:first])
            goon.wait(30)
            pipe.write(built.data[first:])

    writer = threading.Thread(target=write)
    writer.start()
    frames = delivered(open_capture(str(path)))
    assert next(frames) == built.frames[0]
    goon.set()
    assert list(frames) == built.frames[1:]
    writer.join()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piped", [False, True])
def test_standard_input(tmp_path: Path, packed: bool, piped: bool) -> None:
    built = captures.pcap([(b"x" * n, n, n, n) for n in range(9)])
    path = tmp_path / "a.pcap"
    path.write_bytes(gzip.compress(bytes(built.data)) if packed else built.data)
    program = (
        "from ingest.files.capture import open_capture; c = open_capture('-'); print(c.name, sum(map(len, c.blocks())))"
    )
    with path.open("rb") as file:
        run = [sys.executable, "-c", program]
        given = {"input": file.read()} if piped else {"stdin": file}
        done = subprocess.run(run, stdout=subprocess.PIPE, check=True, cwd=ROOT, **given)
    assert done.stdout == b"standard input 9\n"


def test_a_frame_larger_than_a_piece_of_a_stream(tmp_path: Path) -> None:
    built = captures.pcap([(b"s", 1, 1, 1), (bytes(9 << 20), 9 << 20, 2, 2), (b"t", 1, 3, 3)])
    frames, _ = read(tmp_path / "a.gz", gzip.compress(bytes(built.data), 1))
    assert frames == built.frames


def test_a_file_cut_while_it_is_read_is_damage(tmp_path: Path) -> None:
    """What has been handed out stays as it was read, whatever becomes of the file."""
    path = tmp_path / "a.pcap"
    path.write_bytes(captures.pcap([(bytes([n % 251]) * 1000, 1000, n, 0) for n in range(10_000)]).data)
    capture = open_capture(str(path))
    blocks = capture.blocks()
    first = next(blocks)
    os.truncate(path, 6_000_000)
    last = len(first) - 1
    assert first.data[first.columns.offset[last] :][:1000].tobytes() == bytes([last % 251]) * 1000
    assert len(first) + sum(len(b) for b in blocks) == (6_000_000 - 24) // 1016
    assert "shrank from" in told(capture)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("longer", [0, 3000])
def test_a_file_begun_anew_while_it_is_read_is_damage(tmp_path: Path, packed: bool, longer: int) -> None:
    """None of the packets that stand there now is taken for one of those that stood there when it was opened."""
    path = tmp_path / "a.pcap"

    def write(second: int, packets: int) -> None:
        noise = random.Random(second)
        data = bytes(captures.pcap([(noise.randbytes(1000), 1000, second, n) for n in range(packets)]).data)
        with path.open("r+b" if path.exists() else "wb") as file:  # the same file, as `tcpdump -W` writes it
            file.truncate(0)
            file.write(gzip.compress(data, 0) if packed else data)

    write(1, 12_000)
    capture = open_capture(str(path))
    blocks = capture.blocks()
    times = set(next(blocks).columns.ts.tolist())
    write(2, 12_000 + longer)
    for block in blocks:
        times |= set(block.columns.ts.tolist())
    assert {ts // 10**9 for ts in times} == {1}
    assert len(times) < 12_000
    assert "begun anew" in told(capture)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty (0 bytes)"),
        (b"GET / HTTP/1.1\r\n" * 9, "no capture (its first bytes are 47 45 54 20)"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "ends after 6 bytes, within the 24"),
        (b"\xd4\xc3\xb2\xa1\x03\x00\x00\x00" + bytes(16), "pcap version 3.0; version 2.4 is read"),
        (b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00", "within a pcapng's header"),
        (b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00abcdefgh", "byte-order mark 61626364"),
        (zstd(zstd(b"")), "zstd in zstd"),
        (b"BZh9" + bytes(40), "bzip2-compressed"),
        (gzip.compress(b"", mtime=0), "nothing in it (0 bytes)"),
        (gzip.compress(b"no capture at all", mtime=0), "no capture (its first bytes are 6e 6f 20 63)"),
        (gzip.compress(bytes(captures.pcap([]).data), mtime=0)[:11], "compressed data end too soon, before"),
    ],
)
def test_what_is_no_capture_is_refused_with_what_was_found(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(CaptureError) as error:
        read(tmp_path / "some.file", data)
    assert said in str(error.value)
    assert "some.file: " in str(error.value)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="there is no such file"):
        open_capture(str(tmp_path / "missing.pcap"))
    with pytest.raises(CaptureError, match="is a directory"):
        open_capture(str(tmp_path))
    with pytest.raises(CaptureError, match="cannot be opened"):
        open_capture("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.pcap"
    path.write_bytes(captures.pcap([]).data)
    path.chmod(0)
    with pytest.raises(CaptureError, match="not permitted"):
        open_capture(str(path))


def test_a_capture_of_a_header_alone_has_no_frames(tmp_path: Path) -> None:
    for data in (bytes(captures.pcap([]).data), captures.section(">")):
        frames, capture = read(tmp_path / "a", data)
        assert frames == []
        assert not capture.damages


@pytest.mark.skipif(not CASES.is_dir(), reason="the acceptance cases are not here")
def test_the_acceptance_cases_as_another_reader_sees_them() -> None:
    paths = sorted(p for p in CASES.rglob("*") if ".pcap" in p.name)
    assert paths
    for path in paths:
        capture = open_capture(str(path))
        ours = [(f.ts, f.data) for f in delivered(capture)]
        theirs = scapy_reads(path) if ".pcapng" in path.name else dpkt_reads(path)
        assert [data for _, data in ours] == [data for _, data in theirs][: len(ours)], path
        assert len(ours) == len(theirs) or capture.damages
        if path.parent.name == "pcapng-sections":
            continue  # the other one keeps the first section's interfaces, and thus their clocks
        # The others tell times as numbers of seconds with a fraction.
        assert all(abs(ns / 1e9 - s) < 1e-5 for (ns, _), (s, _) in zip(ours, theirs, strict=False)), path


def dpkt_reads(path: Path) -> list[tuple[float, bytes]]:
    packets = []
    with path.open("rb") as file:
        try:
            for seconds, data in dpkt.pcap.UniversalReader(file):
                packets.append((float(seconds), data))
        except dpkt.NeedData:
            assert path.parent.name == "cut-file"
    return packets


def scapy_reads(path: Path) -> list[tuple[float, bytes]]:
    with RawPcapNgReader(str(path)) as reader:
        packets = []
        for data, about in reader:
            units = 0 if about.tshigh is None else about.tshigh << 32 | about.tslow
            packets.append((units / (about.tsresol or 10**6), data))
    return packets
