"""Decides which sources of a stream join, leave, are excluded and return; runs in the process that rules a job.

Pure: decisions follow from the configuration, the registrations, people's requests, and what buckets report. Time is
that of the records alone (when Kafka took them): no source is excluded because the job is behind or Kafka is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from highlevel.rosters.observed_sources import Observed
from highlevel.rosters.roster import Member, Roster
from lowmark.wire.records.registration import Presence, PresenceState, Registration, SourceKind
from lowmark.wire.records.rosters import Action, Exclusion, ListedSource, Request, Return, RosterChange, RosterInForce
from lowmark.wire.rows.values import FOREVER, NEVER, time

__all__ = ["Decided", "StreamRules", "StreamRuling", "is_pattern", "shown"]

LEAVING_NS = 10 * 10**9
"""Windows wait for a silent source that leaves no longer than this, whatever `stall` says."""

_MARGIN_NS = 10 * 10**9
"""A change takes effect from the first granule that begins this long after all promises so far, so that its record is
in every partition before a bucket gets there."""

_MOST_FORMER = 1_000
_MOST_RUNS = 3_000
"""A roster in force is one record, so it keeps only the last sources that have left and the last exclusions that have
ended, this many of each. Only a new generation reads them; buckets keep all."""


def is_pattern(name: str) -> bool:
    """Whether an entry of a roster stands for all sources whose name it matches."""
    return any(sign in name for sign in "*?[")


@dataclass(frozen=True, slots=True)
class StreamRules:
    """A stream's `roster` (names and patterns) and `stall` in the configuration; None: windows wait."""

    stream: str
    configured: tuple[str, ...]
    stall_ns: int | None = None

    def matches(self, source: str) -> bool:
        return any(is_pattern(entry) and fnmatchcase(source, entry) for entry in self.configured)


@dataclass(frozen=True, slots=True)
class Decided:
    """A control record for all partitions (None: nothing changes for windows), the roster after it, and the reason."""

    control: RosterChange | Exclusion | Return | None
    roster: RosterInForce
    why: str


Reached = Callable[[str], int | None]
"""The time up to which the sources of a stream have promised; FOREVER: all have ended; None: no promise yet."""


