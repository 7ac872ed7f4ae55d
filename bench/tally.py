"""Packets and bytes of each pair of addresses in each minute of a pcap, by whole columns: what all answers are compared
with. It shares no code with what it checks, but for the compiler."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowmark.wire.compiled import compiled

__all__ = ["KEYS", "pcap_head", "tally"]

KEYS = ("minute", "source", "destination")
"""Columns of an answer: the minute's start in seconds since 1970, and addresses as text. The others are its sums:
`packets`, and lengths: `len` of frames, `ip_len` of IP packets, `padded_len` of what frames hold behind Ethernet."""

_WORDS = ("minute", "s_high", "s_low", "d_high", "d_low")
_SUMS = ("packets", "len", "ip_len", "padded_len")
_FILE_HEADER, _RECORD, _ETHERNET = 24, 16, 14
_HEAD = _RECORD + _ETHERNET + 40  # bytes of a record that are looked at: an address lies nowhere behind them
_AT_ONCE = 1_000_000  # packets
_MAPPED = 0xFFFF << 32  # above an IPv4 address, as RFC 4291 maps it


def pcap_head(capture: Path, records: int, head: Path) -> Path:
    """Writes a capture of its first records."""
    data = np.memmap(capture, np.uint8, "r")
    offsets, end = np.empty(records, np.int64), np.zeros(1, np.int64)
    _walk(data, _FILE_HEADER, offsets, end)
    head.write_bytes(data[: int(end[0])].tobytes())
    return head


def tally(capture: Path, late_s: int = 0) -> pa.Table:
    """Of a pcap with times in microseconds that holds Ethernet frames of IPv4 and IPv6, by this machine's byte order.
    `late_s`: minutes begin so many seconds after the minute."""
    parts = [_summed(part) for part in _packets(capture, late_s)]
    return _named(_summed(pa.concat_tables(parts)))


@compiled
def _walk(data: npt.NDArray[np.uint8], start: int, offsets: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """Where records begin, as many as there is room for; how many there are. `end` becomes where the next begins."""
    count, begin = 0, np.int64(start)
    while begin + 16 <= data.shape[0] and count < offsets.shape[0]:
        offsets[count] = begin
        count += 1
        size = np.int64(0)
        for place in range(4):
            size |= np.int64(data[begin + 8 + place]) << np.int64(8 * place)
        begin += 16 + size
    end[0] = begin
    return count


def _packets(capture: Path, late_s: int) -> Iterator[pa.Table]:
    data = np.memmap(capture, np.uint8, "r")
    start, end = _FILE_HEADER, np.zeros(1, np.int64)
    offsets = np.empty(_AT_ONCE, np.int64)
    while count := _walk(data, start, offsets, end):
        start = int(end[0])
        yield _columns(data, offsets[:count], late_s)


def _columns(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], late_s: int) -> pa.Table:
    # The last records may be shorter than what is looked at: what lies behind the file is not read.
    places = np.minimum(offsets[:, None] + np.arange(_HEAD), len(data) - 1)
    heads = data[places]
    seconds, wire = (heads[:, at : at + 4].copy().view("<u4")[:, 0].astype(np.int64) for at in (0, 12))
    ip = heads[:, _RECORD + _ETHERNET :]
    version6 = heads[:, _RECORD + 12 : _RECORD + 14].copy().view(">u2")[:, 0] == 0x86DD
    length = np.where(version6, _number(ip, 4, 2) + 40, _number(ip, 2, 2))
    columns = [
        (seconds - late_s) // 60 * 60,
        np.where(version6, _number(ip, 8, 8), 0),
        np.where(version6, _number(ip, 16, 8), _number(ip, 12, 4) | _MAPPED),
        np.where(version6, _number(ip, 24, 8), 0),
        np.where(version6, _number(ip, 32, 8), _number(ip, 16, 4) | _MAPPED),
        np.ones(len(offsets), np.int64), wire, length, wire - _ETHERNET,
    ]  # fmt: skip
    return pa.table(dict(zip((*_WORDS, *_SUMS), columns, strict=True)))


def _number(rows: npt.NDArray[np.uint8], at: int, size: int) -> npt.NDArray[np.int64]:
    """Of big-endian bytes; eight of them as the same bits with a sign."""
    padded = np.zeros((len(rows), 8), np.uint8)
    padded[:, 8 - size :] = rows[:, at : at + size]
    return padded.view(">i8")[:, 0].astype(np.int64)


def _summed(packets: pa.Table) -> pa.Table:
    """One row for each group, under the names of the columns that were summed."""
    groups = packets.group_by(list(_WORDS)).aggregate([(name, "sum") for name in _SUMS])
    return groups.rename_columns([name.removesuffix("_sum") for name in groups.column_names])


def _named(groups: pa.Table) -> pa.Table:
    """With addresses as text."""
    texts = [_texts(groups[f"{end}_high"].to_numpy(), groups[f"{end}_low"].to_numpy()) for end in "sd"]
    columns = [groups["minute"], *texts, *(groups[name] for name in _SUMS)]
    return pa.table(dict(zip((*KEYS, *_SUMS), columns, strict=True)))


def _texts(high: npt.NDArray[np.int64], low: npt.NDArray[np.int64]) -> pa.Array:
    words = np.stack([high, low], 1)
    distinct, which = np.unique(words, axis=0, return_inverse=True)
    texts = [_text(b"".join(word.to_bytes(8, signed=True) for word in address)) for address in distinct.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(which.reshape(-1)), pa.array(texts)).cast(pa.string())


def _text(address: bytes) -> str:
    if address.startswith(bytes(10) + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, address[12:])
    return socket.inet_ntop(socket.AF_INET6, address)
