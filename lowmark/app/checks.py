"""What `lowmark check` looks at, one after the other; what depends on a failed check is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lowlevel.config import LowLevelConfigError
from lowmark.app.capturesources import work_of
from lowmark.app.config import Config, ConfigError, load_config
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.failures import failure_of
from lowmark.app.java import find_java
from lowmark.app.planning import plan_queries, topics_of
from lowmark.app.rights import Role, job_group, rights_of
from lowmark.app.tablememory import asked_table, check_tables
from lowmark.query.plan import QueryPlan
from lowmark.query.sharingexplain import said_of_stages
from lowmark.wire.kafka import KafkaProblem, KafkaSettingsError, admin, verify_topics
from lowmark.wire.kafkarights import missing_rights, refused_creations

__all__ = ["CheckResult", "run_checks"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    what: str
    problem: str | None = None
    exit_code: int = 0


def _failed(what: str, error: Exception) -> CheckResult:
    failure = failure_of(error)
    if failure is None:
        raise error
    return CheckResult(what, failure.text, failure.exit_code)


def run_checks(path: Path, roles: Sequence[Role] = tuple(Role)) -> Iterator[CheckResult]:
    """`roles`: whose rights in Kafka are asked for."""
    try:
        config = load_config(path)
    except ConfigError as error:
        yield _failed(f"configuration {path}", error)
        return
    yield CheckResult(f"configuration {path}")
    plans: list[QueryPlan] = []
    for name in config.queries:
        try:
            plans += plan_queries(config, [name])
        except ConfigError as error:
            yield _failed(f"query {name}", error)
        else:
            yield CheckResult(f"query {name}")
    yield from map(CheckResult, said_of_stages(plans))
    yield from _tables(config, plans)
    yield from _captures(config)
    yield _java()
    yield from _kafka(config, plans, roles)


def _tables(config: Config, plans: Sequence[QueryPlan]) -> Iterator[CheckResult]:
    table = config.capture.table
    nodes = [item.node for name in config.here() for _ in config.members(name) for item in work_of(config, plans, name)]
    try:
        check_tables(nodes, table, asked_table(table))
    except LowLevelConfigError as error:
        yield _failed("tables of groups", error)


def _captures(config: Config) -> Iterator[CheckResult]:
    from ingest.damage import CaptureError
    from ingest.interfaces import InterfaceError, interface
    from ingest.ring import Ring
    from ingest.series import open_captures

    for name in config.here():
        at = config.sources[name]
        try:
            for member, source in enumerate(config.members(name)):
                at.scheduling(member).check(source)
        except EnvironmentNotReady as error:
            yield _failed(f"source {name}", error)
            continue
        if str(at.file) == "-" or at.follow:
            continue
        try:
            if at.interface is not None:
                Ring(interface(at.interface), config.capture.ring).close()
            else:
                open_captures(str(config.path.parent / str(at.file))).close()
        except (CaptureError, InterfaceError) as error:
            yield _failed(f"source {name}", error)
        else:
            yield CheckResult(f"source {name}: {at.interface or at.file}")


def _java() -> CheckResult:
    try:
        java = find_java()
    except EnvironmentNotReady as error:
        return _failed("Java", error)
    return CheckResult(f"Java {java.version} at {java.home}")


def _kafka(config: Config, plans: list[QueryPlan], roles: Sequence[Role]) -> Iterator[CheckResult]:
    what = f"Kafka at {config.kafka.bootstrap}"
    wanted = topics_of(config, plans)
    try:
        client = admin(config.kafka)
        problems = verify_topics(client, wanted)
    except (KafkaProblem, KafkaSettingsError) as error:
        yield _failed(what, error)
        return
    yield CheckResult(what)
    # Missing topics are created at the start; those that are there must suit.
    for problem in problems:
        if problem.there != "missing":
            yield CheckResult(f"topic {problem.topic}", str(problem), 1)
    missing = {problem.topic for problem in problems if problem.there == "missing"}
    refused = refused_creations(client, [settings for settings in wanted if settings.name in missing])
    hint = "somebody who may creates them with `lowmark topics --create`"
    created = "1 is created" if len(missing) == 1 else f"{len(missing)} are created"
    yield _listed(f"topics: {created} at the start" if missing else "topics", refused, hint)
    for role in roles:
        there = {topic: right for topic, right in rights_of(config, plans, role).items() if topic not in missing}
        group = job_group(config, config.job.name) if role is Role.RUN else None
        lacking = missing_rights(client, there, group)
        yield _listed(f"rights for lowmark {role.value}", lacking, "have them granted to this user")


def _listed(what: str, problems: list[str], hint: str) -> CheckResult:
    return CheckResult(what, "\n     ".join([*problems, hint]), 1) if problems else CheckResult(what)
