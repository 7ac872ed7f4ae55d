"""A ring read in this process: what its blocks say of time. In a network namespace, which takes root."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from ingest.config import LiveConfig, RingConfig
from ingest.live.source import LiveSource
from ingest.metrics import IngestMetrics
from lowmark.wire.frames import FUTURE_NS, Flaw, FrameBlock
from lowmark.wire.records.verdicts import Reason
from tests.fixtures.network import Network, ip, namespace, packet

LAG_NS = 50_000_000
TICK_NS = 20_000_000
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with namespace() as made:
        made.pair("far", "near")
        yield made


class Clock:
    """The real one, which stamps frames, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def now_ns(self) -> int:
        return time.time_ns() + self.ahead_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def live(net: Network, clock: Clock, registry: CollectorRegistry) -> Iterator[LiveSource]:
    ring = RingConfig(ring_bytes=2 << 20, snaplen=128)
    config = LiveConfig(name="a", stream="A", interface="near", ring=ring)
    source = LiveSource(config, now_ns=clock.now_ns, metrics=IngestMetrics(registry).of("a", "A"))
    source.start()
    source.begin()
    yield source
    source.close()


def until_frames(blocks: Iterator[FrameBlock]) -> FrameBlock:
    return next(block for block in blocks if len(block))


def test_a_lull_follows_the_clock_by_the_lag(net: Network, live: LiveSource) -> None:
    blocks = live.blocks()
    assert live.start_ns is not None
    before_ns = live.start_ns - LAG_NS
    for _ in range(3):
        asked_ns = time.time_ns()
        block = next(blocks)
        assert (len(block), block.dropped) == (0, 0)
        assert block.taken_ns is not None
        assert asked_ns - LAG_NS <= block.low_after < block.taken_ns - LAG_NS
        assert block.low_after >= before_ns
        before_ns = block.low_after
    net.send("far", [packet(1)] * 3)
    block = until_frames(blocks)
    assert (block.low >= before_ns).all()
    assert block.low_after >= int(block.ts.max()) - LAG_NS
    assert block.vlan is not None
    assert set(block.vlan.tolist()) == {-1}


def test_frames_beyond_the_ring_are_counted(net: Network, live: LiveSource, registry: CollectorRegistry) -> None:
    """Each frame is delivered or dropped; dropped ones are told before their time is promised."""

    def shown(name: str) -> float | None:
        return registry.get_sample_value(f"lowmark_ring_{name}", {"source": "a", "stream": "A"})

    assert (shown("bytes"), shown("filled_bytes"), shown("freezes_total")) == (2 << 20, 0, 0)
    sent = 30_000
    net.send("far", [packet(1, size=300)] * sent)
    assert shown("filled_bytes") == 2 << 20
    done_ns = time.time_ns()
    dropped = received = 0
    for block in live.blocks():
        dropped += block.dropped
        received += len(block)
        if dropped:
            live.stop()
        else:
            assert block.low_after < done_ns
    assert received + dropped == sent
    assert dropped > 0
    assert received == live.received
    assert (shown("freezes_total") or 0) >= 1
    assert (shown("filled_bytes") or 0) < 2 << 20


def test_a_ring_that_nobody_reads_is_deep_in_ticks_too(net: Network, live: LiveSource) -> None:
    """At a low rate each tick of the kernel's timer takes a block, however little is in it."""
    sent = 25
    for _ in range(sent):
        net.send("far", [packet(1)])
        time.sleep(2 * TICK_NS / SECOND)  # the rate
    live.stop()
    blocks = list(live.blocks())
    assert sum(block.dropped for block in blocks) == 0
    assert sum(map(len, blocks)) == sent


@pytest.mark.parametrize("snaplen", [64, 512, 9000, 65_535])
def test_frames_of_any_size_fit(net: Network, snaplen: int) -> None:
    ring = RingConfig(ring_bytes=2 << 20, snaplen=snaplen)
    source = LiveSource(LiveConfig(name="a", stream="A", interface="lo", ring=ring))
    source.start()
    source.begin()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for size in (0, 1000, 65_000):
            sender.sendto(bytes(size), ("127.0.0.1", 9))
    source.stop()
    head = 14 + 20 + 8
    found: set[tuple[int, int]] = set()
    for block in source.blocks():
        found |= set(zip(block.captured.tolist(), block.length.tolist(), strict=True))
    source.close()
    # Each is answered by a message that nobody listens there.
    assert {(min(snaplen, head + size), head + size) for size in (0, 1000, 65_000)} <= found


def test_frames_of_the_future_move_no_low_watermark(net: Network, clock: Clock, live: LiveSource) -> None:
    clock.ahead_ns = -FUTURE_NS - 5 * SECOND  # to it, what the kernel stamps is more than a minute ahead
    blocks = live.blocks()
    net.send("far", [packet(1)])
    block = until_frames(blocks)
    assert block.taken_ns is not None
    assert int(block.ts[0]) > block.taken_ns + FUTURE_NS
    assert live.start_ns is not None
    assert block.low_after == live.start_ns - LAG_NS


def test_a_clock_that_is_set_back_is_told(clock: Clock, live: LiveSource) -> None:
    clock.ahead_ns = 10 * SECOND
    blocks = live.blocks()
    first = next(blocks)
    assert first.flaws == ()
    clock.ahead_ns = 0
    second = next(blocks)
    (flaw,) = second.flaws
    assert isinstance(flaw, Flaw)
    assert flaw.reason is Reason.CLOCK
    assert 9 * SECOND < flaw.until_ns - flaw.from_ns <= 10 * SECOND
    assert second.low_after == first.low_after, "it never regresses"


def test_what_has_arrived_is_delivered_before_a_stop(net: Network, live: LiveSource) -> None:
    blocks = live.blocks()
    next(blocks)
    net.send("far", [packet(1)] * 500)
    live.stop()
    assert sum(map(len, blocks)) == 500
    assert not live.ended


def test_of_all_interfaces_only_those_that_lead_out_have_frames_that_are_too_long(net: Network) -> None:
    source = LiveSource(LiveConfig(name="a", stream="A", interface="any"))
    source.start()
    source.begin()
    net.send_merged("far", packet(1, size=3000, tcp=True), 1400)
    net.send("far", [packet(1, size=1400)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes(30_000), ("127.0.0.1", 9))
    source.stop()
    assert sum(map(len, source.blocks())) >= 5
    assert source.merged == 2  # as it leaves far and as it reaches near
    source.close()


def test_frames_longer_than_the_mtu_are_noticed(net: Network) -> None:
    """As offloading makes them. Here the interface had a smaller MTU when the capture began."""
    said: list[str] = []
    source = LiveSource(LiveConfig(name="a", stream="A", interface="near"), tell=said.append)
    ip("link", "set", "near", "mtu", "600")
    source.start()
    ip("link", "set", "near", "mtu", "1500")
    source.begin()
    net.send("far", [packet(1, size=500), packet(1, size=1400), packet(1, size=1300)])
    source.stop()
    assert sum(map(len, source.blocks())) == 3
    assert source.merged == 2
    assert sum("longer than the MTU" in text for text in said) == 1
    source.close()
