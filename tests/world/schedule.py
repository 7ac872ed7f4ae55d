"""A schedule: what happens in the world, one event after the other. It follows from a seed, and can be cut short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tests.world.network import How

__all__ = ["Event", "Kind", "Schedule", "schedule", "with_changes", "with_generations"]


class Kind(StrEnum):
    CAPTURE = "a source reads on"
    SEND = "records of a source reach the broker"
    JOB = "the job runs a batch, or starts"
    INTERRUPT = "a later call will be interrupted"
    CAPTURE_DIES = "a source's process dies"
    SENDER_FAILS = "a source's producer fails"
    JOB_DIES = "the job dies"
    SECOND_START = "the job is started a second time"
    TASK_TWICE = "a task of the next batch runs twice"
    HOST_CRASHES = "the job's host crashes"
    SNAPSHOT = "the checkpoint is copied"
    RESTORE = "the checkpoint is replaced by the copy"
    RETENTION = "Kafka deletes old partials"
    FORGET = "Kafka forgets the offsets of groups"
    LATE_REQUESTS = "requests that were held up arrive"
    HOLD_MARKERS = "the next transaction's markers are late"
    RULE = "the job decides about sources"
    SOURCE_JOINS = "a source is added to the configuration"
    EXCLUDE = "a person excludes a source"
    RETURN = "a person returns a source"
    SLOW = "every record takes long to write"
    CHANGE_TEXT = "the query gets its other text"
    NEW_GENERATION = "a person begins a new generation"


@dataclass(frozen=True, slots=True)
class Event:
    """`seed` decides all that is left to chance in it, so that it stays the same when others are left out."""

    kind: Kind
    seed: int
    source: int = 0
    seconds: float = 0.0
    count: int = 0
    call: str = ""
    how: How | None = None

    def __str__(self) -> str:
        detail = {
            Kind.CAPTURE: f"source {self.source}, {self.seconds:.1f} s later",
            Kind.SEND: f"{self.count} of source {self.source}",
            Kind.INTERRUPT: f"{self.call}, after {self.count} of them: {self.how}",
            Kind.CAPTURE_DIES: f"source {self.source}",
            Kind.EXCLUDE: f"source {self.source}",
            Kind.RETURN: f"source {self.source}",
            Kind.SENDER_FAILS: f"of source {self.source}, after {self.count} records",
            Kind.RETENTION: f"all but {self.count} records",
        }.get(self.kind, "")
        return f"{self.kind.value}{': ' if detail else ''}{detail}"


Schedule = tuple[Event, ...]

_USUAL = ((Kind.CAPTURE, 30), (Kind.SEND, 25), (Kind.JOB, 30), (Kind.RULE, 6))

_THEMES: tuple[tuple[tuple[Kind, int], ...], ...] = (
    ((Kind.INTERRUPT, 1),),
    ((Kind.INTERRUPT, 3), (Kind.JOB_DIES, 1), (Kind.SECOND_START, 1)),
    ((Kind.SENDER_FAILS, 3), (Kind.LATE_REQUESTS, 1)),
    ((Kind.CAPTURE_DIES, 2), (Kind.SENDER_FAILS, 1), (Kind.LATE_REQUESTS, 1)),
    ((Kind.JOB_DIES, 1),),
    ((Kind.SECOND_START, 1),),
    ((Kind.TASK_TWICE, 1),),
    ((Kind.HOST_CRASHES, 2), (Kind.JOB_DIES, 1)),
    ((Kind.SNAPSHOT, 1), (Kind.RESTORE, 1)),
    ((Kind.HOLD_MARKERS, 1),),
    ((Kind.RETENTION, 1),),
    ((Kind.FORGET, 1), (Kind.JOB_DIES, 2)),
    ((Kind.SLOW, 1),),
    ((Kind.SOURCE_JOINS, 1), (Kind.JOB_DIES, 1), (Kind.RULE, 2)),
    ((Kind.EXCLUDE, 2), (Kind.RETURN, 1), (Kind.RULE, 2)),
)
"""Faults that meet."""

_LOST = (How.DIES_BEFORE, How.DIES_AFTER, How.LOST, How.UNANSWERED)
_LONG = (How.OTHERS_GO_ON, How.SLEEPS)

_CALLS: dict[str, tuple[int, tuple[How, ...]]] = {
    "commit_transaction": (5, (*_LOST, *_LONG, How.REFUSED, How.REPEATED, How.REPEATED)),
    "send_offsets_to_transaction": (2, (*_LOST, *_LONG, How.REFUSED)),
    "flush": (2, (How.DIES_AFTER, How.UNANSWERED, How.REFUSED, *_LONG)),
    "init_transactions": (1, (*_LOST, *_LONG)),
    "committed": (1, (*_LOST, *_LONG)),
    "abort_transaction": (1, (*_LOST, How.REPEATED)),
}
"""By call: how often, and what may happen to it."""

_EVENTS = 45
_SOURCES = 2
_PIECE = 12


def schedule(seed: int) -> Schedule:
    """Each seed has faults of a few kinds only: so rare ones meet often."""
    random = Random(seed)
    chosen = [fault for theme in random.sample(_THEMES, random.choice((1, 1, 2, 3))) for fault in theme]
    often = random.choice((0.1, 0.2, 0.3))
    return tuple(_event(random, chosen if random.random() < often else _USUAL) for _ in range(_EVENTS))


def with_changes(seed: int) -> Schedule:
    """The same, and the text of the query changes once or more."""
    random, events = Random(~seed), list(schedule(seed))
    for _ in range(random.choice((1, 1, 2, 3))):
        events.insert(random.randrange(len(events)), Event(Kind.CHANGE_TEXT, random.randrange(1 << 30)))
    return tuple(events)


def with_generations(seed: int) -> Schedule:
    """The same in pieces, but for what Kafka deletes: after each, all goes well for a moment, and a new generation
    begins."""
    events, steady = [event for event in schedule(seed) if event.kind is not Kind.RETENTION], list[Event]()
    for kind in (Kind.CAPTURE, Kind.SEND):
        steady += (Event(kind, 0, source, seconds=0.8, count=100) for source in range(_SOURCES))
    steady += (Event(kind, 0) for kind in (Kind.RULE, *(Kind.JOB,) * 6, Kind.NEW_GENERATION))
    pieces = (events[at : at + _PIECE] for at in range(0, len(events), _PIECE))
    return tuple(event for piece in pieces for event in (*piece, *steady))


def _event(random: Random, kinds: Sequence[tuple[Kind, int]]) -> Event:
    (kind,) = random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    seed, source = random.randrange(1 << 30), random.randrange(_SOURCES)
    match kind:
        case Kind.CAPTURE:
            return Event(kind, seed, source, seconds=random.choice((0.3, 0.8, 1.5)))
        case Kind.SEND:
            return Event(kind, seed, source, count=random.choice((1, 3, 100)))
        case Kind.INTERRUPT:
            (call,) = random.choices(list(_CALLS), [weight for weight, _ in _CALLS.values()])
            count, how = random.choice((0, 0, 1, 2)), random.choice(_CALLS[call][1])
            return Event(kind, seed, count=count, call=call, how=how)
        case Kind.SENDER_FAILS:
            return Event(kind, seed, source, count=random.randrange(6))
        case Kind.RETENTION:
            return Event(kind, seed, count=random.randrange(30))
    return Event(kind, seed, source)
