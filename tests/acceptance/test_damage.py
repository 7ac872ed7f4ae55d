"""What cannot be read: a window that says `exact` has the rows of the whole capture, wherever it is damaged."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from ingest.config import FileConfig
from ingest.disorder.declarations import Disorder, Ordered, Scan, WithinTime, WithinTuples
from ingest.files.source import FileSource
from lowlevel.config import LowLevelConfig
from lowmark.app.local.bindings import bind
from lowmark.app.local.runner import LocalRun
from lowmark.query.compile import compile_query
from lowmark.wire.frames import Flaw
from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.verdicts import Reason
from lowmark.wire.rows.values import FOREVER
from tests.acceptance.command import lowmark
from tests.acceptance.damaged import MINUTE, SECOND, SQL, Case, Told, cases, check_damaged, pcap, pcapng, run


@given(cases())
@settings(deadline=None, max_examples=150)
def test_an_exact_window_has_what_the_whole_capture_has(case: Case) -> None:
    check_damaged(case)


WHOLE = [10 * n * SECOND for n in range(60)]  # ten minutes, six a minute
DECLARED = [Scan(), Ordered(), WithinTime(SECOND), WithinTuples(0)]


def packed(data: bytes, how: str) -> bytes:
    if how == "zstd":
        return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return {"plain": bytes, "gzip": gzip.compress, "xz": lzma.compress}[how](data)


@pytest.mark.parametrize("disorder", DECLARED, ids=str)
def test_a_cut_file_has_a_lossy_last_window(tmp_path: Path, disorder: Disorder) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(WHOLE)[:-5])
    found = run([path], disorder)
    assert (found.lossy, found.verdicts[9]) == ({9}, {Reason.DAMAGED})
    assert found.counts == dict.fromkeys(range(9), 6) | {9: 5}
    assert found.said == [f"damaged: {found.audit.damage[0]}"]


@pytest.mark.parametrize("how", ["gzip", "xz", "zstd"])
@pytest.mark.parametrize("disorder", [Scan(), Ordered()], ids=str)
def test_a_cut_compressed_file_has_lossy_last_windows(tmp_path: Path, how: str, disorder: Disorder) -> None:
    path, times = tmp_path / "a", [SECOND * n for n in range(6000)]
    path.write_bytes(packed(pcap(times), how)[:-40])
    found = run([path], disorder)
    last = max(found.counts)
    assert found.lossy == {last}
    assert found.counts == Counter(ns // MINUTE for ns in times[: sum(found.counts.values())])
    assert len(found.counts) > 10


@pytest.mark.parametrize("disorder", DECLARED, ids=str)
@pytest.mark.parametrize("harm", ["cut", "foreign", "empty", "gone"])
def test_damage_in_the_middle_of_a_series_is_of_the_windows_around_it(
    tmp_path: Path, disorder: Disorder, harm: str
) -> None:
    for place in range(4):
        (tmp_path / f"{place}.pcap").write_bytes(pcap(WHOLE[15 * place : 15 * place + 15]))
    middle = tmp_path / "2.pcap"
    if harm == "gone":
        middle.unlink()
        middle.symlink_to(tmp_path / "nowhere")
    else:
        data = middle.read_bytes()
        middle.write_bytes({"cut": data[: len(data) // 2], "foreign": b"no capture", "empty": b""}[harm])
    found = run([tmp_path], disorder)
    # From 290 s, or the 360 s that were read of the file, less the bound, up to 450 s.
    first = 4 if harm != "cut" else 5 if disorder == WithinTime(SECOND) else 6
    assert found.lossy == set(range(first, 8))
    assert found.exact == set(range(10)) - found.lossy
    (damage,) = found.audit.damage
    assert damage.name == str(middle)
    assert damage.kind == ("damaged" if harm == "cut" else "left out")


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "of [" / "bold]"  # it is no markup
    folder.mkdir(parents=True)
    for place, data in enumerate([pcap(WHOLE[:9]), b"", b"text", pcap(WHOLE[9:20])[:-1], pcap([]), b"more text"]):
        (folder / f"{place}.pcap").write_bytes(data)
    outcome = lowmark("query", "-r", str(folder), SQL)
    assert outcome.code == 3
    for place, kind in ((1, "left out"), (2, "left out"), (3, "damaged"), (5, "left out")):
        assert f"{kind}: {folder}/{place}.pcap: " in outcome.error
    assert f"{folder}/4.pcap" not in outcome.error  # it has a header, and no packet


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
def test_a_capture_of_a_header_alone_is_whole(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pcap([]) if name == "a.pcap" else pcapng([]))
    outcome = lowmark("query", "-r", str(tmp_path / name), SQL)
    assert (outcome.code, outcome.out) == (0, "")
    assert "0 rows: exact" in outcome.error


@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("disorder", DECLARED, ids=str)
def test_packets_without_a_time_are_received_and_skipped(tmp_path: Path, simple: bool, disorder: Disorder) -> None:
    """And no window of 1970 is opened for them."""
    path, year = tmp_path / "a.pcapng", 50 * 365 * 24 * 60 * MINUTE
    path.write_bytes(pcapng([year + ns for ns in WHOLE], frozenset({20, 21, 50}), simple))
    found = run([path], disorder)
    first = year // MINUTE
    assert found.audit.received == 60
    assert +found.audit.skipped == {"no_time" if simple else "unknown_interface": 3}
    assert found.lossy == {first + 3, first + 8}
    assert set(found.counts) == {first + n for n in range(10)}
    assert len(found.said) == 1


@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("disorder", ["scan", "ordered"])
@pytest.mark.parametrize("sql", [SQL, "SELECT ts FROM Main", "SELECT count(*) [RANGE 2 rows, WA row_num] FROM Main"])
def test_an_answer_without_any_packet_that_has_a_time_is_lossy(
    tmp_path: Path, simple: bool, disorder: str, sql: str
) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(WHOLE, frozenset(range(len(WHOLE))), simple))
    outcome = lowmark("query", "-r", str(path), "--disorder", disorder, sql)
    assert (outcome.code, outcome.out) == (4, "")
    assert re.search("^0 rows: (1 window )?lossy: damaged", outcome.error, re.MULTILINE)


def test_what_is_announced_of_it_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng(WHOLE, frozenset(range(len(WHOLE)))))
    (complete,) = run([path], Scan(), "SELECT ts FROM Main").audit.spans
    record = encode(complete)
    assert decode(list(record.headers), record.value) == complete


def test_what_vanishes_between_the_passes_is_told(tmp_path: Path) -> None:
    for place in range(3):
        (tmp_path / f"{place}.pcap").write_bytes(pcap(WHOLE[20 * place : 20 * place + 20]))
    source = FileSource(FileConfig(name="a", stream="A", path=str(tmp_path)))
    source.start()
    blocks = source.blocks()
    received = [len(next(blocks))]
    (tmp_path / "1.pcap").unlink()
    flaws = []
    for block in blocks:
        received.append(len(block))
        flaws += block.flaws
    assert received == [20, 20, 0]
    assert [damage.name for damage in source.damages] == [str(tmp_path / "1.pcap")]
    assert flaws == [Flaw(Reason.DAMAGED, WHOLE[20], FOREVER)]
    assert "no such file" in str(source.damages[0])
    assert source.total_bytes is not None
    source.close()


class Followed:
    """A run over what is followed, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        plan = compile_query(SQL, streams={"Main": 1}, buckets=1)
        self._news = threading.Condition()
        self.said: list[str] = []
        self.run = LocalRun(
            plan, bind([f"Main={path}"], [], ["Main"], print), disorder=None, config=LowLevelConfig(slots=64),
            follow=True, tell=self._tell, on_late=lambda news: None,
        )  # fmt: skip
        self.run.audit = self.told = Told()
        self.run.start()
        self.thread = threading.Thread(target=lambda: list(self.run.results()), daemon=True)
        self.thread.start()

    def _tell(self, text: str) -> None:
        with self._news:
            self.said.append(text)
            self._news.notify()

    def hears(self, part: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: any(part in text for text in self.said), 20), self.said

    def receives(self, frames: int) -> None:
        with self._news:
            for _ in range(2000):
                if self.run.received == frames:
                    return
                self._news.wait(0.01)  # what is received nobody tells
        raise AssertionError(self.run.received)

    def stop(self) -> None:
        self.run.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.run.close()


