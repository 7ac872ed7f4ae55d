"""Why a job does not start or stops: errors for people. Nothing is lost. Exit code 1: a supervisor may start the job
again. Exit code 2: another start ends in the same way until a person has changed something."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "RELEASE", "WAYS_OUT", "BucketFailure", "CheckpointRefused", "JobFailed", "JobStopped", "QueriesFailed",
    "QueryFailure", "RowsWouldRepeat", "SinkStopped", "TakenOver", "TopicsDeleted",
]  # fmt: skip

WAYS_OUT = (
    "Point job.checkpoint at the right one; or start with --new-generation, which reads again what Kafka still has "
    "and leaves out what has been told"
)


RELEASE = (
    "See to the reason (a limit, or another version of lowmark), and start the job once with --release and its name: "
    "it begins again from then on; or with --new-generation: it goes on where it stopped, from what Kafka still has"
)
"""How a quarantined query runs again. The others find their state as it was before the micro-batch in which its
operator failed; what the query has stored is not read again."""


class JobStopped(Exception):
    """The message says what is wrong, where, and what would be right."""

    exit_code = 1


class CheckpointRefused(JobStopped):
    """The checkpoint, the queries and the results in Kafka do not belong together."""

    exit_code = 2


class RowsWouldRepeat(CheckpointRefused):
    """A new generation would write rows again that are already in Kafka, and the user has not allowed it."""


class TakenOver(JobStopped):
    """Another process runs this job: it has fenced this one, which has written nothing since."""


class JobFailed(JobStopped):
    """An operator, Spark or Kafka failed."""


class QueriesFailed(JobFailed):
    """An operator failed that all queries of the job depend on. It is pure: another start fails in the same way."""

    exit_code = 2


class TopicsDeleted(JobStopped):
    """Result topics that the job has written to were deleted."""

    exit_code = 2

    def __init__(self, topics: Iterable[str]) -> None:
        super().__init__(
            f"{', '.join(sorted(topics))}: this topic of results was deleted, with what stood in it. A new one would "
            "begin in the middle: start with --new-generation, which tells again all that Kafka still has partials of"
        )


class BucketFailure(Exception):
    """Raised in an executor: an operator failed. Names the queries, stage and bucket."""


class QueryFailure(BucketFailure):
    """Raised in an executor: an operator failed that no other queries read than those that it names."""


class SinkStopped(Exception):
    """Raised in an executor, where a bucket's results could not be written: the name of the JobStopped to raise in the
    driver, and its message. Spark passes on no more than text."""

    def __init__(self, reason: Exception) -> None:
        kind = type(reason) if isinstance(reason, JobStopped) else JobFailed
        super().__init__(f"{kind.__name__}: {reason}")
