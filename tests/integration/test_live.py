"""Capture from interfaces: what is counted is what was sent, and what was not seen is said."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.config.queries import plan_queries
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.codec import decode
from lowmark.wire.records.punctuations import Punctuation
from lowmark.wire.records.registration import Registration
from lowmark.wire.records.verdicts import Reason
from tests.acceptance.command import query as query_files
from tests.fixtures.network import Network, ip, namespace, packet
from tests.integration.jobprocess import await_true
from tests.integration.processes import Command
from tests.integration.readings import Results, records
from tests.naive.frames import write_pcap
from tests.naive.readers import Frame

pytestmark = pytest.mark.slow

BY_SOURCE = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"


@pytest.fixture
def net() -> Iterator[Network]:
    with namespace() as made:
        made.pair("far", "near")
        yield made


class Live(Command):
    """`lowmark query -i`, once it captures."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("query", "--format", "jsonl", *arguments)
        try:
            await_true(lambda: "Ctrl-C ends it" in self.error or self.process.poll() is not None)
            assert "Ctrl-C ends it" in self.error, self.error
        except BaseException:
            self.__exit__()
            raise

    def ended(self, by: signal.Signals = signal.SIGINT) -> int:
        """The exit code."""
        self.process.send_signal(by)
        return self.wait()

    def counted(self, *by: str, column: str = "packets") -> Counter[tuple[object, ...]]:
        """The column's sum over all windows, by the values of these."""
        counts: Counter[tuple[object, ...]] = Counter()
        for row in self.rows:
            value = row[column]
            assert isinstance(value, int)
            counts[tuple(row[name] for name in by)] += value
        return counts


def test_counts_are_what_was_sent(net: Network) -> None:
    """In a lull windows close by the clock, and Ctrl-C brings the last one."""
    with Live("-i", "near", BY_SOURCE) as live:
        net.send("far", [packet(1), packet(2), packet(2, tcp=True)] * 1000)
        await_true(lambda: live.counted()[()] == 3000)
        net.send("far", [packet(3)] * 7)
        assert live.ended() == 0, live.error
        assert live.counted("srcIP") == {("10.0.0.1",): 1000, ("10.0.0.2",): 2000, ("10.0.0.3",): 7}
        assert "3,007 packets, 0 filtered, 0 late" in live.error
        assert ": exact" in live.error
        assert "note: stopped by hand: windows that were still open hold only what had arrived by then" in live.error


def test_tags_are_those_of_a_file_of_the_same_traffic(net: Network, tmp_path: Path) -> None:
    """The kernel takes the outermost tag out of a frame before it is captured."""
    frames = [
        packet(1),
        packet(1, vlan=(7,)),
        packet(1, vlan=(0,)),
        packet(2, vlan=(8, 9), tcp=True),
        packet(3, size=900),
    ]
    text = (
        "SELECT srcIP, vlan, proto, destPort, len, ip_len, count(*) AS packets [RANGE 1 hour] FROM Main "
        "GROUP BY srcIP, vlan, proto, destPort, len, ip_len"
    )
    by = ("srcIP", "vlan", "proto", "destPort", "len", "ip_len")
    with Live("-i", "near", text) as live:
        net.send("far", frames)
        time_ns = time.time_ns()
        assert live.ended() == 0, live.error
    file = write_pcap(tmp_path / "same.pcap", [Frame(time_ns, 1, data, len(data)) for data in frames])
    expected = Counter(tuple(row[name] for name in by) for row in query_files(text, [("Main", file)]).rows)
    assert live.counted(*by) == expected
    assert len(expected) == len(frames)


def test_two_interfaces(net: Network) -> None:
    net.pair("far2", "near2")
    with Live("-i", "near", "-i", "near2", BY_SOURCE) as live:
        net.send("far", [packet(1)] * 300)
        net.send("far2", [packet(1), packet(2)] * 200)
        assert live.ended(signal.SIGTERM) == 0, live.error
        assert live.counted("srcIP") == {("10.0.0.1",): 500, ("10.0.0.2",): 200}


