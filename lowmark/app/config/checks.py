"""The checks of `lowmark check`, in order. A check that depends on a failed one is left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from threading import Timer
from urllib.parse import urlsplit

from highlevel.spark.errors import JobStopped
from highlevel.spark.spark_options import scheme_of
from lowlevel.closed_connections import kernel_reductions
from lowlevel.config import LowLevelConfigError
from lowlevel.kernel.cache import prepare
from lowmark.app.capture.sources import work_of, work_on
from lowmark.app.capture.table_memory import asked_table, check_tables
from lowmark.app.config.file import Config, ConfigError, load_config
from lowmark.app.config.queries import plan_queries, topics_of
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.exit_codes import failure_of
from lowmark.app.job.check import foresee_job
from lowmark.app.kafka.jars import SPARK_KAFKA, kept
from lowmark.app.kafka.java import find_java, spark_java_home
from lowmark.app.kafka.rights import Role, job_group, query_group, rights_of
from lowmark.query.explain.notes import gaps
from lowmark.query.explain.sharing import said_of_stages
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.kafka.clients import KafkaProblem, KafkaSettingsError, TopicProblem, admin, verify_topics
from lowmark.wire.kafka.rights import missing_rights, refused_creations

__all__ = ["CheckResult", "run_checks"]

_BRIEF = 300  # characters shown of a compiler message
_PATIENCE_S = 2.0  # a kernel that compiles longer is announced


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


def run_checks(path: Path, roles: Sequence[Role], tell: Callable[[str], None]) -> Iterator[CheckResult]:
    """`roles`: the roles whose Kafka rights are checked. `tell` gets a line about each slow step; any thread may call
    it."""
    try:
        config = load_config(path)
    except ConfigError as error:
        yield _failed(f"configuration {path}", error)
        return
    yield CheckResult(f"configuration {path}")
    plans: list[QueryPlan] = []
    for name in config.queries:
        try:
            planned = plan_queries(config, [name])
        except ConfigError as error:
            yield _failed(f"query {name}", error)
        else:
            plans += planned
            yield CheckResult(": ".join((f"query {name}", *(text for plan in planned for text in gaps(plan.steps)))))
    yield from map(CheckResult, said_of_stages(plans))
    yield from _tables(config, plans)
    yield from _kernels(config, plans, tell)
    yield from _captures(config)
    if Role.RUN in roles:
        yield from _job_host(config)
    yield from _kafka(config, plans, roles)


def _tables(config: Config, plans: Sequence[QueryPlan]) -> Iterator[CheckResult]:
    table = config.capture.table
    nodes = [item.node for name in config.here() for _ in config.members(name) for item in work_of(config, plans, name)]
    try:
        check_tables(nodes, table, asked_table(table))
    except LowLevelConfigError as error:
        yield _failed("tables of groups", error)


def _kernels(config: Config, plans: Sequence[QueryPlan], tell: Callable[[str], None]) -> Iterator[CheckResult]:
    """Compiles the kernels of all captures, of every host; captures on this machine find them later."""
    for stream in config.streams:
        work = work_on(config, plans, stream)
        if not work:
            continue
        queries = [
            plan.name for plan in plans if any(item.stage.fingerprint == plan.stage.fingerprint for item in work)
        ]
        what = f"kernel of stream {stream}, for {', '.join(queries)}"
        late = Timer(_PATIENCE_S, tell, [f"compiling the {what}"])
        late.daemon = True
        late.start()
        try:
            reductions, sent = kernel_reductions([item.node for item in work], [item.send_late for item in work])
            prepare(reductions, sent, config.capture.table.order)
        except Exception as error:  # a user's own aggregate may need something that no kernel can compute
            yield CheckResult(what, f"it cannot be compiled: {_brief(error)}", 2)
        else:
            yield CheckResult(what)
        finally:
            late.cancel()


def _brief(error: Exception) -> str:
    """The message, shortened."""
    return shorten(str(error), _BRIEF, placeholder=" …") or type(error).__name__


def _captures(config: Config) -> Iterator[CheckResult]:
    from ingest.files.errors import CaptureError
    from ingest.files.inputs import is_stream
    from ingest.files.series import open_captures
    from ingest.live.interfaces import InterfaceError, interface
    from ingest.live.ring import Ring

    for name in config.here():
        at = config.sources[name]
        try:
            for member, source in enumerate(config.members(name)):
                at.scheduling(member).check(source)
        except EnvironmentNotReady as error:
            yield _failed(f"source {name}", error)
            continue
        if at.file is not None and (at.follow or is_stream(config.capture_path(name))):
            continue
        try:
            if at.interface is not None:
                Ring(interface(at.interface), config.capture.ring).close()
            else:
                open_captures(config.capture_path(name)).close()
        except (CaptureError, InterfaceError) as error:
            yield _failed(f"source {name}", error)
        else:
            yield CheckResult(f"source {name}: {at.interface or at.file}")


def _job_host(config: Config) -> Iterator[CheckResult]:
    """What `lowmark run` needs on this host."""
    try:
        java = find_java()
        spark_java_home(java)
    except EnvironmentNotReady as error:
        yield _failed("Java", error)
    else:
        yield CheckResult(f"Java {java.version} at {java.home}")
    what = f"jars of {SPARK_KAFKA.purpose}"
    try:
        jars = kept(SPARK_KAFKA)
    except EnvironmentNotReady as error:
        yield _failed(what, error)
    else:
        yield CheckResult(f"{what} in {jars[0].parent}")
    if scheme_of(config.job.checkpoint) != "file":
        yield CheckResult(f"checkpoint {config.job.checkpoint}, which only the start of the job looks at")
        return
    checkpoint = config.path.parent / urlsplit(config.job.checkpoint).path
    there = next(folder for folder in (checkpoint, *checkpoint.absolute().parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        yield CheckResult(f"checkpoint {checkpoint}")
    else:
        hint = "Set job.checkpoint to a folder that this user can write to"
        wrong = "cannot be written by this user" if there.is_dir() else "is not a folder"
        yield CheckResult(f"checkpoint {checkpoint}", f"{there} {wrong}. {hint}", 1)


def _kafka(config: Config, plans: list[QueryPlan], roles: Sequence[Role]) -> Iterator[CheckResult]:
    what = f"Kafka at {config.kafka.bootstrap}"
    wanted = topics_of(config, plans, roles)
    try:
        client = admin(config.kafka)
        problems = verify_topics(client, wanted)
    except (KafkaProblem, KafkaSettingsError) as error:
        yield _failed(what, error)
        return
    yield CheckResult(what)
    # The start creates missing topics; existing ones must have the right settings.
    for problem in problems:
        if _unlike(problem):
            yield CheckResult(f"topic {problem.topic}", str(problem), 1)
    missing = {problem.topic for problem in problems if problem.there == "missing"}
    refused = refused_creations(client, [settings for settings in wanted if settings.name in missing])
    hint = "a user who may create topics must run `lowmark topics --create`"
    created = "1 is created" if len(missing) == 1 else f"{len(missing)} are created"
    yield _listed(f"topics: {created} at the start" if missing else "topics", refused, hint)
    for role in roles:
        there = {topic: right for topic, right in rights_of(config, plans, role).items() if topic not in missing}
        groups = [f"{job_group(config, config.job.name)}.", query_group(config, "")] if role is Role.RUN else []
        lacking = missing_rights(client, there, groups)
        yield _listed(f"rights for lowmark {role.value}", lacking, "grant these rights to this user")
        known = len(plans) == len(config.queries) and not lacking and not any(map(_unlike, problems))
        if role is Role.RUN and plans and known:
            yield _job(config, plans, {settings.name for settings in wanted} - missing)


def _unlike(problem: TopicProblem) -> bool:
    return problem.there != "missing"


def _job(config: Config, plans: Sequence[QueryPlan], there: set[str]) -> CheckResult:
    try:
        return CheckResult(foresee_job(config, plans, there))
    except (JobStopped, KafkaProblem) as error:
        return _failed(f"job {config.job.name}", error)


def _listed(what: str, problems: list[str], hint: str) -> CheckResult:
    return CheckResult(what, "\n     ".join([*problems, hint]), 1) if problems else CheckResult(what)
