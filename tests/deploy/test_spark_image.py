"""The job's image as Spark's on Kubernetes: a driver and executors, started with the arguments and the environment that
Spark gives its pods there. A standalone master stands in for the API server: it gives out an application's name and
starts nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import BotoCoreError

from lowmark.app.config.file import load_config
from tests.deploy.images import Container, Images
from tests.deploy.observed import free_address
from tests.deploy.test_image import mounted, told
from tests.helm.test_spark_application import BY_UPLOAD
from tests.integration.jobfeed import LEVELS, SLIDING, Feed, write_config
from tests.integration.jobprocess import await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BUCKET = "checkpoints"


@pytest.fixture
def s3() -> Iterator[str]:
    """The URL of a server with a bucket."""
    address = free_address()
    host, _, port = address.partition(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = boto3.client(
        "s3", endpoint_url=f"http://{address}", region_name="us-east-1", aws_access_key_id="somebody",
        aws_secret_access_key="secret",
    )  # fmt: skip

    def made() -> bool:
        assert server.poll() is None
        try:
            client.create_bucket(Bucket=BUCKET)
        except BotoCoreError:  # it does not listen yet
            return False
        return True

    try:
        await_true(made)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait(20)


def java_options(images: Images) -> list[str]:
    """Those of every JVM of Spark's, which it adds to `spark.executor.extraJavaOptions`: its launcher names them."""
    launcher = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--class", "any", "any.jar")
    run = ("run", "--rm", "--network", "none", "--cap-drop", "ALL", "--env", "SPARK_HOME=/opt/lowmark/spark")
    run += ("--env", "SPARK_SCALA_VERSION=2.13", "--entrypoint", "/opt/lowmark/java/bin/java")
    said = images.docker(*run, images.job, "-cp", "/opt/lowmark/spark/jars/*", *launcher)
    words = [word for word in said.split("\0") if word[:1] == "-"]
    return [word for word in words if word not in ("-cp", "--class") and not word.startswith("-Xmx")]


def executor(number: int, driver: str, options: list[str]) -> tuple[str, ...]:
    """The environment of an executor's pod, which has an address of its own."""
    address = f"127.0.1.{number}"
    given = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{driver}", "SPARK_EXECUTOR_ID": str(number),
        "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": address, "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": f"exec-{number}", "SPARK_LOCAL_IP": address,
        **{f"SPARK_JAVA_OPT_{at}": option for at, option in enumerate(options)},
    }  # fmt: skip
    return tuple(word for name, value in given.items() for word in ("--env", f"{name}={value}"))


def test_a_driver_and_executors_of_the_image_write_each_result_once(
    both_images: Images, broker: str, s3: str, tmp_path: Path
) -> None:
    image, master, driver = both_images.job, free_address(), free_address()
    path = write_config(tmp_path, broker, talkers=SLIDING, levels=LEVELS)
    path.write_text(path.read_text().replace("[job]", f'[job]\ncheckpoint = "s3a://{BUCKET}/job"'))
    feed = Feed(load_config(path), seed=3)
    feed.panes(8, end=True)
    at = "spark.hadoop.fs.s3a"
    settings = {
        "spark.driver.host": "127.0.0.1", "spark.driver.port": driver.partition(":")[2], "spark.driver.memory": "512m",
        "spark.executor.instances": "2", "spark.executor.cores": "1",
        "spark.sql.streaming.checkpointFileManagerClass": BY_UPLOAD,
        f"{at}.endpoint": s3, f"{at}.endpoint.region": "us-east-1", f"{at}.path.style.access": "true",
        # moto answers `Expect: 100-continue` twice, and the client's asynchronous uploads then never end.
        f"{at}.optimized.copy.from.local.enabled": "false", f"{at}.connection.ssl.enabled": "false",
        f"{at}.access.key": "somebody", f"{at}.secret.key": "secret",
    }  # fmt: skip
    sealed = ("--security-opt", "no-new-privileges", *mounted(tmp_path))
    loopback = ("--env", "SPARK_LOCAL_IP=127.0.0.1")
    spark_class = ("--entrypoint", "/opt/lowmark/spark/bin/spark-class", "--env", "JAVA_HOME=/opt/lowmark/java")
    options = java_options(both_images)
    named = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    resource = ("--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/lowmark/share/lowmark/lowmark-job.py")
    host, _, port = master.partition(":")
    with (
        both_images.container(
            image, "org.apache.spark.deploy.master.Master", "--host", host, "--port", port, "--webui-port", "0",
            options=(*spark_class, *loopback),
        ) as standing_in,
        both_images.container(
            image, "driver", "--master", f"spark://{master}", *named, *resource, "run", "--until-last",
            options=(*sealed, "--env", "SPARK_DRIVER_BIND_ADDRESS=127.0.0.1", *loopback),
        ) as of_driver,
    ):  # fmt: skip
        told(of_driver, r"(waiting for executors)")
        with (
            both_images.container(image, "executor", options=(*sealed, *executor(1, driver, options))) as first,
            both_images.container(image, "executor", options=(*sealed, *executor(2, driver, options))) as second,
        ):
            await_true(lambda: not of_driver.runs)
            said = "\n".join(each.said for each in (standing_in, first, second, of_driver))
            assert of_driver.inspect("{{.State.ExitCode}}") == "0", said
            assert re.search(r"2 slots on ", of_driver.said), said
            assert all(map(worked, (first, second))), said
    for plan in feed.plans:
        feed.assert_told(plan)


def worked(executor: Container) -> bool:
    """Whether it ran a task."""
    return "Running task" in executor.said


def test_other_arguments_are_those_of_lowmark(both_images: Images) -> None:
    said = both_images.docker("run", "--rm", "--network", "none", "--cap-drop", "ALL", both_images.job, "run", "--help")
    assert "lowmark run" in said
