"""Which of Spark's settings a job takes, and which it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from highlevel.config import JobConfig
from highlevel.spark.spark_options import SparkSettings, attached_options, options, refusals

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def settings(master="local[2]", checkpoint="/var/c", jars=("/jars/a.jar", "/jars/b.jar"), **extra):
    return SparkSettings(
        master=master, java_home=Path("/java"), jars=[Path(jar) for jar in jars], shuffle_partitions=2, heap="1g",
        work_dir=Path("/work"), log=Path("/log"), checkpoint=checkpoint, java_options=("-Xours",), extra=extra,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("spark.speculation", "true", "fence the first"),
        ("spark.sql.streaming.stateStore.providerClass", "x.HDFSBackedStateStoreProvider", "RocksDB"),
        ("spark.sql.streaming.stateStore.commitValidation.enabled", "false", "was not written"),
        ("spark.sql.streaming.noDataMicroBatches.enabled", "true", "only records make time pass"),
        ("spark.sql.streaming.minBatchesToRetain", "1", "repeats the last batch"),
        ("spark.sql.session.timeZone", "Europe/Paris", "times are UTC"),
        ("spark.datasource.failOnDataLoss", "true", "finds lost records by their numbers"),
        ("spark.master", "yarn", "job.master"),
        ("spark.driver.memory", "2g", "job.heap"),
        ("spark.sql.shuffle.partitions", "8", "job.shuffle_partitions"),
        ("executor.memory", "2g", "begin with spark."),
    ],
)
def test_what_breaks_the_promise_is_refused_with_the_reason(name, value, why):
    with pytest.raises(ValueError, match=why) as refused:
        JobConfig(spark={name: value})
    assert name in str(refused.value)


def test_right_values_and_all_other_settings_pass():
    given = {"spark.speculation": "false", "spark.sql.streaming.minBatchesToRetain": "10", "spark.executor.cores": "4"}
    assert JobConfig(spark=given).spark == given


def test_a_session_may_have_what_the_file_gives_another_key():
    assert refusals({"spark.master": "yarn", "spark.driver.memory": "1g", "hive.x": "y"}, attached=True) == []
    (found,) = refusals({"spark.speculation": "true"}, attached=True)
    assert found.startswith("spark.speculation is 'true' and has to be false")


def test_local_mode_has_jars_on_the_class_path_and_a_manager_that_renames():
    made = options(settings(), Path("/work/log4j2"))
    assert made["spark.driver.extraClassPath"] == os.pathsep.join(["/jars/a.jar", "/jars/b.jar"])
    assert made[MANAGER].endswith("FileSystemBasedCheckpointFileManager")
    assert "spark.jars" not in made
    assert made["spark.driver.host"] == "127.0.0.1"


def test_local_files_need_no_process_each_where_the_jar_is_there():
    jars = ("/jars/hadoop-bare-naked-local-fs-0.1.0.jar",)
    name = "spark.hadoop.fs.file.impl"
    assert options(settings(jars=jars), Path("/work/log4j2"))[name].endswith("BareLocalFileSystem")
    assert name not in options(settings(), Path("/work/log4j2"))
    assert name not in options(settings("spark://host:7077", jars=jars), Path("/work/log4j2"))


def test_a_cluster_gets_the_jars_from_the_driver_and_no_path_of_it():
    made = options(settings("spark://host:7077", **{"spark.jars": "/mine.jar"}), Path("/work/log4j2"))
    assert made["spark.jars"] == "/jars/a.jar,/jars/b.jar,/mine.jar"
    assert (
        not {"spark.driver.extraClassPath", "spark.executor.extraClassPath", "spark.local.dir", MANAGER} & made.keys()
    )
    assert "spark.driver.host" not in made


def test_java_options_of_the_user_are_added():
    made = options(settings(**{"spark.executor.extraJavaOptions": "-Xtheirs"}), Path("/work/log4j2"))
    assert made["spark.executor.extraJavaOptions"] == "-Xours -Xtheirs"


def test_s3_is_written_by_uploads():
    jars = ("/jars/spark-hadoop-cloud_2.13-4.1.1.jar",)
    made = options(settings("spark://host:7077", "s3a://bucket/x", jars), Path("/work/log4j2"))
    assert made[MANAGER].endswith("AbortableStreamBasedCheckpointFileManager")
    assert MANAGER not in options(settings("local[2]", "hdfs://name/x", jars), Path("/work/log4j2"))


def test_a_session_of_others_keeps_its_settings_but_for_those_of_the_file():
    given = {"spark.sql.streaming.stopTimeout": "60s", "spark.sql.shuffle.partitions": "200"}
    extra = {"spark.sql.execution.arrow.maxBytesPerBatch": "8m"}
    made = attached_options(settings(None, **extra), given)
    assert made["spark.sql.streaming.stopTimeout"] == "60s"
    assert made["spark.sql.shuffle.partitions"] == "2"  # the checkpoint's
    assert made["spark.sql.execution.arrow.maxBytesPerBatch"] == "8m"
    assert "spark.driver.memory" not in made
