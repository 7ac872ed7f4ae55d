"""What `lowmark check` looks at, one after the other; what depends on a failed check is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lowmark.app.config import Config, ConfigError, load_config
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.failures import failure_of
from lowmark.app.java import find_java
from lowmark.app.planning import plan_queries, topics_of
from lowmark.query.plan import QueryPlan
from lowmark.wire.kafka import KafkaProblem, KafkaSettingsError, admin, verify_topics

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


def run_checks(path: Path) -> Iterator[CheckResult]:
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
    yield from _captures(config)
    yield _java()
    yield from _kafka(config, plans)


def _captures(config: Config) -> Iterator[CheckResult]:
    from ingest.capture import open_capture
    from ingest.damage import CaptureError

    for name in config.here():
        file = config.sources[name].file
        if file is None or str(file) == "-":
            continue
        try:
            open_capture(str(config.path.parent / file)).close()
        except CaptureError as error:
            yield _failed(f"source {name}", error)
        else:
            yield CheckResult(f"source {name}: {file}")


def _java() -> CheckResult:
    try:
        java = find_java()
    except EnvironmentNotReady as error:
        return _failed("Java", error)
    return CheckResult(f"Java {java.version} at {java.home}")


def _kafka(config: Config, plans: list[QueryPlan]) -> Iterator[CheckResult]:
    what = f"Kafka at {config.kafka.bootstrap}"
    try:
        client = admin(config.kafka)
        problems = verify_topics(client, topics_of(config, plans))
    except (KafkaProblem, KafkaSettingsError) as error:
        yield _failed(what, error)
        return
    yield CheckResult(what)
    # Missing topics are created at the start; those that are there must suit.
    for problem in problems:
        if problem.there != "missing":
            yield CheckResult(f"topic {problem.topic}", str(problem), 1)
    missing = sum(problem.there == "missing" for problem in problems)
    yield CheckResult(f"topics: {missing} will be created" if missing else "topics")
