"""What a host of a cluster is asked, and how it is named when it lacks something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from highlevel.spark import preflight
from highlevel.spark.preflight import NONCE, Asked, HostRefused, admit, look
from lowmark.wire.kafka.settings import KafkaSettings, SaslMechanism, Secret, SecurityProtocol

KAFKA = KafkaSettings("127.0.0.1:9092")


def asked(tmp_path, kafka=KAFKA):
    made = Asked.by(kafka, str(tmp_path))
    (tmp_path / NONCE).write_text(f"{made.nonce}\n" * 3)
    return made


def test_a_host_that_has_all_of_it_is_admitted(tmp_path):
    made = asked(tmp_path)
    assert look(made) == []
    admit(made)


def test_a_place_behind_a_url_is_not_looked_for_on_the_host():
    assert Asked.by(KAFKA, "s3a://bucket/job").folder is None
    assert look(Asked.by(KAFKA, "s3a://bucket/job")) == []


def test_a_checkpoint_that_is_not_there_or_another_one_is_told(tmp_path):
    made = asked(tmp_path)
    (tmp_path / NONCE).write_text("another\n")
    (wrong,) = look(made)
    assert f"does not see the checkpoint {tmp_path} of the driver (another file is there)" in wrong
    (tmp_path / NONCE).unlink()
    with pytest.raises(HostRefused, match=r"host \S+ cannot work for this job: it does not see .*No such file"):
        admit(made)


def test_other_versions_are_told(tmp_path):
    made = asked(tmp_path)
    versions = dict(made.versions) | {"pyarrow": "1.0", "Python": "3.9"}
    found = look(replace(made, versions=versions))
    assert [said.partition(", and")[0].split()[2] for said in found] == ["Python", "pyarrow"]
    assert all("lowmark pack" in said for said in found)


def test_a_secret_that_cannot_be_read_is_told(tmp_path):
    secret = Secret(file=tmp_path / "password")
    kafka = KafkaSettings("h:1", SecurityProtocol.SASL_PLAINTEXT, SaslMechanism.PLAIN, "user", secret)
    (wrong,) = look(asked(tmp_path, kafka))
    assert f"the secret in {tmp_path}/password cannot be read" in wrong


def test_scratch_space_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path}/nothing")
    (wrong,) = look(asked(tmp_path))
    assert wrong == f"its scratch space {tmp_path}/nothing cannot be written: No such file or directory"


NO_PYTHON = """\
Job aborted: Lost task 0.3 in stage 1.0 (TID 5) (10.97.0.4 executor 1): java.io.IOException: Cannot run \
program "./e/python": error=2, No such file or directory
\tat java.base/java.lang
"""
NO_FILE = "(TID 5) (one executor 1): java.io.FileNotFoundException: File s3a://b/nonce does not exist\n\tat org"
NO_PACKAGE = """\
(TID 5) (one executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File x
ModuleNotFoundError: No module named 'highlevel'

Driver stacktrace:
ValueError: other
"""


@pytest.mark.parametrize(
    ("text", "host", "told"),
    [
        (NO_PYTHON, "10.97.0.4", "its Python ./e/python cannot be run (error=2, No such file or directory)"),
        (NO_FILE, "one", "it does not see the checkpoint of the driver (java.io.FileNotFoundException"),
        (NO_PACKAGE, "one", "its Python says ModuleNotFoundError: No module named 'highlevel'"),
    ],
)
def test_a_task_that_could_not_begin_names_its_host(text, host, told):
    assert str(preflight._refused(text)).startswith(f"host {host} cannot work for this job: {told}")
