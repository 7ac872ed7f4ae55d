"""What a user would ask the same question with: packets and bytes of each pair of addresses in each minute of a file.

Each peer runs as a command over one capture and leaves its answer in a folder (`bench.peers.answers` reads it).
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.peers.answers import of_lines, of_lowmark, of_pmacct, of_totals
from lowmark.jit.cache_folder import cache_root

__all__ = ["LOWMARK", "PEERS", "PEER_MODULES", "Contender"]

PEER_MODULES = cache_root() / "peers"
"""Where Python packages that are peers lie: `pip install --target` puts them there, and nothing else sees them."""

_SQL = (
    "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes [RANGE 1 minute, SLIDE 1 minute, WA ts] "
    "FROM Main GROUP BY srcIP, destIP"
)

Command = list[str | Path]


@dataclass(frozen=True, slots=True)
class Contender:
    """`command` gives the arguments over a capture, with its output going to a folder (`out` is its standard output).
    `length` is the column of a tally that its bytes are; `part`: it gets one of so many packets of the others'."""

    name: str
    command: Callable[[Path, Path], Command]
    answer: Callable[[Path], pa.Table]
    length: str = "len"
    part: int = 1
    whole: bool = False  # it knows no minutes
    late_s: int = 0  # its minutes begin so many seconds after the minute
    programs: dict[str, str] = field(default_factory=dict)  # and the package of each
    module: str | None = None  # of Python

    def missing(self) -> str | None:
        """What is not there and how to get it."""
        for program, package in self.programs.items():
            if shutil.which(program) is None:
                return f"{program} is not installed: apt-get install {package}"
        if self.module is None or importlib.util.find_spec(self.module) or (PEER_MODULES / self.module).is_dir():
            return None
        return f"{self.module} is not installed: {sys.executable} -m pip install --target {PEER_MODULES} {self.module}"


def _lowmark(capture: Path, folder: Path) -> Command:
    return [
        sys.executable, "-m", "lowmark", "query", "-q", "-r", f"Main={capture}", "--format", "jsonl",
        "-o", folder / "out", _SQL,
    ]  # fmt: skip


def _loop(name: str) -> Callable[[Path, Path], Command]:
    return lambda capture, folder: [sys.executable, "-m", f"bench.peers.{name}_loop", capture]


def _shell(text: str) -> Callable[[Path, Path], Command]:
    """A script that finds the capture in $1, the folder in $2 and a free port in $3."""
    return lambda capture, folder: ["sh", "-euc", text, "sh", capture, folder, _free_port()]


def _free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


# With -q a line is: time MAC > MAC, IPv4, length N: address[.port] > address[.port]: …; ICMP has no ports.
_TCPDUMP = r"""
tcpdump -n -e -tt -q -r "$1" 2>/dev/null | awk '
function host(text, version) {
    sub(/:$/, "", text)
    if (version == "IPv6,") { sub(/\..*/, "", text); return text }
    n = split(text, part, "."); return part[1] "." part[2] "." part[3] "." part[4]
}
{
    key = int($1 / 60) * 60 " " host($8, $5) " " host($10, $5)
    packets[key]++; bytes[key] += $7
}
END { for (key in packets) print key, packets[key], bytes[key] }'
"""

# What lies behind IP is not looked at.
_TSHARK = r"""
tshark -n -r "$1" --disable-protocol tcp --disable-protocol udp --disable-protocol icmp --disable-protocol icmpv6 \
    -T fields -E occurrence=f -e frame.time_epoch -e ip.src -e ip.dst -e ipv6.src -e ipv6.dst -e frame.len \
    2>/dev/null | awk -F '\t' '
{ key = int($1 / 60) * 60 " " $2 $4 " " $3 $5; packets[key]++; bytes[key] += $6 }
END { for (key in packets) print key, packets[key], bytes[key] }'
"""

_NFDUMP = 'nfdump -R "$2/flows" -q -N -6 -A srcip,dstip -o "fmt:%sa %da %pkt %byt"'
_NFPCAPD = f'mkdir "$2/flows"; nfpcapd -r "$1" -w "$2/flows" -t 3600 >&2; {_NFDUMP}'

# The room for the datagrams between the two is as large as nfcapd can be told; the table holds all flows.
_SOFTFLOWD = f"""
mkdir "$2/flows"
nfcapd -w "$2/flows" -b 127.0.0.1 -p "$3" -B 200000000 -t 3600 >&2 & collector=$!
until grep -qi ":$(printf %04X "$3") " /proc/net/udp; do sleep 0.05; done
softflowd -6 -r "$1" -n "127.0.0.1:$3" -v 9 -m 4000000 >&2
sleep 0.5
kill "$collector"; wait "$collector" || true
{_NFDUMP}
"""

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
print_cache_entries: 600000
plugin_buffer_size: 65536
plugin_pipe_size: 1073741824
"""
# The last two are room for the whole capture: it reads a file as fast as it can, and what its printing half has not
# taken in time is overwritten without a word.


def _pmacct(capture: Path, folder: Path) -> Command:
    (folder / "pmacctd.conf").write_text(_PMACCT.format(capture=capture, folder=folder))
    return ["pmacctd", "-f", folder / "pmacctd.conf"]


LOWMARK = Contender("lowmark query", _lowmark, of_lowmark)
PEERS = (
    # It counts a packet of a minute's first second for the minute before.
    Contender("pmacctd", _pmacct, of_pmacct, "ip_len", late_s=1, programs={"pmacctd": "pmacct"}),
    Contender(
        "nfpcapd + nfdump", _shell(_NFPCAPD), of_totals, "ip_len", whole=True,
        programs={"nfpcapd": "nfdump", "nfdump": "nfdump"},
    ),
    Contender(
        "softflowd + nfdump", _shell(_SOFTFLOWD), of_totals, "padded_len", whole=True,
        programs={"softflowd": "softflowd", "nfcapd": "nfdump", "nfdump": "nfdump"},
    ),
    Contender(
        "tcpdump | awk", _shell(_TCPDUMP), of_lines, part=5, programs={"tcpdump": "tcpdump", "awk": "mawk"}
    ),
    Contender("tshark | awk", _shell(_TSHARK), of_lines, part=10, programs={"tshark": "tshark", "awk": "mawk"}),
    Contender("nfstream", _loop("nfstream"), of_lines, part=10, whole=True, module="nfstream"),
    Contender("dpkt loop", _loop("dpkt"), of_lines, part=10, module="dpkt"),
    Contender("scapy loop", _loop("scapy"), of_lines, part=50, module="scapy"),
)  # fmt: skip
