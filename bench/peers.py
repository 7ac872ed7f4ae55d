"""What a user would ask the same question with: packets and bytes of each pair of addresses in each minute of a file.

Each peer runs as a command over one capture and leaves its answer in a folder; answers are compared row by row.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

__all__ = ["LOWMARK", "PEERS", "SQL", "Answer", "Contender"]

SQL = (
    "SELECT srcIP, destIP, count(*) AS packets, sum({length}) AS bytes [RANGE 1 minute, SLIDE 1 minute, WA ts] "
    "FROM Main GROUP BY srcIP, destIP"
)

Answer = dict[tuple[int, str, str], tuple[int, int]]
"""(start of the minute in seconds since 1970, source, destination) -> (packets, bytes)"""


@dataclass(frozen=True, slots=True)
class Contender:
    """`command` gives the arguments over a capture, with its output going to a folder (`out` is its standard output)
    and `length` the field whose sum it can tell: frames' or IP packets'. `slow`: give it a part of the packets.
    `late_s`: its minutes begin so many seconds after the minute."""

    name: str
    slow: bool
    length: str
    command: Callable[[Path, Path, str], list[str | Path]]
    answer: Callable[[Path], Answer]
    needs: tuple[str, ...] = ()
    late_s: int = 0

    def missing(self) -> str | None:
        """The first program that is not there."""
        return next((program for program in self.needs if shutil.which(program) is None), None)


def _lowmark(capture: Path, folder: Path, length: str) -> list[str | Path]:
    return [
        sys.executable, "-m", "lowmark", "query", "-q", "-r", f"Main={capture}", "--format", "jsonl",
        "-o", folder / "out", SQL.format(length=length),
    ]  # fmt: skip


def _lowmark_answer(folder: Path) -> Answer:
    answer: Answer = {}
    for line in (folder / "out").read_text().splitlines():
        row = json.loads(line)
        start = int(datetime.fromisoformat(row["window_start"]).timestamp())
        answer[start, row["srcIP"], row["destIP"]] = row["packets"], row["bytes"]
    return answer


def _dpkt(capture: Path, folder: Path, length: str) -> list[str | Path]:
    return [sys.executable, "-m", "bench.dpktloop", capture]


def _plain_answer(folder: Path) -> Answer:
    answer: Answer = {}
    for line in (folder / "out").read_text().splitlines():
        start, source, destination, packets, size = line.split()
        answer[int(start), source, destination] = int(packets), int(size)
    return answer


# With -q a line is: time MAC > MAC, IPv4, length N: address[.port] > address[.port]: …; ICMP has no ports.
_AWK = r"""
function host(text, version) {
    sub(/:$/, "", text)
    if (version == "IPv6,") { sub(/\..*/, "", text); return text }
    n = split(text, part, "."); return part[1] "." part[2] "." part[3] "." part[4]
}
{
    key = int($1 / 60) * 60 " " host($8, $5) " " host($10, $5)
    packets[key]++; bytes[key] += $7
}
END { for (key in packets) print key, packets[key], bytes[key] }
"""


def _awk(capture: Path, folder: Path, length: str) -> list[str | Path]:
    (folder / "pairs.awk").write_text(_AWK)
    return ["sh", "-c", f"tcpdump -n -e -tt -q -r '{capture}' 2>/dev/null | awk -f '{folder}/pairs.awk'"]


_PMACCT = """\
pcap_savefile: {capture}
daemonize: false
plugins: print
aggregate: src_host, dst_host
print_output: csv
print_output_file: {folder}/%s.csv
print_history: 1m
print_history_roundoff: m
print_refresh_time: 600
print_cache_entries: 300000
plugin_buffer_size: 65536
plugin_pipe_size: 1073741824
"""
# The last two are room for the whole capture: it reads a file as fast as it can, and what its printing half has not
# taken in time is overwritten without a word.


def _pmacct(capture: Path, folder: Path, length: str) -> list[str | Path]:
    (folder / "pmacctd.conf").write_text(_PMACCT.format(capture=capture, folder=folder))
    return ["pmacctd", "-f", folder / "pmacctd.conf"]


def _pmacct_answer(folder: Path) -> Answer:
    def rows() -> Iterator[tuple[int, str]]:
        for file in folder.glob("*.csv"):
            for line in file.read_text().splitlines()[1:]:
                yield int(file.stem), line

    answer: Answer = {}
    for start, line in rows():
        source, destination, packets, size = line.split(",")
        answer[start, source, destination] = int(packets), int(size)
    return answer


LOWMARK = Contender("lowmark query", False, "len", _lowmark, _lowmark_answer)
PEERS = (
    # It counts a packet of a minute's first second for the minute before.
    Contender("pmacctd", False, "ip_len", _pmacct, _pmacct_answer, ("pmacctd",), late_s=1),
    Contender("tcpdump | awk", True, "len", _awk, _plain_answer, ("tcpdump", "awk")),
    Contender("dpkt loop", True, "len", _dpkt, _plain_answer),
)
