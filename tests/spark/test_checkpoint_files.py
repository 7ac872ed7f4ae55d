"""The files of a checkpoint behind a URL, by Hadoop's own file system: what CheckpointFolder needs of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from highlevel.spark.checkpoint.checkpoint import CheckpointFolder
from highlevel.spark.checkpoint.files import HadoopFiles
from highlevel.spark.errors import JobFailed
from highlevel.spark.session import Spark
from highlevel.spark.spark_options import SparkSettings
from lowmark.app.kafka.jars import SPARK_KAFKA, obtain
from lowmark.app.kafka.java import find_java, spark_java_home
from tests.spark.test_checkpoint import CHECKPOINT

KIND = "CheckpointFileManager"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(
        master="local[1]", java_home=spark_java_home(find_java()), jars=obtain(SPARK_KAFKA), shuffle_partitions=1,
        heap="512m", work_dir=work, log=work / "spark.log", checkpoint=f"file://{work}",
        extra={MANAGER: f"{MANAGERS}.FileContextBased{KIND}"},
    )  # fmt: skip
    with Spark(settings) as spark:
        yield spark.session


def test_local_files_are_written_without_a_process_each(session, tmp_path):
    files = session._jvm.org.apache.hadoop.fs
    system = files.Path(f"file://{tmp_path}").getFileSystem(session._jsc.hadoopConfiguration())
    assert system.getClass().getSimpleName() == "BareLocalFileSystem"
    output = system.create(files.Path(f"file://{tmp_path}/made"), False)
    output.write(bytearray(b"content"))
    output.close()
    assert (tmp_path / "made").read_bytes() == b"content"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / ".made.crc").is_file()


def test_what_is_written_is_read(session, tmp_path):
    with CheckpointFolder(HadoopFiles(f"file://{tmp_path}/job/", session)) as folder:
        assert (folder.read(), folder.there) == (None, False)
        assert folder.batches(CHECKPOINT) == 0
        folder.check(CHECKPOINT)
        folder.write(CHECKPOINT)
        folder.write(replace(CHECKPOINT, run=9))
        assert folder.read() == replace(CHECKPOINT, run=9)
        assert folder.there
        assert (tmp_path / "job" / "lowmark.json").is_file()
        folder.make_durable(CHECKPOINT, 3)
        assert folder.spark(CHECKPOINT) == f"file://{tmp_path}/job/{CHECKPOINT.id}"


def test_sparks_logs_are_counted_and_former_generations_forgotten(session, tmp_path):
    folder = CheckpointFolder(HadoopFiles(f"file://{tmp_path}", session))
    for name in ("former", CHECKPOINT.id):
        for log in ("commits", "offsets"):
            (tmp_path / name / log).mkdir(parents=True)
            (tmp_path / name / log / "0").write_text("v1\n{}")
            (tmp_path / name / log / "11").write_text("v1\n{}")
        (tmp_path / name / "metadata").write_text("{}")
    (tmp_path / "somebody's").mkdir()
    assert (folder.batches(CHECKPOINT), folder.planned(CHECKPOINT)) == (12, 11)
    for shard in range(CHECKPOINT.shuffle_partitions):
        (tmp_path / CHECKPOINT.id / "state" / "0" / str(shard)).mkdir(parents=True)
        (tmp_path / CHECKPOINT.id / "state" / "0" / str(shard) / "12.changelog").write_text("a")
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 12
    (tmp_path / CHECKPOINT.id / "state" / "0" / "1" / "12.changelog").write_text("")
    folder.check(CHECKPOINT)
    assert folder.batches(CHECKPOINT) == 1, "a batch without its state is run again"
    folder.forget_others(CHECKPOINT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT.id, "somebody's"]


def test_a_file_system_that_does_not_replace_files_is_refused(session, tmp_path):
    """Spark's manager for such ones says nothing. Hive's class for local files makes one."""
    session.conf.set(MANAGER, f"{MANAGERS}.FileSystemBased{KIND}")
    session.conf.set("fs.file.impl", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
    session.conf.set("fs.file.impl.disable.cache", "true")
    try:
        folder = CheckpointFolder(HadoopFiles(f"file://{tmp_path}", session))
    finally:
        session.conf.set(MANAGER, f"{MANAGERS}.FileContextBased{KIND}")
        session.conf.unset("fs.file.impl")
        session.conf.unset("fs.file.impl.disable.cache")
    folder.write(CHECKPOINT)
    with pytest.raises(OSError, match="does not replace a file"):
        folder.write(replace(CHECKPOINT, run=9))


def test_a_place_that_cannot_be_written_is_refused(session, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobFailed, match="cannot be written"):
        CheckpointFolder(HadoopFiles(f"file://{tmp_path}/file/job", session)).__enter__()
    with pytest.raises(OSError, match="No FileSystem for scheme"):
        HadoopFiles("nowhere://host/job", session)


def test_bytes_come_back_as_they_were(session, tmp_path):
    files = HadoopFiles(f"file://{tmp_path}", session)
    files.replace("beside", b"\x00\xff" * 70_000)
    assert files.read("beside") == b"\x00\xff" * 70_000
    with pytest.raises(FileNotFoundError):
        files.read("nothing")
    assert [name for name in files.names("") if not name.startswith(".")] == ["beside"]
    assert Path(tmp_path / "beside").stat().st_size == 140_000
