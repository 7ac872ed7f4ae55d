"""Which errors are for people, and with which exit code."""

from __future__ import annotations

import errno

import pytest
from confluent_kafka import KafkaError, KafkaException

from highlevel.join.oblivious.disk_buffer import DiskBufferError
from highlevel.spark.errors import CheckpointRefused, JobFailed, RowsWouldRepeat, TakenOver, TopicsDeleted
from ingest.disorder.declarations import DisorderError
from ingest.files.errors import CaptureError
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.errors import EnvironmentNotReady, OutputError, StartRefused
from lowmark.app.exit_codes import failure_of
from lowmark.query.parse.errors import QueryError
from lowmark.query.parse.parser import parse
from lowmark.wire.kafka.clients import KafkaRefused, KafkaUnavailable
from lowmark.wire.kafka.settings import KafkaSettingsError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("bad key"), 2),
        (KafkaSettingsError("bad address"), 2),
        (DisorderError("bad disorder"), 2),
        (OutputError("cannot write"), 2),
        (CaptureError("no capture"), 3),
        (KafkaUnavailable("no broker"), 1),
        (KafkaRefused("no rights"), 1),
        (JobFailed("Spark was killed"), 1),
        (DiskBufferError("nothing can be written there"), 1),
        (TakenOver("another process runs the job"), 1),
        (CheckpointRefused("another job's"), 2),
        (RowsWouldRepeat("rows would come twice"), 2),
        (TopicsDeleted(["results.q"]), 2),
    ],
)
def test_the_message_and_the_exit_code(error: Exception, code: int) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert (failure.text, failure.exit_code) == (str(error), code)


def test_an_environment_error_brings_its_hint_and_details() -> None:
    failure = failure_of(EnvironmentNotReady("port in use", "take another", ("a line of a log",)))
    assert failure is not None
    assert failure.text == "port in use\n    a line of a log\nHint: take another"
    assert failure.exit_code == 1


def test_a_broker_that_goes_in_the_midst_of_a_command_is_no_defect() -> None:
    failure = failure_of(KafkaException(KafkaError(KafkaError._TRANSPORT, "Broker transport failure")))
    assert failure is not None
    assert failure.text.startswith("Kafka: Broker transport failure. Is the address right, the broker up")
    assert failure.exit_code == 1


def test_what_no_later_start_heals_has_the_code_of_a_wrong_configuration() -> None:
    failure = failure_of(StartRefused("no such CPU", "choose another"))
    assert failure is not None
    assert (failure.text, failure.exit_code) == ("no such CPU\nHint: choose another", 2)


def test_a_query_error_shows_the_spot() -> None:
    with pytest.raises(QueryError) as caught:
        parse("SELECT srcIP FROM")
    failure = failure_of(caught.value)
    assert failure is not None
    assert failure.exit_code == 2
    assert "SELECT srcIP FROM" in failure.text
    assert "^" in failure.text


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), AssertionError()])
def test_a_defect_is_no_failure_of_a_person(error: Exception) -> None:
    assert failure_of(error) is None


def test_brackets_of_a_message_are_no_markup() -> None:
    failure = failure_of(ConfigError("unknown table [bold]"))
    assert failure is not None
    assert failure.text == "unknown table [bold]"
    assert failure.markup == r"unknown table \[bold]"


def test_a_full_disk_is_no_defect() -> None:
    failure = failure_of(OSError(errno.ENOSPC, "No space left on device", "/full"))
    assert failure is not None
    assert failure.text == "cannot write /full: No space left on device"
    assert failure.exit_code == 1
    assert failure_of(OSError(errno.EBADF, "Bad file descriptor")) is None