def test_all_interfaces_and_those_of_two_streams(net: Network) -> None:
    """`any` sees a packet at both ends of its wire; a packet over lo, which goes out and in there, is seen once."""
    text = "SELECT link, srcIP, count(*) AS packets [RANGE 1 s] FROM A UNION B AS M "
    text += "WHERE proto = 17 GROUP BY link, srcIP"
    with Live("-i", "A=any", "-i", "B=near", text) as live:
        net.send("far", [packet(1)] * 10)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(5):
                sender.sendto(b"", ("127.0.0.1", 9))
        assert live.ended() == 0, live.error
        assert live.counted("link", "srcIP") == {
            ("A", "10.0.0.1"): 20, ("B", "10.0.0.1"): 10, ("A", "127.0.0.1"): 5,
        }  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_that_divide_an_interface(net: Network, tmp_path: Path, threads: int) -> None:
    """The rows are those of a file of the same packets, however many there are."""
    frames = [
        packet(source, port=port, tcp=port % 2 == 0, size=10 * (source % 3), vlan=(source,) if port == 1005 else ())
        for source in range(1, 21)
        for port in range(1000, 1010)
    ] * 5
    text = (
        "SELECT srcIP, proto, destPort, vlan, min(len) AS least, max(ip_len) AS most, count(*) AS packets "
        "[RANGE 1 hour] FROM Main GROUP BY srcIP, proto, destPort, vlan"
    )
    by = ("srcIP", "proto", "destPort", "vlan", "least", "most")
    with Live("-i", "near", "--fanout", str(threads), text) as live:
        net.send("far", frames)
        assert live.ended() == 0, live.error
        assert "1,000 packets, 0 filtered, 0 late" in live.error
    file = write_pcap(tmp_path / "same.pcap", [Frame(time.time_ns(), 1, data, len(data)) for data in frames])
    rows = query_files(text, [("Main", file)]).rows
    assert len(rows) == 200
    assert live.counted(*by) == {tuple(row[name] for name in by): row["packets"] for row in rows}


def test_a_filter_in_the_kernel(net: Network) -> None:
    """Rows are the same; the packets that it leaves out are in no count."""
    text = BY_SOURCE.replace("GROUP", "WHERE proto = 17 AND destPort = 53 AND len > 60 GROUP")
    frames = [packet(1, size=50), packet(2, port=80), packet(3, tcp=True), packet(4), packet(5, size=50, vlan=(1, 2))]
    with Live("-i", "near", "--kernel-filter", text) as live:
        net.send("far", frames * 100)
        assert live.ended() == 0, live.error
        assert live.counted("srcIP") == {("10.0.0.1",): 100, ("10.0.0.5",): 100}
        assert "300 packets, 100 filtered" in live.error
        assert "note: frames that the kernel's filter discarded were never received" in live.error


def test_a_filter_in_the_kernel_where_there_can_be_none(net: Network) -> None:
    """Of all interfaces at once the frames begin in many ways; then nothing is said of what was left out."""
    text = BY_SOURCE.replace("GROUP", "WHERE destPort = 53 GROUP")
    with Live("-i", "any", "--kernel-filter", text) as live:
        net.send("far", [packet(1), packet(2, port=80)] * 10)
        assert live.ended() == 0, live.error
        assert "the kernel leaves none of them out" in live.error
        assert "frames that the kernel's filter discarded" not in live.error


@pytest.mark.parametrize("interface", ["near", "any"])
def test_what_offloads_merge_is_said(net: Network, interface: str) -> None:
    """That it may happen, of which interface, when the capture begins; and that it does, when it does."""
    with Live("-i", interface, BY_SOURCE) as live:
        net.send_merged("far", packet(1, size=5000, tcp=True), 1400)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:  # no merging, the loopback takes them so large
            sender.sendto(bytes(30_000), ("127.0.0.1", 9))
        assert live.ended() == 0, live.error
        assert live.counted("srcIP")["10.0.0.1",] == (1 if interface == "near" else 2)
        said = next(line for line in live.error.splitlines() if "may merge packets before they are seen" in line)
        assert "near: " in said
        assert "ethtool -K near " in said
        assert "frames longer than the MTU arrive" in live.error


def test_packets_that_the_kernel_drops_are_counted(net: Network) -> None:
    """While the process does not run its ring overflows. What fell out is missing from windows that say so."""
    sent = 90_000
    with Live("-i", "near", BY_SOURCE) as live:
        net.send("far", [packet(1)] * 10)
        await_true(lambda: live.counted()[()] == 10)
        os.kill(live.process.pid, signal.SIGSTOP)
        net.send("far", [packet(2, size=600)] * sent)
        os.kill(live.process.pid, signal.SIGCONT)
        assert live.ended() == 4, live.error
        received = live.counted("srcIP")["10.0.0.2",]
        assert 0 < received < sent
        assert f"{sent - received:,} frames dropped by the kernel" in live.error
        assert "lossy: dropped" in live.error


