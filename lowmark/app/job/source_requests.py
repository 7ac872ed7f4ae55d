"""Asks the process of a job to change the sources that windows wait for, and waits for its answer."""

from __future__ import annotations

import os
import time

from highlevel.rosters.ruling import shown
from lowlevel.source_registration import SourcesLog
from lowmark.app.config.file import Config
from lowmark.app.errors import EnvironmentNotReady
from lowmark.app.job.roster import members_now, rosters_in_force
from lowmark.app.kafka.source_registry import seen_sources
from lowmark.wire.kafka.topics import Topic, TopicKind
from lowmark.wire.records.registration import SourceKind
from lowmark.wire.records.rosters import Action, Request, RosterInForce
from lowmark.wire.rows.values import NEVER

__all__ = ["ask"]

_ANSWER_WITHIN_S = 20.0
_PAUSE_S = 0.3

_SOURCES = "`lowmark sources` shows streams and sources"


def ask(config: Config, job: str, source: str, action: Action) -> str:
    """Returns what is in force after the answer. EnvironmentNotReady says why there was none."""
    stream = _stream(config, job, source, action)
    log = SourcesLog(config.kafka, Topic(TopicKind.SOURCES, None, config.prefix).name)
    offset = log.append(Request(job, stream, source, action, f"{os.uname().nodename}:{os.getpid()}"))
    until = time.monotonic() + _ANSWER_WITHIN_S
    while time.monotonic() < until:
        roster = _roster(config, job, stream)
        if roster is not None and roster.heard > offset:
            return _told(roster, source, action)
        time.sleep(_PAUSE_S)
    raise EnvironmentNotReady(
        f"job {job} has not answered within {_ANSWER_WITHIN_S:.0f} s: no process runs it, or it is starting",
        "the request stays in Kafka: the job takes it when it runs. Look at `lowmark sources` then",
    )


def _stream(config: Config, job: str, source: str, action: Action) -> str:
    """The stream of the source. Refuses what the job would not do."""
    rosters = {roster.stream: roster for roster in rosters_in_force(config) if roster.job == job}
    if not rosters:
        raise EnvironmentNotReady(f"job {job} has not begun: it has no roster", "start it with `lowmark run`")
    listing = [stream for stream, roster in rosters.items() if source in members_now(roster)]
    if action is not Action.ADD:
        if not listing:
            raise EnvironmentNotReady(f"job {job} lists no source {source}", _SOURCES)
        if action is Action.RETIRE and len(members_now(rosters[listing[0]])) == 1:
            raise EnvironmentNotReady(
                f"{source} is the last source of stream {listing[0]}, which needs one", "add another one first"
            )
        return listing[0]
    for seen in seen_sources(config.kafka, config.prefix):
        if seen.registration.source != source:
            continue
        if seen.registration.kind is SourceKind.FINITE:
            raise EnvironmentNotReady(
                f"source {source} reads a capture file", "list it in the configuration, and start the job again"
            )
        if seen.registration.stream not in rosters:
            raise EnvironmentNotReady(
                f"source {source} feeds stream {seen.registration.stream}, which job {job} does not read", _SOURCES
            )
        return seen.registration.stream
    raise EnvironmentNotReady(f"no source {source} has registered", f"start its capture first; {_SOURCES}")


def _roster(config: Config, job: str, stream: str) -> RosterInForce | None:
    found = (roster for roster in rosters_in_force(config) if (roster.job, roster.stream) == (job, stream))
    return next(found, None)


def _told(roster: RosterInForce, source: str, action: Action) -> str:
    member = members_now(roster).get(source)
    where = f"stream {roster.stream} (version {roster.version})"
    if member is None:
        left = max((each.left for each in roster.members if each.source == source), default=NEVER)
        done = f"{source} leaves {where} at {shown(left)}"
    elif member.is_excluded:
        done = f"{source} is excluded from {where}: no window waits for it"
    else:
        done = f"{source} is listed in {where} from {shown(member.joined)} on, and windows wait for it"
    listed, out = member is not None, member is not None and member.is_excluded
    wanted = {Action.ADD: listed, Action.RETIRE: not listed, Action.EXCLUDE: out, Action.RETURN: listed and not out}
    if not wanted[action]:
        raise EnvironmentNotReady(
            f"the job has not done it: {done}", "its log says why; a stream whose sources have all ended stays as it is"
        )
    return done
