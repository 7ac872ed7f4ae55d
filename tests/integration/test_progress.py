"""`lowmark watch --progress` over a broker: what stands in the topics says what a window waits for."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from lowlevel.source_registration import SourcesLog
from lowmark.app.kafka.broker import Broker
from lowmark.wire.kafka.clients import KafkaSettings
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.registration import Presence, PresenceState
from tests.acceptance.command import Row, lowmark
from tests.acceptance.test_golden import at, clock
from tests.integration.heads import CAPTURE, JOB
from tests.integration.jobprocess import JobProcess, await_true
from tests.integration.pipe import Pipe
from tests.integration.processes import Command
from tests.naive.frames import frame, write_pcap
from tests.terminal import Terminal

pytestmark = pytest.mark.slow

CONFIG = (
    CAPTURE
    + """\
[streams.Main]
[sources.pipe]
stream = "Main"
file = "-"
[sources.other]
stream = "Main"
file = "other.pcap"
[queries.count]
sql = "SELECT count(*) [RANGE 10 s] FROM Main"
"""
)


HELD = (
    JOB
    + """\
[streams.Main]
[sources.going]
stream = "Main"
file = "-"
[sources.quiet]
stream = "Main"
file = "-"
[queries.joined]
sql = '''SELECT A.srcIP, count(*) [RANGE 10 s, WA A.ts] FROM Main [RANGE 2 s] AS A, Main [RANGE 3 s] AS B
WHERE A.srcIP = B.srcIP GROUP BY A.srcIP'''
[queries.parted]
sql = "SELECT srcIP, count(*) [RANGE 4 rows, SLIDE 2 rows, WA row_num, PA srcIP] FROM Main"
buckets = 2
[queries.rows]
sql = "SELECT count(*) [RANGE 4 rows, WA row_num] FROM Main"
[queries.top]
sql = "SELECT srcIP, count(*) AS n [RANGE 10 s] FROM Main GROUP BY srcIP ORDER BY n DESC LIMIT 3"
buckets = 2
"""
)


def told(config: Path) -> dict[str, Row]:
    """By query."""
    outcome = lowmark("watch", "--progress", "--once", "--json", "-c", str(config))
    assert outcome.code == 0, outcome.error
    return {row["query"]: row for row in map(json.loads, outcome.out.splitlines())}


def waiting(config: Path) -> dict[str, Row]:
    return {item["who"]: item for item in told(config)["count"]["waiting"]}


def test_one_silent_source_holds_up_a_join_a_window_over_rows_and_an_exchange(broker: str, tmp_path: Path) -> None:
    config = tmp_path / "lowmark.toml"
    config.write_text(HELD.format(broker=broker, prefix=uuid4().hex[:8]))
    with contextlib.ExitStack() as stack:
        going = Pipe(stack, config, "going", map(at, [1, 2, 3, 15, 27, 47]))
        quiet = Pipe(stack, config, "quiet", map(at, [4, 22]))
        job = stack.enter_context(JobProcess(config))
        await_true(lambda: all(map(only_quiet_is_awaited, told(config).values())))
        for columns in (80, 120):
            view_names_the_quiet_source(config, columns)
        found = told(config)
        gone = "its promises do not come any more"  # nothing has come of it, for longer than its panes last
        assert [(item["why"], item["behind_s"]) for item in found["joined"]["waiting"]] == [
            (gone, 10),  # of 32 s: A.ts waits 2 s for B
        ]
        assert found["joined"]["complete_to"] == found["top"]["complete_to"] == clock("12:00:20")
        assert [(item["why"], item["behind_s"]) for item in found["rows"]["waiting"]] == [
            (gone, 25), ("2 more must come", None),
        ]  # fmt: skip
        assert (found["rows"]["complete_to"], found["rows"]["tuples_ahead"]) == (5, 1)
        assert [(item["why"], item["behind_s"]) for item in found["top"]["waiting"]] == [
            (gone, 10),
        ]
        # Five rows of one partition: the windows that end at the sixth and the eighth.
        assert (found["parted"]["open_windows"], found["parted"]["open_partitions"]) == (2, 1)
        assert [(item["why"], item["behind_s"]) for item in found["parted"]["waiting"]] == [
            (gone, 25), ("more of their partitions must come", None),
        ]  # fmt: skip
        job.terminate()
        assert job.wait() == 0, job.said
        for source in (going, quiet):
            source.send([at(61)])
        await_true(lambda: all(held(row) == ["the job"] for row in told(config).values()))
        (exchange,) = told(config)["top"]["waiting"]
        assert exchange["why"].startswith("buckets 0, 1 have not sent all of it into exchange top.x0: LIMIT is over")
        assert (exchange["up_to"], exchange["behind_s"]) == (clock("12:00:20"), 10)
        (bucket,) = told(config)["rows"]["waiting"]
        assert bucket["why"] == "all sources are past it, bucket 0 has not completed it"


def only_quiet_is_awaited(row: Row) -> bool:
    """In one look: until its promises arrive, the quiet source hides that the job has completed nothing."""
    completed = row["query"] == "parted" or row["complete_to"] is not None
    return completed and held(row) == ["quiet"] and bool(overdue(row))


def overdue(row: Row) -> list[str]:
    return [source["source"] for source in row["sources"] if source["state"] == "overdue"]


def view_names_the_quiet_source(config: Path, columns: int) -> None:
    with Terminal("watch", "--progress", "--once", "-c", str(config), columns=columns, rows=100) as terminal:
        assert terminal.wait() == 0, terminal.text
    *lines, _ = terminal.lines
    assert max(map(len, lines)) <= columns, terminal.text
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.split("  ")[0] for head in heads] == ["joined", "parted", "rows", "top"], terminal.text
    fronts = [line for line in lines if line.startswith("  frontier ")]
    assert len(fronts) == 4
    assert all("Z: quiet, overdue, last promise " in line for line in fronts), terminal.text
    assert f"top  complete to {clock('12:00:20')}" in lines
    assert sum("quiet: its promises do not come any more" in line for line in lines) >= 4, terminal.text


@contextlib.contextmanager
def unceasing(broker: str, prefix: str) -> Iterator[None]:
    """Meanwhile the topic of sources is given a record some twenty times a second."""
    over, asked = threading.Event(), Presence("nobody", 0, "here", PresenceState.GONE)
    log = SourcesLog(KafkaSettings(broker), Topic(TopicKind.SOURCES, None, f"{prefix}-").name)

    def give() -> None:
        while not over.wait(0.05):
            log.append(asked)

    giving = threading.Thread(target=give)
    giving.start()
    try:
        yield
    finally:
        over.set()
        giving.join()


def held(row: Row) -> list[str]:
    return [item["who"] for item in row["waiting"] if item["who"] != "rows"]


def test_a_window_waits_first_for_a_source_then_for_another_then_for_the_job(broker: str, tmp_path: Path) -> None:
    config, prefix = tmp_path / "lowmark.toml", uuid4().hex[:8]
    config.write_text(CONFIG.format(broker=broker, prefix=prefix))
    assert {name: item["why"] for name, item in waiting(config).items()} == {
        "pipe": "it has never been seen", "other": "it has never been seen",
    }  # fmt: skip
    write_pcap(tmp_path / "other.pcap", map(frame, [at(1), at(60)]))
    with Command("capture", "-c", str(config), "--source", "other") as other:
        assert other.wait() == 0, other.error
    assert {name: item["why"] for name, item in waiting(config).items()} == {"pipe": "it has never been seen"}
    data = write_pcap(tmp_path / "a.pcap", map(frame, [at(1), at(15), at(27)])).read_bytes()
    with Command("capture", "-c", str(config), "--source", "pipe", stdin=subprocess.PIPE) as capture:
        assert capture.process.stdin is not None
        capture.process.stdin.write(data)
        capture.process.stdin.flush()
        # Both are past the first window, which nobody closes: there is no job.
        await_true(lambda: list(waiting(config)) == ["the job"])
        with unceasing(broker, prefix):
            assert list(waiting(config)) == ["the job"]
        capture.process.stdin.close()
        assert capture.wait() == 0, capture.error


def test_a_query_has_to_be_named_unless_progress_is_asked_for() -> None:
    for arguments in (["watch"], ["watch", "q", "--once"]):
        assert lowmark(*arguments).code == 2


def test_a_broker_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    """Nothing of what Kafka's client has to say of it; and watching goes on when it is back."""
    config = tmp_path / "lowmark.toml"
    with contextlib.ExitStack() as stack:
        with Broker(tmp_path / "data") as started:
            address = started.bootstrap
            config.write_text(CONFIG.format(broker=address, prefix=uuid4().hex[:8]))
            assert lowmark("topics", "--create", "-c", str(config)).code == 0
            plain = stack.enter_context(Command("watch", "count", "-c", str(config), "--json"))
            progress = stack.enter_context(Command("watch", "--progress", "-c", str(config), "--json"))
            await_true(lambda: "never been seen" in progress.out)
        await_true(lambda: all("is away" in watch.error for watch in (plain, progress)))
        with Broker(tmp_path / "data", int(address.rpartition(":")[2])):
            await_true(lambda: all("is back" in watch.error for watch in (plain, progress)))
            for watch in (plain, progress):
                watch.process.send_signal(signal.SIGINT)
                assert watch.wait() == 130
    for watch in (plain, progress):
        away, back, *rest = watch.error.splitlines()
        assert away == f"the broker at {address} is away: waiting for it"
        assert back == f"the broker at {address} is back"
        assert "".join(rest).strip() == ""