class StreamRuling:
    """One stream of a job. `begins`: the job has no bucket with state yet, so its windows wait from the beginning for
    the first roster. Rosters with a version below `least` are of a former job of this name. `base`: the sources with
    which the buckets begin, or began; empty: not chosen yet."""

    def __init__(
        self, job: str, rules: StreamRules, begins: bool, least: int = 0, base: tuple[ListedSource, ...] = ()
    ) -> None:  # fmt: skip
        self._job = job
        self._rules = rules
        self._in_force: RosterInForce | None = None
        self._begins = begins
        self._least = least
        self._base = base
        self._registered: dict[str, tuple[int, Registration]] = {}
        self._gone: dict[str, int] = {}
        self._requests: dict[str, tuple[int, Request]] = {}
        self._excluded_at: dict[str, int] = {}  # by source, the time of its last record before
        self._refused: set[str] = set()  # sources that cannot be listed any more
        self._heard = 0  # the offset after the last record of `sources`

    @property
    def in_force(self) -> RosterInForce | None:
        return self._in_force

    def take(self, offset: int, record: object) -> None:
        """Take a record of the topic `sources`, in order."""
        self._heard = offset + 1
        stream = self._rules.stream
        match record:
            case Registration(source=source) if record.stream == stream:
                self._registered[source] = offset, record
            case Presence(source=source, epoch=epoch, state=PresenceState.GONE):
                self._gone[source] = epoch
            case Request(source=source) if (record.job, record.stream) == (self._job, stream):
                self._requests[source] = offset, record
            case RosterInForce() if (record.job, record.stream) == (self._job, stream):
                before = self._least if self._in_force is None else self._in_force.version
                if record.version >= before:
                    self._in_force = record

    def begin(self, version: int) -> RosterInForce:
        """The roster with which the job begins: what is in force, or the configured sources."""
        return self.configured(version) if self._in_force is None else self._in_force

    def configured(self, version: int) -> RosterInForce:
        """The configured sources, and those of its patterns that are there, from the beginning on."""
        names = {entry for entry in self._rules.configured if not is_pattern(entry)}
        names |= {source for source in self._registered if self._joins(source)}
        return self._form(version, tuple(map(Member, sorted(names))))

    def decide(self, seen: Observed, reached: Reached, fresh_version: int) -> Iterator[Decided]:
        """The decisions due now. The caller writes all of them before the next call. `fresh_version` is for a stream
        without a known roster; it grows from one life of the topic `sources` to the next."""
        if self._in_force is None:
            first = self.begin(max(fresh_version, self._least + 1))
            names = {member.source for member in first.members}
            began = replace(first, version=first.version - 1, members=self._base or first.members)
            if self._begins or not names or reached(self._rules.stream) == FOREVER:
                yield self._done(Decided(None, began, ""))
            else:  # the topic `sources` has lost the roster, or a job died before it wrote one
                self._in_force = replace(began, members=self._base)
                yield from self._listing(names, reached, "its former roster is lost", again=True)
            if self._begins:  # sources may have registered since the buckets got their roster
                yield from self._listing(self._listed() | names, reached, "it has registered")
            return
        asked = [request for offset, request in self._requests.values() if offset >= self._in_force.heard]
        wanted, why = self._wanted(asked)
        yield from self._listing(wanted, reached, why)
        for request in asked:
            yield from self._asked(request, seen)
        yield from self._moves(seen)
        followed = wanted == self._listed() or not wanted
        if asked or (followed and self._in_force.configured != self._rules.configured):
            yield self._done(Decided(None, self._form(self._in_force.version, self._members), ""))

    def difference(self) -> tuple[set[str], set[str]]:
        """The sources that join and leave when the job decides next, as far as that follows from the configuration and
        from registrations."""
        if self._in_force is None:
            return set(), set()
        wanted, _ = self._wanted([])
        return wanted - self._listed(), self._listed() - wanted

    @property
    def _members(self) -> tuple[Member, ...]:
        assert self._in_force is not None
        roster = Roster.listing({self._rules.stream: self._in_force.members}, {})
        return roster.members((self._rules.stream,))

    def _joins(self, source: str) -> bool:
        """Whether the source joins by registering. A capture file must be listed by name, because it ends."""
        kind = self._registered[source][1].kind
        return kind is SourceKind.LIVE and self._rules.matches(source) and self._present(source)

    def _listed(self) -> set[str]:
        return {member.source for member in self._members if member.left == FOREVER}

    def _present(self, source: str) -> bool:
        offset, _ = self._registered[source]
        return self._gone.get(source, -1) < offset

    def _wanted(self, asked: list[Request]) -> tuple[set[str], str]:
        """The sources that the stream is to list, and the reason for a change."""
        assert self._in_force is not None
        rules, before, after = self._rules, self._in_force.configured, self._rules.configured
        wanted, why = self._listed(), []
        added = {entry for entry in after if not is_pattern(entry) and entry not in before}
        dropped = {entry for entry in before if entry not in after}
        out = {name for name in wanted - set(after) if any(fnmatchcase(name, entry) for entry in dropped)}
        instead = StreamRules(rules.stream, tuple(entry for entry in after if entry not in before))
        # A source taken out by name leaves until it registers anew, even if an older pattern matches it.
        out -= {name for name in out if (instead if name in dropped else rules).matches(name)}
        if added - wanted or out:
            why.append("the configuration has changed")
        wanted = (wanted | added) - out
        fresh = {
            source
            for source, (offset, _) in self._registered.items()
            if source not in wanted
            and (offset >= self._in_force.heard or (before != after and source not in dropped))
            and self._joins(source)
        }
        if fresh:
            why.append("it has registered")
        wanted |= fresh
        drained = {m.source for m in self._members if m.source in wanted and m.open_excluded and self._drained(m)}
        if drained:
            why.append("it has stopped in good order and was silent since")
        wanted -= drained
        for request in asked:
            if request.action is Action.ADD and request.source not in wanted:
                wanted.add(request.source)
                why.append(f"{request.process} has asked for it")
            elif request.action is Action.RETIRE and request.source in wanted and len(wanted) > 1:
                wanted.discard(request.source)
                why.append(f"{request.process} has asked for it")
        return wanted, "; ".join(why)

    def _drained(self, member: Member) -> bool:
        """Whether a pattern lists it, and its process has announced that it sends no more."""
        source = member.source
        named = source in self._rules.configured
        return not named and self._rules.matches(source) and source in self._registered and not self._present(source)

    def _listing(self, wanted: set[str], reached: Reached, why: str, again: bool = False) -> Iterator[Decided]:
        """`again`: buckets may list others, or none."""
        assert self._in_force is not None
        if (wanted == self._listed() and not again) or wanted == self._refused or not wanted:
            return
        bound = reached(self._rules.stream)
        if bound == FOREVER:
            self._refused = wanted
            told = f"its sources stay as they are, {_named(self._listed())}: all of them have ended"
            yield Decided(None, self._in_force, f"{told}. A new generation takes {_named(wanted)}")
            return
        start = NEVER if bound is None else bound + _MARGIN_NS
        change = RosterChange(self._job, self._rules.stream, self._in_force.version + 1, start, tuple(sorted(wanted)))
        yield self._taken(change, f"from {shown(start)} on its sources are {_named(wanted)}: {why}")

    def _asked(self, request: Request, seen: Observed) -> Iterator[Decided]:
        member = self._member(request.source)
        if member is None:
            return
        if request.action is Action.EXCLUDE and not member.open_excluded:
            yield self._exclusion(member.source, seen, f"{request.process} has asked for it", by_hand=True)
        elif request.action is Action.RETURN and member.open_excluded:
            yield self._return(member.source, seen, f"{request.process} has asked for it")

    def _member(self, source: str) -> Member | None:
        return next((m for m in reversed(self._members) if m.source == source), None)

    def _moves(self, seen: Observed) -> Iterator[Decided]:
        """The exclusions and returns that no person has requested."""
        assert self._in_force is not None
        stall_ns = self._rules.stall_ns
        for source in sorted(seen.waiting):
            member = self._member(source)
            if member is None or member.is_excluded:
                continue
            if source in seen.crowding:
                yield self._exclusion(source, seen, "as many panes are open as job.limits.open_panes allows")
                continue
            silent_ns = seen.silent_ns.get(source)
            patience = [each for each in (stall_ns, LEAVING_NS if member.left < FOREVER else None) if each is not None]
            if patience and seen.caught_up and silent_ns is not None and silent_ns >= min(patience):
                yield self._exclusion(source, seen, f"it has been silent for {silent_ns / 1e9:.0f} s")
        for source in sorted(seen.returned):
            member = self._member(source)
            if member is None or not member.open_excluded or source in self._in_force.by_hand:
                continue
            if source in seen.crowding:  # the only source left counts, so it would be excluded again at once
                continue
            heard_ns = seen.heard_ns.get(source)
            if heard_ns is not None and heard_ns > self._excluded_at.get(source, NEVER):
                yield self._return(source, seen, "its promises have reached the frontier")

    def _exclusion(self, source: str, seen: Observed, why: str, by_hand: bool = False) -> Decided:
        assert self._in_force is not None
        self._excluded_at[source] = seen.heard_ns.get(source, NEVER)
        at = seen.front_ns
        control = Exclusion(self._job, self._rules.stream, self._in_force.version + 1, at, source)
        hands = (*self._in_force.by_hand, source) if by_hand else self._in_force.by_hand
        return self._taken(control, f"no window waits for {source} any more, from {shown(at)} on: {why}", hands)

    def _return(self, source: str, seen: Observed, why: str) -> Decided:
        assert self._in_force is not None
        at = seen.furthest_ns
        control = Return(self._job, self._rules.stream, self._in_force.version + 1, at, source)
        hands = tuple(name for name in self._in_force.by_hand if name != source)
        return self._taken(control, f"windows wait for {source} again, from {shown(at)} on: {why}", hands)

    def _taken(
        self, control: RosterChange | Exclusion | Return, why: str, hands: tuple[str, ...] | None = None
    ) -> Decided:  # fmt: skip
        assert self._in_force is not None
        stream = self._rules.stream
        roster = Roster.listing({stream: self._in_force.members}, {stream: self._in_force.version}).changed(control)
        return self._done(Decided(control, self._form(control.version, roster.streams[stream], hands), why))

    def _done(self, decided: Decided) -> Decided:
        self._in_force = decided.roster
        return decided

    def _form(
        self, version: int, members: tuple[Member, ...], hands: tuple[str, ...] | None = None
    ) -> RosterInForce:  # fmt: skip
        if hands is None:
            hands = () if self._in_force is None else self._in_force.by_hand
        return RosterInForce(
            self._job, self._rules.stream, version, _kept(members), self._rules.configured, self._heard, hands
        )


def _kept(members: tuple[Member, ...]) -> tuple[Member, ...]:
    left = _of_the_last(_MOST_FORMER, (member.left for member in members))
    ended = _of_the_last(_MOST_RUNS, (stop for member in members for _, stop in member.excluded))
    return tuple(
        replace(member, excluded=tuple(run for run in member.excluded if run[1] >= ended))
        for member in members
        if member.left >= left
    )


def _of_the_last(most: int, ends: Iterator[int]) -> int:
    """The end of the oldest of the last ended exclusions that are kept."""
    past = sorted(end for end in ends if end < FOREVER)
    return past[-most] if len(past) > most else NEVER


def shown(at: int) -> str:
    """A time of a roster, for people."""
    return "the beginning" if at == NEVER else "the end" if at == FOREVER else time(at)


def _named(sources: set[str]) -> str:
    names = sorted(sources)
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} more"
