"""The peers' measurement at a tiny size, and what it compares answers with."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import dpkt_loop
from bench.peers.answers import Verdict, judge, of_lines
from bench.peers.packets import measure_peers
from bench.peers.programs import PEERS, Contender
from bench.peers.tally import pcap_head, tally
from lowmark.app.traffic import TrafficSpec, write_capture

COLUMNS = ("minute", "source", "destination", "packets", "len", "ip_len")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "main.pcap"
    write_capture(path, TrafficSpec(packets=3000, groups=60, ipv6=0.3, snaplen=64, duration_ns=150_000_000_000))
    return path


def test_a_tally_is_what_a_loop_over_the_packets_counts(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dpkt_loop.main(str(capture))
    (tmp_path / "out").write_text(capsys.readouterr().out)
    answer = of_lines(tmp_path)
    verdict = judge(answer, tally(capture), "len", whole=False)
    assert verdict.exact
    assert (verdict.groups, verdict.packets, verdict.missing) == (len(answer), 3000, 0)


def test_the_head_of_a_capture_has_its_first_packets(capture: Path, tmp_path: Path) -> None:
    head = tally(pcap_head(capture, 7, tmp_path / "head.pcap"))
    assert sum(head["packets"].to_pylist()) == 7
    assert capture.read_bytes().startswith((tmp_path / "head.pcap").read_bytes())


def verdict(given: list[tuple[int, str, str, int, int]], whole: bool = False) -> Verdict:
    true = [(60, "a", "b", 2, 20, 10), (120, "a", "b", 1, 9, 5), (120, "c", "d", 4, 40, 30)]
    expected = pa.table(dict(zip(COLUMNS, (list(column) for column in zip(*true, strict=True)), strict=True)))
    names = (*COLUMNS[:4], "bytes")
    answer = pa.table(dict(zip(names, (list(column) for column in zip(*given, strict=True)), strict=True)))
    return judge(answer, expected, "ip_len", whole)


def test_a_verdict_counts_what_is_wrong_missing_or_too_much() -> None:
    whole = [(60, "a", "b", 2, 10), (120, "a", "b", 1, 5), (120, "c", "d", 4, 30)]
    assert verdict(whole).exact
    assert verdict([*whole[:2], (120, "c", "d", 4, 31)]).wrong == 1
    assert verdict([*whole, (180, "a", "b", 1, 1)]).wrong == 1
    lost = verdict(whole[:2])
    assert (lost.wrong, lost.groups, lost.missing, lost.packets) == (1, 3, 4, 7)
    assert "57.1% of the packets missing" in str(lost)


def test_where_minutes_are_not_known_totals_are_compared() -> None:
    totals = verdict([(0, "a", "b", 3, 15), (0, "c", "d", 4, 30)], whole=True)
    assert (totals.exact, totals.groups) == (True, 2)
    assert verdict([(0, "a", "b", 3, 15), (0, "c", "d", 3, 30)], whole=True).wrong == 1


def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    reasons = {peer.name: peer.missing() for peer in PEERS if peer.programs}
    assert reasons["nfpcapd + nfdump"] == "nfpcapd is not installed: apt-get install nfdump"
    assert None not in reasons.values()
    absent = Contender("no such", PEERS[0].command, of_lines, module="no_such_package")
    assert str(absent.missing()).endswith(" no_such_package")


@pytest.mark.slow
def test_peers_are_measured_and_those_that_are_missing_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the peers only Python's loops: which programs there are is the machine's affair. One that fails to answer
    right is said to."""
    wrong = Contender("wrong", lambda capture, folder: ["echo", "0", "a", "b", "1", "1"], of_lines)
    absent = Contender("absent", wrong.command, of_lines, programs={"no-such-program": "no-such-package"})
    loops = [peer for peer in PEERS if peer.name == "dpkt loop"]
    monkeypatch.setattr("bench.peers.packets.PEERS", (*loops, wrong, absent))
    monkeypatch.setattr("bench.peers.packets.cache_root", lambda: tmp_path)
    measure_peers(tmp_path, few=1000, many=3000, most=6000, pairs=[40], repeat=1, snaplen=64, keep=False)
    with (tmp_path / "peers.csv").open() as file:
        answers = {row["contender"]: row["answer"] for row in csv.DictReader(file)}
    assert answers["lowmark query"] == answers["dpkt loop"] == "minutes exact"
    assert "wrong" in answers["wrong"]
    assert "absent: left out, no-such-program is not installed" in capsys.readouterr().out
    with (tmp_path / "peers-parts.csv").open() as file:
        assert [row["part"] for row in csv.DictReader(file)] == ["read", "scan", "kernel", "emission", "output"]
    assert not list(tmp_path.rglob("*.pcap"))
