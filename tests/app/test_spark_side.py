"""Where a job's checkpoint lies, and who has started the process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.errors import StartRefused
from lowmark.app.job import spark_side
from lowmark.app.job.spark_side import JobSpark, KeptSpark
from lowmark.app.job.start import JobStart
from lowmark.watchdog import Watchdog

TEXT = """
[kafka]
bootstrap = "127.0.0.1:9092"
[job]
checkpoint = "{checkpoint}"
[job.spark]
"spark.archives" = "here.tar.gz#environment,/there.tar.gz,s3a://b/c.tar.gz"
[streams.Main]
[sources.tap]
stream = "Main"
file = "x.pcap"
"""


def start(tmp_path: Path, checkpoint: str) -> JobStart:
    path = tmp_path / "lowmark.toml"
    path.write_text(TEXT.format(checkpoint=checkpoint))
    return JobStart(load_config(path), (), "lowmark")


@pytest.mark.parametrize(
    ("checkpoint", "folder", "place"),
    [
        ("s3a://bucket/x/", None, "s3a://bucket/x/lowmark"),
        ("hdfs://name:8020/x", None, "hdfs://name:8020/x/lowmark"),
        ("file:///mnt/x", "/mnt/x/lowmark", "/mnt/x/lowmark"),
        ("/var/x", "/var/x/lowmark", "/var/x/lowmark"),
    ],
)
def test_a_checkpoint_is_a_folder_or_behind_a_url(tmp_path, checkpoint, folder, place):
    made = start(tmp_path, checkpoint)
    assert made.folder == (None if folder is None else Path(folder))
    assert made.place == place


def test_a_relative_checkpoint_is_beside_the_configuration(tmp_path):
    assert start(tmp_path, "checkpoint").folder == tmp_path / "checkpoint" / "lowmark"


def test_the_configuration_of_the_current_folder_gives_spark_whole_paths(tmp_path, monkeypatch):
    """`lowmark run` without -c: Spark's options refuse a relative path."""
    start(tmp_path, "checkpoint")
    monkeypatch.chdir(tmp_path)
    made = JobStart(load_config(Path("lowmark.toml")), (), "lowmark")
    assert made.folder == tmp_path / "checkpoint" / "lowmark"
    assert made.place == str(made.folder)


def test_the_master_of_spark_submit_is_not_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    with pytest.raises(StartRefused, match="give the master to spark-submit"):
        JobSpark(start(tmp_path, "x"), "local[4]", Watchdog(print), lambda spark: None, print)


def test_listed_files_are_beside_the_configuration(tmp_path):
    made = start(tmp_path, "x")
    side = JobSpark(made, None, Watchdog(print), lambda spark: None, print)
    placed = side._placed("spark.archives", made.config.job.spark["spark.archives"])
    assert placed == f"{tmp_path}/here.tar.gz#environment,/there.tar.gz,s3a://b/c.tar.gz"


def test_a_session_that_nobody_has_taken_over_ends_though_java_does_not_answer(monkeypatch):
    """As after a reload whose start was refused: no watchdog runs then."""

    class Hanging:
        def __init__(self) -> None:
            self.killed = threading.Event()

        def kill(self) -> None:
            self.killed.set()

        def stop(self) -> None:
            assert self.killed.wait(30), "Java's answer would never have come"

    monkeypatch.setattr(spark_side, "_END_WITHIN_S", 0.05)
    kept = KeptSpark()
    kept.keep = True
    kept.leave(Hanging())
    kept.stop()