def test_damage_of_what_is_followed_is_told_when_it_happens(tmp_path: Path) -> None:
    (tmp_path / "1.pcap").write_bytes(pcap(WHOLE[:9])[:-3])
    (tmp_path / "2.pcap").write_bytes(pcap(WHOLE[12:20]))
    followed = Followed(tmp_path)
    followed.hears("1.pcap: the capture ends in the middle")
    (tmp_path / "3.pcap").write_bytes(b"this is no capture at all" * 3)
    followed.hears("3.pcap: this is no capture")
    followed.stop()
    lossy = {span.windows.first for span in followed.told.spans if span.windows and not span.verdict.exact}
    assert lossy == {1, 2, 3}
    assert len(followed.told.damage) == 2


def test_a_followed_file_that_is_begun_anew_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(WHOLE[:9]))
    followed = Followed(path)
    followed.receives(9)
    os.truncate(path, 24)
    followed.hears("the file shrank from")
    with path.open("ab") as file:  # what stands there now is read from its beginning
        file.write(pcap(WHOLE[12:18])[24:])
    followed.receives(15)
    followed.stop()
    spans = [(span.windows.first, span.verdict.exact) for span in followed.told.spans if span.windows]
    assert spans == [(0, True), (1, False), (2, False)]


@pytest.mark.parametrize("disorder", ["scan", "ordered", "within 1 s", "within 3 tuples", "measured"])
@pytest.mark.parametrize("place", [0, 1, 30, 60])
def test_a_packet_from_the_future_is_of_its_own_window_and_makes_none_late(
    tmp_path: Path, disorder: str, place: int
) -> None:
    future = 94 * 365 * 24 * 60 * MINUTE
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([*WHOLE[:place], future, *WHOLE[place:]]))
    outcome = lowmark("query", "-r", str(path), "--disorder", disorder, "--format", "jsonl", SQL)
    assert outcome.code == 0, outcome.error
    assert [row["n"] for row in outcome.rows] == [*[6] * 10, 1]
    assert " 0 late" in outcome.error
