"""Where a job's checkpoint lies, and who has started the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowmark.app.config.file import load_config
from lowmark.app.errors import StartRefused
from lowmark.app.job.spark_side import JobSpark
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
