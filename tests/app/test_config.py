"""`lowmark.toml`: what it says, and what is said of one that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lowmark.app.config.file import Config, ConfigError, load_config
from lowmark.wire.kafka.topics import Provision

WHOLE = """
[kafka]
bootstrap = "127.0.0.1:9092"

[topics]
prefix = "site-"
replication = 3

[streams.Main1]
disorder = "within 50 ms"

[streams.Main2]
roster = ["z", "a"]

[sources.tap1]
stream = "Main1"
file = "one.pcap"

[sources.tap0]
stream = "Main1"
interface = "eth0"
host = "elsewhere"
disorder = "ordered"

[queries.talkers]
sql = "SELECT srcIP, count(*) [RANGE 1 minute] FROM Main1 GROUP BY srcIP"

[queries.filed]
file = "queries/filed.sql"
buckets = 4
"""

LEAST = '[kafka]\nbootstrap = "127.0.0.1:9092"\n'


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "lowmark.toml"
    path.write_text(text)
    return load_config(path)


def said(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_whole_file(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    assert config.kafka.bootstrap == "127.0.0.1:9092"
    assert (config.prefix, config.topics.replication) == ("site-", 3)
    assert config.roster("Main1") == ("tap0", "tap1")  # those that the file lists, by name
    assert config.roster("Main2") == ("a", "z")  # those that it declares
    assert config.here() == ("tap1",)
    assert config.queries["filed"].buckets == 4


def test_a_source_says_its_disorder_or_its_stream_does(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    assert [str(config.disorder(source)) for source in ("tap0", "tap1")] == ["ordered", "within 50 ms"]
    plain = load(tmp_path, LEAST + '[streams.S]\n[sources.s]\nstream = "S"\nfile = "f.pcap"\n')
    assert plain.disorder("s") is None


def test_only_kafka_is_required(tmp_path: Path) -> None:
    config = load(tmp_path, LEAST)
    assert (config.topics, config.capture, config.job) == (Provision(), type(config.capture)(), type(config.job)())
    assert (config.prefix, dict(config.streams), dict(config.sources), dict(config.queries)) == ("", {}, {}, {})


def test_a_querys_text_is_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "filed.sql").write_text("SELECT ts FROM Main1")
    config = load(tmp_path, WHOLE)
    assert config.sql("filed") == "SELECT ts FROM Main1"
    assert config.sql("talkers").startswith("SELECT srcIP")


def test_a_querys_text_that_cannot_be_read(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    with pytest.raises(ConfigError, match=r"queries\.filed\.file: cannot read .*: No such file"):
        config.sql("filed")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "filed.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        config.sql("filed")


def test_a_source_may_be_named_after_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTNAME", raising=False)
    config = load(tmp_path, LEAST + '[streams.S]\n[sources."tap-${HOSTNAME}"]\nstream = "S"\nfile = "f.pcap"\n')
    assert config.here() == (f"tap-{os.uname().nodename}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "kafka: bootstrap is missing"),
        ("kafka = 1", "kafka is not a table: write [kafka]"),
        ('[kafka]\nbootstrap = "nowhere"', "kafka: bootstrap: 'nowhere' is not host:port"),
        (
            LEAST + "[kafak]",
            "unknown table [kafak]. Valid here: kafka, topics, metrics, capture, job, streams, sources, queries",
        ),
        (LEAST + "[topics]\nprefix = 1", "topics.prefix: 1 is not text"),
        (LEAST + '[topics]\nprefix = "a b"', "topics.prefix: 'a b' cannot begin a topic's name: letters, digits, '.'"),
        (
            LEAST + '[queries."tal kers"]\nsql = "x"',
            "queries.tal kers: 'tal kers' cannot stand in a topic's name: letters, digits, _ and - can",
        ),
        (LEAST + '[topics]\nretention = "1 h"', "topics: unknown key 'retention'. Did you mean retention_ms?"),
        (LEAST + "[capture]\nnonsense = 1", "capture: unknown key 'nonsense'"),
        (LEAST + "[job]\nnonsense = 1", "job: unknown key 'nonsense'"),
        (LEAST + "[queries.q]", "queries.q: a query is given as `sql` or as the `file` that holds it"),
        (LEAST + '[queries.q]\nsql = "x"\nfile = "y"', "queries.q: a query is given as `sql` or"),
        (LEAST + '[queries.q]\nsql = "x"\nbuckets = 0', "queries.q: buckets is 0; it is a number above 0"),
        (LEAST + '[queries.q]\nsql = "x"\nrates = 1', "queries.q.rates: 1 is not a table"),
        (LEAST + '[queries.q]\nsql = "x"\nrates = {a = "b"}', "queries.q.rates.a: 'b' is not a number"),
        (LEAST + '[queries.q]\nsql = "x"\nselectivities = {"a,b" = 2}', "queries.q: the selectivity of a,b is 2; it"),
        (LEAST + "[streams.S]", "streams.S: no source feeds it; give its `roster` or a [sources.NAME]"),
        (
            LEAST + '[streams.S]\nroster = ["a"]\nstall = "exclude"',
            'stall is \'exclude\': it is "wait", or "exclude after',
        ),
        (LEAST + '[streams.S]\nroster = ["a"]\nstall = "exclude after 10 ms"', "with a time of at least 1 s"),
        (LEAST + "[job.limits]\nopen_panes = 0", "open_panes is 0: it is 1 or more"),
        (LEAST + '[streams.S]\nroster = ["a"]\n[streams.s]\nroster = ["a"]', "differ only in case"),
        (
            LEAST + '[sources.a]\nstream = "S"\nfile = "f"',
            "sources.a.stream: there is no stream 'S'. The file declares no stream",
        ),
        (
            LEAST + '[streams.S]\n[sources.a]\nstream = "S"',
            "sources.a: a source reads either a `file` or an `interface`",
        ),
        (LEAST + '[streams.S]\n[sources.a]\nfile = "f"', "sources.a: stream is missing"),
        (
            LEAST + '[streams.S]\n[sources.a]\nstream = "S"\nfile = "f"\ndisorder = "some"',
            "sources.a.disorder: ",
        ),
        (
            LEAST + '[streams.S]\n[sources."tap[1]"]\nstream = "S"\nfile = "f"',
            "sources.tap[1]: a source's name has no *, ? or [, which make a pattern of it in a roster",
        ),
        (LEAST + "[topics\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    message = said(tmp_path, text)
    assert message.startswith(str(tmp_path / "lowmark.toml"))
    assert expected in message


TAP = LEAST + '[streams.S]\n[sources.tap]\nstream = "S"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TAP + 'interface = "eth0"\nfanout = 0', "sources.tap: fanout is 0; it is 1 to 64"),
        (TAP + 'file = "f"\nfanout = 2', "apply to interfaces; this source reads a file"),
        (TAP + 'file = "f"\nkernel_filter = true', "apply to interfaces; this source reads a file"),
        (
            TAP + 'interface = "any"\npromiscuous = true',
            "sources.tap: the kernel has a promiscuous mode for each interface, and none for any: make each",
        ),
        (TAP + 'interface = "eth0"\nfollow = true', "`follow` applies to files"),
        (TAP + 'interface = "eth0"\npriority = 100', "priority is 100; it is 1 to 99, or 0 for none"),
        (TAP + 'interface = "eth0"\ndisorder = "scan"', "sources.tap.disorder: scan reads its input twice"),
        (
            TAP.replace("[streams.S]", '[streams.S]\nroster = ["tap"]') + 'interface = "eth0"\nfanout = 2',
            "streams.S.roster: with fanout, source tap is called tap-0, tap-1: list these",
        ),
        (
            TAP + 'interface = "eth0"\nfanout = 2\n[sources.tap-1]\nstream = "S"\nfile = "f"',
            "sources: two are called tap-1",
        ),
        (LEAST + "[capture.ring]\nring_bytes = 100", "capture.ring: ring_bytes is 100; "),
        (LEAST + "[capture.ring]\nsnaplen = 10", "capture.ring: snaplen is 10; it is 64 to 65535 bytes"),
        (LEAST + '[capture.queue]\ncompression = "gzip"', "capture.queue.compression: 'gzip' is not one of none, lz4"),
    ],
)
def test_what_is_wrong_of_interfaces_is_said(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in said(tmp_path, text)


def test_threads_that_divide_an_interface_are_sources(tmp_path: Path) -> None:
    config = load(tmp_path, TAP + 'interface = "eth0"\nfanout = 2\n[sources.a]\nstream = "S"\nfile = "f"')
    assert config.members("tap") == ("tap-0", "tap-1")
    assert config.roster("S") == ("a", "tap-0", "tap-1")
    assert str(config.disorder("tap")) == "within 50 ms"
    assert config.disorder("a") is None


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*: No such file.*--config"):
        load_config(tmp_path / "absent.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_config(path)


def test_how_long_windows_wait_for_a_silent_source(tmp_path: Path) -> None:
    config = load(
        tmp_path, LEAST + '[streams.S]\nroster = ["a"]\nstall = "exclude after 90 s"\n[streams.T]\nroster = ["b"]'
    )
    assert (config.streams["S"].stall_ns, config.streams["T"].stall_ns) == (90 * 10**9, None)
