"""The Kafka rights that each role needs: capture hosts, and the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from lowmark.query.options import Late
from lowmark.wire.kafka.topics import Topic, TopicKind

if TYPE_CHECKING:  # --help names the roles and must load little
    from lowmark.app.config.file import Config
    from lowmark.query.plan.nodes import QueryPlan

__all__ = ["Role", "job_group", "kinds_of", "query_group", "rights_of"]


class Role(Enum):
    """Each role is named after its command."""

    CAPTURE = "capture"
    RUN = "run"


_SETTINGS = "DESCRIBE_CONFIGS"  # each role looks at the settings of its topics when it starts

_RIGHTS = {
    Role.CAPTURE: {
        TopicKind.SOURCES: frozenset({_SETTINGS, "READ", "WRITE"}),
        TopicKind.PARTIALS: frozenset({_SETTINGS, "WRITE"}),
    },
    Role.RUN: {
        TopicKind.SOURCES: frozenset({_SETTINGS, "READ", "WRITE"}),
        TopicKind.PARTIALS: frozenset({_SETTINGS, "READ", "WRITE"}),  # WRITE, because changes of rosters stand there
        TopicKind.EXCHANGE: frozenset({_SETTINGS, "READ", "WRITE"}),
        TopicKind.RESULTS: frozenset({_SETTINGS, "READ", "WRITE"}),  # read after the checkpoint is lost
        TopicKind.LATE: frozenset({_SETTINGS, "WRITE"}),
        TopicKind.DEAD: frozenset({_SETTINGS, "WRITE"}),
    },
}


def job_group(config: Config, job: str) -> str:
    """The beginning of the ids of a job's transactions, and of the consumer groups that hold its tokens."""
    return f"{config.prefix}lowmark.v1.job.{job}"


def query_group(config: Config, query: str) -> str:
    """The consumer group that says which job writes a query's results, and the id of the transaction that says so."""
    return f"{config.prefix}lowmark.v1.query.{query}"


def kinds_of(roles: Iterable[Role]) -> frozenset[TopicKind]:
    """The kinds of topics that these roles use."""
    return frozenset(kind for role in roles for kind in _RIGHTS[role])


def rights_of(config: Config, plans: Sequence[QueryPlan], role: Role) -> dict[str, frozenset[str]]:
    """By topic: the operations that the role needs, by their Kafka names."""
    wanted: dict[str, frozenset[str]] = {}
    for kind, operations in _RIGHTS[role].items():
        subjects: list[str | None]
        match kind:
            case TopicKind.PARTIALS:
                subjects = [plan.stage.fingerprint for plan in plans]
            case TopicKind.EXCHANGE:
                subjects = [plan.exchanges.fingerprint for plan in plans if plan.exchanges is not None]
            case TopicKind.RESULTS:
                subjects = [plan.name for plan in plans]
            case TopicKind.LATE:
                subjects = [plan.name for plan in plans if plan.late is Late.EMIT]
            case _:
                subjects = [None]
        wanted |= {Topic(kind, subject, config.prefix).name: operations for subject in subjects}
    return wanted
