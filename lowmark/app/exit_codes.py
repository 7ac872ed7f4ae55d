"""The errors that are shown to people, and the exit code of each."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from rich.markup import escape

from highlevel.limits import LimitReached
from highlevel.spark.errors import JobStopped
from ingest.disorder.declarations import DisorderError
from ingest.files.errors import CaptureError
from ingest.live.interfaces import InterfaceError
from lowlevel.config import LowLevelConfigError
from lowmark.app.config.toml_tables import ConfigError
from lowmark.app.errors import EnvironmentNotReady, OutputError
from lowmark.helpers import HelperEnded
from lowmark.query.parse.errors import BadEntryPoint, QueryError
from lowmark.wire.kafka.settings import KafkaSettingsError

__all__ = ["Failure", "failure_of"]


@dataclass(frozen=True, slots=True)
class Failure:
    text: str
    exit_code: int

    @property
    def markup(self) -> str:
        return escape(self.text)


def failure_of(error: Exception) -> Failure | None:
    """Message and exit code of an error; None if it is a defect of lowmark, which needs its traceback."""
    match error:
        case QueryError():
            return Failure(error.render(), 2)
        case (
            EnvironmentNotReady() | OutputError() | ConfigError() | JobStopped() | InterfaceError() | LimitReached()
            | HelperEnded()
        ):  # fmt: skip
            return Failure(str(error), error.exit_code)
        case DisorderError() | KafkaSettingsError() | LowLevelConfigError() | BadEntryPoint():
            return Failure(str(error), 2)
        case CaptureError():
            return Failure(str(error), 3)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return Failure(f"cannot write {error.filename or 'a file or standard output'}: {error.strerror}", 1)
    # Kafka's client and numpy are slow to load: recognize their users' errors by module name instead of importing them.
    if type(error).__module__ in ("lowmark.wire.kafka.clients", "highlevel.join.oblivious.disk_buffer"):
        return Failure(str(error), 1)
    if (type(error).__module__, type(error).__name__) == ("cimpl", "KafkaException"):  # of a call between two answers
        from lowmark.wire.kafka.clients import translate

        return Failure(str(translate(error.args[0])), 1)
    return None
