"""Packets and bytes of each pair of addresses in each minute of a pcap, by whole columns: what all answers are compared
with. It shares no code with what it checks, but for the compiler."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowmark.jit.compiled import compiled

__all__ = ["KEYS", "pcap_head", "tally"]

KEYS = ("minute", "source", "destination")
"""Columns of an answer: the minute's start in seconds since 1970, and addresses as text. The others are its sums:
`packets`, and lengths: `len` of frames, `ip_len` of IP packets, `padded_len` of what frames hold behind Ethernet."""

_WORDS = ("minute", "version", "s_high", "s_low", "d_high", "d_low")
_SUMS = ("packets", "len", "ip_len", "padded_len")
_FILE_HEADER, _ETHERNET = 24, 14
_AT_ONCE = 1_000_000  # packets


def pcap_head(capture: Path, records: int, head: Path) -> Path:
    """Writes a capture of its first records."""
    data = np.memmap(capture, np.uint8, "r")
    rows, end = np.empty((records, 8), np.int64), np.zeros(1, np.int64)
    _walk(data, _FILE_HEADER, rows, end)
    head.write_bytes(data[: int(end[0])].tobytes())
    return head


def tally(capture: Path, late_s: int = 0) -> pa.Table:
    """Of a pcap with times in microseconds that holds Ethernet frames of IPv4 and IPv6, by this machine's byte order.
    `late_s`: minutes begin so many seconds after the minute."""
    parts = [_summed(part) for part in _packets(capture, late_s)]
    return _named(_summed(pa.concat_tables(parts)))


@compiled
def _number(data: npt.NDArray[np.uint8], at: int, size: int, step: int) -> int:
    """Of so many bytes: from `at` on, or back to it where `step` is -1. Eight of them are the same bits with a sign."""
    number = 0
    place = at if step == 1 else at + size - 1
    for _ in range(size):
        number = (number << 8) | int(data[place])
        place += step
    return number


@compiled
def _walk(data: npt.NDArray[np.uint8], start: int, rows: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """Fills rows (seconds, version, two words of each address, length of the frame and of the IP packet) from the
    records there, as many as there is room for. How many there are; `end` becomes where the next record begins."""
    count, begin = 0, start
    while begin + 16 <= data.shape[0] and count < rows.shape[0]:
        ip = begin + 16 + 14
        rows[count, 0] = _number(data, begin, 4, -1)
        rows[count, 6] = _number(data, begin + 12, 4, -1)
        if data[ip - 2] == 0x86:
            rows[count, 1] = 6
            for word in range(4):
                rows[count, 2 + word] = _number(data, ip + 8 + 8 * word, 8, 1)
            rows[count, 7] = _number(data, ip + 4, 2, 1) + 40
        else:
            rows[count, 1] = 4
            for side in range(2):
                rows[count, 2 + 2 * side] = 0
                rows[count, 3 + 2 * side] = _number(data, ip + 12 + 4 * side, 4, 1)
            rows[count, 7] = _number(data, ip + 2, 2, 1)
        count += 1
        begin += 16 + _number(data, begin + 8, 4, -1)
    end[0] = begin
    return count


def _packets(capture: Path, late_s: int) -> Iterator[pa.Table]:
    data = np.memmap(capture, np.uint8, "r")
    start, end = _FILE_HEADER, np.zeros(1, np.int64)
    rows = np.empty((_AT_ONCE, 8), np.int64)
    while count := _walk(data, start, rows, end):
        start = int(end[0])
        seconds, *words, wire, length = rows[:count].T.copy()
        columns = [
            (seconds - late_s) // 60 * 60, *words, np.ones(count, np.int64), wire, length, wire - _ETHERNET
        ]  # fmt: skip
        yield pa.table(dict(zip((*_WORDS, *_SUMS), columns, strict=True)))


def _summed(packets: pa.Table) -> pa.Table:
    """One row for each group, under the names of the columns that were summed."""
    groups = packets.group_by(list(_WORDS)).aggregate([(name, "sum") for name in _SUMS])
    return groups.rename_columns([name.removesuffix("_sum") for name in groups.column_names])


def _named(groups: pa.Table) -> pa.Table:
    """With addresses as text."""
    texts = [_texts(*(groups[name].to_numpy() for name in ("version", f"{end}_high", f"{end}_low"))) for end in "sd"]
    columns = [groups["minute"], *texts, *(groups[name] for name in _SUMS)]
    return pa.table(dict(zip((*KEYS, *_SUMS), columns, strict=True)))


def _texts(*columns: npt.NDArray[np.int64]) -> pa.Array:
    """Of addresses in three words: version, high and low half."""
    words = np.stack(columns, 1)
    distinct, which = np.unique(words, axis=0, return_inverse=True)
    texts = [
        _text(version, b"".join(word.to_bytes(8, signed=True) for word in halves))
        for version, *halves in distinct.tolist()
    ]
    return pa.DictionaryArray.from_arrays(pa.array(which.reshape(-1)), pa.array(texts)).cast(pa.string())


def _text(version: int, address: bytes) -> str:
    if version == 4:
        return socket.inet_ntop(socket.AF_INET, address[12:])
    return socket.inet_ntop(socket.AF_INET6, address)