def test_an_interface_that_goes_and_comes_back(net: Network) -> None:
    with Live("-i", "near", BY_SOURCE) as live:
        net.send("far", [packet(1)] * 10)
        ip("link", "set", "near", "down")
        await_true(lambda: "near is down" in live.error)
        ip("link", "set", "near", "up")
        net.send("far", [packet(2)] * 10)
        await_true(lambda: live.counted()[()] == 20)
        ip("link", "del", "near")
        await_true(lambda: "near was removed" in live.error)
        net.pair("far", "near")
        await_true(lambda: "near is there again" in live.error)
        net.send("far", [packet(3)] * 10)
        await_true(lambda: live.counted()[()] == 30)
        # Nobody knows what the new one saw before it was captured from.
        assert live.ended() == 4, live.error
        assert "lossy: not-covered" in live.error
        assert live.counted("srcIP") == {("10.0.0.1",): 10, ("10.0.0.2",): 10, ("10.0.0.3",): 10}


CAPTURE = """
[kafka]
bootstrap = "{broker}"
[capture]
metrics = "127.0.0.1:0"
[capture.ring]
ring_bytes = 4194304
[streams.Main]
[sources.tap]
stream = "Main"
interface = "near"
fanout = 2
[queries.packets]
sql = "SELECT srcIP, count(*) AS packets [RANGE 1 s] FROM Main GROUP BY srcIP"
buckets = 2
"""


def test_through_kafka_with_a_life_that_is_killed(net: Network, tmp_path: Path) -> None:
    """A life that ends says where; what one that was killed held, and what passed until the next, is missing from
    windows that say so."""
    path = tmp_path / "lowmark.toml"
    with Broker(tmp_path / "broker") as broker:
        path.write_text(CAPTURE.format(broker=broker.bootstrap))
        with capturing(path) as first:
            net.send("far", [packet(1, port=port) for port in range(1, 401)])
            await_true(lambda: Results.of(path).packets["10.0.0.1"] == 400)
            assert first.process.poll() is None
            net.send("far", [packet(2)] * 10)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        killed = Results.of(path)
        assert not killed.reasons
        assert _covered_from(path) >= _registered(path), "a ring that nobody empties yet is not open yet"
        net.send("far", [packet(3)] * 10)
        with capturing(path) as second:
            net.send("far", [packet(4, port=port) for port in range(1, 401)])
            await_true(lambda: Results.of(path).packets["10.0.0.4"] == 400)
            found = Results.of(path)
            assert found.reasons == {Reason.NOT_COVERED}
            assert found.packets["10.0.0.1"] == 400
            assert found.packets["10.0.0.3"] == 0
            # What the table holds when it is told to end leaves too, though no window of it can be final yet.
            net.send("far", [packet(5, port=port) for port in range(1, 401)])
            second.process.send_signal(signal.SIGTERM)
            assert second.wait() == 0, second.error
        assert Results.of(path).sent - found.sent == 400


def _registered(path: Path) -> int:
    """When the last of the sources was, ns."""
    config = load_config(path)
    topic = Topic(TopicKind.SOURCES, None, config.prefix).name
    times = [
        message.timestamp()[1] * 10**6
        for message in records(config, topic, 0)
        if isinstance(decode(message.headers(), message.value()), Registration)
    ]
    assert len(times) == 2
    return max(times)


def _covered_from(path: Path) -> int:
    """The earliest time that a source says so of, ns."""
    config = load_config(path)
    (plan,) = plan_queries(config)
    topic = Topic(TopicKind.PARTIALS, plan.stage.fingerprint, config.prefix).name
    found = [decode(message.headers(), message.value()) for message in records(config, topic, 0)]
    return min(record.start_ns for record in found if isinstance(record, Punctuation) and record.start_ns is not None)


@contextmanager
def capturing(path: Path) -> Iterator[Command]:
    with Command("capture", "-c", str(path)) as command:
        command.url()
        yield command


def test_following_a_folder(tmp_path: Path) -> None:
    """Windows close as far as files have been written, and Ctrl-C ends it with the last ones."""
    whole = write_pcap(tmp_path / "whole", [Frame(second * 10**9, 1, packet(1), 60) for second in range(1, 6)])
    data = whole.read_bytes()
    folder = tmp_path / "rotated"
    folder.mkdir()
    with Live("-r", f"{folder}/*.pcap", "--follow", BY_SOURCE) as live:
        (folder / "1.pcap").write_bytes(data)
        await_true(lambda: live.counted()[()] == 4)
        (folder / "2.pcap").write_bytes(data[:24] + data[-(len(data) - 24) // 5 :])
        assert live.ended() == 0, live.error
        assert live.counted()[()] in (5, 6), "the second file may not have been seen"
