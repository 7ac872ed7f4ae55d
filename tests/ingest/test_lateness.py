"""Measured disorder: what is observed, what is estimated from it, and what is promised then."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.columns import Columns
from ingest.disorder.declarations import DisorderError, Measured, parse_disorder
from ingest.disorder.low_watermarks import FIRST_BOUND_NS, NEVER, ClockedLows, arrival_lows
from ingest.disorder.observed_lateness import Lateness, PlacesLate, behind
from lowmark.app.traffic import TrafficSpec, write_capture
from lowmark.wire.frames import BAD_TIME
from tests.acceptance.command import lowmark
from tests.fixtures import captures
from tests.naive.frames import Spec, frame, write_pcap
from tests.naive.readers import read_capture

MS = 1_000_000
SQL = "SELECT count(*) [RANGE 1 minute] FROM Main"
ETHERNET = frame(Spec(ts=0)).data
TIMES = st.lists(st.integers(0, 10_000), max_size=60)


def columns(ts: list[int] | np.ndarray) -> Columns:
    made = Columns.of_size(len(ts))
    made.ts[:] = ts
    made.link[:] = 1
    return made


def jittered(frames: int, most_ns: int, seed: int = 1, start_ns: int = 0) -> np.ndarray:
    """Times a µs apart, each frame up to `most_ns` late."""
    random = np.random.default_rng(seed)
    sent = start_ns + 1000 * np.arange(frames, dtype=np.int64)
    return sent[np.argsort(sent + random.integers(0, most_ns + 1, frames), kind="stable")]


@given(TIMES, st.lists(st.integers(1, 20), min_size=1))
def test_lateness_and_places_are_those_of_the_definition(times: list[int], sizes: list[int]) -> None:
    late = [max(times[: at + 1]) - ts for at, ts in enumerate(times)]
    places = [next(at - i for i in range(at + 1) if times[i] > ts or i == at) for at, ts in enumerate(times)]
    observed, counted, at = Lateness(), PlacesLate(), 0
    newest = np.array(list(accumulate(times, max)), np.int64)
    for size in sizes * 60:
        part = np.array(times[at : at + size], np.int64)
        found = behind(part, newest[at : at + size])
        assert found.tolist() == late[at : at + size]
        observed.add(found)
        counted.add(part, newest[at : at + size])
        at += size
    assert observed.frames == len(times)
    assert observed.out_of_order == sum(ns > 0 for ns in late)
    assert observed.most_ns == max(late, default=0)
    assert counted.most == max(places, default=0)
    for share in (0.5, 0.9, 0.999):
        bound = observed.within_ns(share)
        exact = sorted(late)[max(0, int(np.ceil(share * len(late))) - 1)] if late else 0
        assert exact <= bound <= exact * 1.05 + 1


@given(TIMES.map(lambda times: [1000 * ts for ts in times]), st.lists(st.integers(1, 20), min_size=1))
def test_cuts_change_nothing_and_nothing_goes_back(times: list[int], sizes: list[int]) -> None:
    whole, after = arrival_lows(Measured()).of(columns(times))
    pieces, lows, at = arrival_lows(Measured()), [], 0
    for size in sizes * 60:
        low, last = pieces.of(columns(times[at : at + size]))
        lows += low.tolist()
        at += size
    assert lows == whole.tolist()
    assert last == after
    assert (np.diff(whole) >= 0).all()


def test_the_bound_follows_what_is_observed() -> None:
    lows = arrival_lows(Measured())
    assert lows.bound_ns == FIRST_BOUND_NS
    low, _ = lows.of(columns(jittered(50_000, 2 * MS)))
    assert lows.bound_ns is not None
    assert 1.8 * MS < lows.bound_ns < 2.2 * MS
    calm, before = lows.bound_ns, int(low[-1])
    # It becomes worse: the low-watermark waits, and does not go back.
    low, _ = lows.of(columns(jittered(30_000, 20 * MS, start_ns=50 * MS)))
    assert lows.bound_ns > 8 * calm
    assert (np.diff(low) >= 0).all()
    assert int(low[0]) >= before
    # And better again: what was is forgotten.
    lows.of(columns(jittered(6 << 20, 2 * MS, start_ns=1000 * MS)))
    assert lows.bound_ns < 3 * MS


def test_no_more_than_the_stated_share_is_late() -> None:
    ts = jittered(400_000, 5 * MS)
    low, _ = arrival_lows(Measured(Measured().share)).of(columns(ts))
    assert np.count_nonzero(ts < low) <= 0.002 * len(ts)


def test_a_lull_waits_for_the_measured_bound() -> None:
    lows = ClockedLows(Measured(), 50 * MS, 0)
    assert lows.idle(5000 * MS) == 5000 * MS - FIRST_BOUND_NS
    lows.of(columns(jittered(50_000, 2 * MS, start_ns=6000 * MS)), 2**62)
    assert lows.idle(7000 * MS) == 6950 * MS


def test_frames_without_a_time_are_not_measured() -> None:
    given_ = columns([5, 0, 6])
    given_.link[1] = BAD_TIME
    low, after = arrival_lows(Measured()).of(given_)
    assert after == 6 - FIRST_BOUND_NS
    assert low[0] == NEVER


def test_declarations() -> None:
    assert str(parse_disorder("measured")) == "measured 99.9%"
    assert parse_disorder("Measured 99.99 %") == parse_disorder("measured 99.99%")
    for text in ("measured 100%", "measured 12%"):
        with pytest.raises(DisorderError, match="from 50% to below 100%"):
            parse_disorder(text)


@pytest.mark.slow
def test_scan_tells_which_disorder_would_do(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, TrafficSpec(packets=20_000, duration_ns=10**9, jitter_ns=3 * MS, nanoseconds=True))
    straight = write_pcap(tmp_path / "b.pcap", [frame(Spec(ts=second * 10**9)) for second in (1, 2)])
    outcome = lowmark("scan", str(path), str(straight))
    assert outcome.code == 0, outcome.error
    first, second = (json.loads(line) for line in outcome.out.splitlines())
    assert first["frames"] == 20_000
    assert 0.0025 < first["late_most_s"] <= 0.003
    assert first["late_50%_s"] < first["late_99%_s"] <= first["late_most_s"]
    assert first["out_of_order"] > 1000
    assert (second["disorder"], second["out_of_order"], second["places"]) == ("ordered", 0, 0)
    query = "SELECT count(*) [RANGE 1 ms] FROM Main"
    for enough in (first["disorder"], f"within {first['places']} tuples"):
        assert " 0 late" in lowmark("query", "-r", str(path), "--disorder", enough, query).error
    assert " 0 late" not in lowmark("query", "-r", str(path), "--disorder", "within 1 ms", query).error


@pytest.mark.parametrize("declared", ["ordered", "scan", "within 2 s", "within 500 tuples", "measured 99%"])
def test_explain_says_what_a_declaration_does(declared: str) -> None:
    sql = "SELECT count(*) [RANGE 1 minute] FROM Main"
    told = json.loads(lowmark("explain", sql, "--disorder", declared, "--json").out)["disorder"]
    assert told.startswith(f"{declared}: ")
    assert ("99% of the packets" in told) == (declared == "measured 99%")


def test_explain_tells_the_bound_for_a_capture(tmp_path: Path) -> None:
    """It is the one that a query comes to; what comes behind is counted here by hand. The first frame alone proves
    nothing."""
    path = tmp_path / "a.pcap"
    write_capture(path, TrafficSpec(packets=20_000, duration_ns=10**9, jitter_ns=3 * MS, nanoseconds=True))
    sql = "SELECT count(*) [RANGE 1 ms] FROM Main"

    def told(*options: str) -> dict[str, object]:
        (found,) = json.loads(lowmark("explain", sql, "-r", str(path), *options, "--json").out)["captures"]
        assert (found["capture"], found["frames"]) == (str(path), 20_000)
        return dict(found)

    times = [packet.ts for packet in read_capture(path).frames]
    newest = list(accumulate(times, max))
    for bound in (0, 1 * MS, 3 * MS):
        declared = f"within {bound} ns" if bound else "ordered"
        assert told("--disorder", declared)["behind"] == sum(
            time < before - bound for time, before in zip(times[2:], newest[1:], strict=False)
        )
    assert told("--disorder", "scan")["behind"] == 0
    assert told()["disorder"] == json.loads(lowmark("scan", str(path)).out)["disorder"]

    run = lowmark("query", "-r", str(path), "--disorder", "measured 99%", sql)
    measured = told("--disorder", "measured 99%")
    bound_s = float(str(measured["bound_s"]))
    assert f"packets wait {bound_s * 1000:g} ms, by the disorder that was measured" in run.error
    assert 0.001 < bound_s < 0.003
    shown = lowmark("explain", sql, "-r", f"Main={path}", "--disorder", "measured 99%").out
    assert f"the bound measured at the end is {bound_s * 1000:g} ms; " in shown


def test_explain_of_a_damaged_capture(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * 10**9)) for second in (1, 2)])
    path.write_bytes(path.read_bytes()[:-2])
    outcome = lowmark("explain", "SELECT count(*) [RANGE 1 ms] FROM Main", "-r", str(path))
    assert outcome.code == 3
    assert "the capture ends in the middle" in outcome.error
    assert "none of its 1 frames is late" in outcome.out


def test_scan_of_a_damaged_capture(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * 10**9)) for second in (1, 2)])
    path.write_bytes(path.read_bytes()[:-2])
    outcome = lowmark("scan", str(path))
    assert outcome.code == 3
    assert "the capture ends in the middle" in outcome.error
    assert json.loads(outcome.out)["frames"] == 1


@pytest.mark.parametrize("command", [("scan",), ("explain", SQL, "--json"), ("explain", SQL, "--disorder", "ordered")])
def test_each_capture_is_told_also_beside_those_that_cannot_be_read(tmp_path: Path, command: tuple[str, ...]) -> None:
    whole = write_pcap(tmp_path / "a.pcap", [frame(Spec(ts=second * 10**9)) for second in (1, 2)])
    text = tmp_path / "b[bold].txt"
    text.write_text("no capture")
    paths = [str(tmp_path / "missing"), str(text), str(whole), str(tmp_path / "*.none")]
    reads = paths if command == ("scan",) else [word for path in paths for word in ("-r", path)]
    outcome = lowmark(*command, *reads)
    assert outcome.code == 3
    for path, reason in zip(paths, ("there is no such file", "this is no capture", None, "no file there"), strict=True):
        assert path in outcome.out
        assert reason is None or any(
            line.startswith(f"left out: {path}: ") and reason in line for line in outcome.error.splitlines()
        )
    if command == ("scan",):
        rows = [json.loads(line) for line in outcome.out.splitlines()]
        assert [(row["capture"], row["frames"], row["disorder"]) for row in rows] == [
            (path, 2 if path == str(whole) else 0, "ordered" if path == str(whole) else None) for path in paths
        ]


def test_times_that_cannot_be_told_are_said(tmp_path: Path) -> None:
    """Beyond the year 2262 a packet is of no window; a capture of nothing else is not called ordered."""
    path = tmp_path / "a.pcapng"
    data = captures.section("<") + captures.interface("<", offset_s=10**10) + captures.interface("<")
    frames = [captures.enhanced("<", 0, 10**6, ETHERNET, 60) for _ in range(3)]
    path.write_bytes(data + b"".join(frames))
    outcome = lowmark("scan", str(path))
    row = json.loads(outcome.out)
    assert (outcome.code, row["frames"], row["without_time"], row["disorder"]) == (0, 0, 3, None)
    said = "packets with a time outside of the years 1677 to 2262: they are of no window, and skipped as malformed"
    assert f"{path}: 3 {said}" in outcome.error
    assert "no frame has a time" in lowmark("explain", SQL, "-r", str(path)).out

    path.write_bytes(data + frames[0] + captures.enhanced("<", 1, 10**6, ETHERNET, 60))
    row = json.loads(lowmark("scan", str(path)).out)
    assert (row["frames"], row["without_time"], row["disorder"]) == (1, 1, "ordered")
    query = lowmark("query", "-r", str(path), SQL)
    assert query.code == 0
    assert f"Main: there are {said}" in query.error
    assert "malformed 1)" in query.error
