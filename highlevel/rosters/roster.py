"""The sources whose promises are required: those that a stream lists, each for a range of time.

A roster's times are values of `ts`; `Roster.on` converts them to the granules of a node. A source is *free* where no
window waits for it: before it joined, after it left, and while it is excluded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from highlevel.progress.granules import ROW_NUMBER, granule_of_time
from lowmark.query.plan.nodes import Pane
from lowmark.wire.records.rosters import Exclusion, ListedSource, Return, RosterChange
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Changed", "Member", "Roster", "changes"]


@dataclass(frozen=True, slots=True)
class Member(ListedSource):
    """A source of a stream. It is listed from `joined` up to `left`. No window waits for it in the half-open runs
    `excluded`, which are disjoint and ascending. All are times, or all are granules of one node."""

    def belongs(self, granule: int) -> bool:
        return self.joined <= granule < self.left

    def bound(self, promised: int) -> int:
        """The source does not block the frontier up to here, given that it has promised everything below `promised`."""
        free = ((NEVER, self.joined), *self.excluded, (self.left, FOREVER))
        for start, stop in free:
            if start <= promised:
                promised = max(promised, stop)
        return promised

    @property
    def open_excluded(self) -> bool:
        """Whether it is excluded until it returns."""
        return bool(self.excluded) and self.excluded[-1][1] == FOREVER and self.left == FOREVER

    def exclude(self, at: int) -> Member:
        if self.excluded and self.excluded[-1][1] == FOREVER:
            return self
        start = max(at, self.excluded[-1][1]) if self.excluded else at
        return replace(self, excluded=(*self.excluded, (start, FOREVER)))

    def readmit(self, at: int) -> Member:
        if not self.excluded or self.excluded[-1][1] != FOREVER:
            return self
        *before, (start, _) = self.excluded
        runs = (*before, (start, at)) if at > start else tuple(before)
        return replace(self, excluded=runs)

    def since(self, at: int) -> Member:
        """The member for buckets that read nothing of what it promised before this time: it is free there where it
        left or was excluded by then."""
        runs = [(NEVER, self.left)] if self.left <= at else []
        runs += [(NEVER if start <= at else start, stop) for start, stop in self.excluded if self.left > at]
        return replace(self, excluded=_joined(runs))

    def on(self, pane: Pane) -> Member:
        """The member in granules. It joins and leaves with a whole granule. An exclusion includes granules that it
        covers only in part, because the source may not have promised the granule in which the exclusion begins. Numbers
        of rows are no times, so there the source is listed throughout."""
        if self.joined == NEVER and self.left == FOREVER and not self.excluded:
            return self
        if pane.attribute == ROW_NUMBER:
            return Member(self.source)
        runs = ((_granule(pane, start, pane.index), _begins(pane, stop)) for start, stop in self.excluded)
        return Member(
            self.source, _begins(pane, self.joined), _begins(pane, self.left),
            tuple((start, stop) for start, stop in runs if start < stop),
        )  # fmt: skip


def _joined(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The last of the runs that begin at NEVER, which holds the others, and all that follow."""
    from_never = [run for run in runs if run[0] == NEVER]
    return (*from_never[-1:], *(run for run in runs if run[0] != NEVER))


def _begins(pane: Pane, at: int) -> int:
    return _granule(pane, at, lambda time: granule_of_time(pane, time))


def _granule(pane: Pane, at: int, of: Callable[[int], int]) -> int:
    return at if at in (NEVER, FOREVER) else of(at)


@dataclass(frozen=True)
class Roster:
    """The members of each stream, former ones included, in the order in which they joined."""

    streams: Mapping[str, tuple[Member, ...]]
    versions: Mapping[str, int]

    @classmethod
    def of(cls, sources: Mapping[str, tuple[str, ...]]) -> Roster:
        """The first version: these sources of each stream, from the beginning on."""
        streams = {stream: tuple(Member(name) for name in sources[stream]) for stream in sorted(sources)}
        return cls(streams, dict.fromkeys(streams, 0))

    @classmethod
    def listing(cls, listed: Mapping[str, Iterable[ListedSource]], versions: Mapping[str, int]) -> Roster:
        """By stream: its sources and the version of its roster."""
        streams = {
            stream: tuple(Member(each.source, each.joined, each.left, each.excluded) for each in listed[stream])
            for stream in sorted(listed)
        }
        return cls(streams, dict(versions))

    def on(self, pane: Pane) -> Roster:
        """The roster in granules of a node."""
        streams = {stream: tuple(member.on(pane) for member in members) for stream, members in self.streams.items()}
        return Roster(streams, self.versions)

    def but_for(self, sources: Mapping[str, tuple[str, ...]]) -> Roster:
        """Without these streams, where they have other sources."""
        listed = {stream: tuple(member.source for member in members) for stream, members in self.streams.items()}
        return self.without([stream for stream in sources if listed.get(stream, sources[stream]) != sources[stream]])

    def without(self, streams: Iterable[str]) -> Roster:
        if not streams:
            return self
        left = {stream: members for stream, members in self.streams.items() if stream not in set(streams)}
        return Roster(left, {stream: self.versions[stream] for stream in left})

    def with_streams(self, sources: Mapping[str, tuple[str, ...]]) -> Roster:
        """Add these streams where they are missing."""
        missing = {stream: members for stream, members in sources.items() if stream not in self.streams}
        more = Roster.of(missing)
        return Roster({**self.streams, **more.streams}, {**self.versions, **more.versions}) if missing else self

    def since(self, at: int) -> Roster:
        """The roster for buckets that read what their sources sent from this time on."""
        streams = {stream: tuple(member.since(at) for member in of) for stream, of in self.streams.items()}
        return Roster(streams, self.versions)

    def names(self) -> dict[str, tuple[str, ...]]:
        """By stream: the sources that it lists now."""
        return {
            stream: tuple(member.source for member in members if member.left == FOREVER)
            for stream, members in self.streams.items()
        }

    def members(self, streams: tuple[str, ...]) -> tuple[Member, ...]:
        return tuple(member for stream in streams for member in self.streams.get(stream, ()))

    def belongs(self, source: str, streams: tuple[str, ...], granule: int) -> bool:
        """Whether one of the streams lists the source at this granule or time."""
        for stream in streams:
            for member in self._by_source(stream).get(source, ()):
                if member.belongs(granule):
                    return True
        return False

    def runs(self, source: str, streams: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """The runs (from, up to) in which one of the streams lists the source."""
        for stream in streams:
            yield from ((member.joined, member.left) for member in self._by_source(stream).get(source, ()))

    def lists(self, source: str, streams: tuple[str, ...]) -> bool:
        """Whether one of the streams ever listed the source."""
        for stream in streams:  # noqa: SIM110  # twice as fast as `any`, and done for every record
            if source in self._by_source(stream):
                return True
        return False

    def _by_source(self, stream: str) -> Mapping[str, list[Member]]:
        """The members by source. Every record needs them, and a search through all members would cost time per
        source."""
        return self._index.get(stream, {})

    @cached_property
    def _index(self) -> Mapping[str, Mapping[str, list[Member]]]:
        index: dict[str, dict[str, list[Member]]] = {}
        for stream, members in self.streams.items():
            for member in members:
                index.setdefault(stream, {}).setdefault(member.source, []).append(member)
        return index

    def changed(self, control: RosterChange | Exclusion | Return) -> Roster:
        """The roster after a control record; the same object if its version was seen before."""
        members = self.streams.get(control.stream, ())
        if control.version <= self.versions.get(control.stream, -1):
            return self
        if isinstance(control, RosterChange):
            members = _ruled(members, control)
        else:
            move = Member.exclude if isinstance(control, Exclusion) else Member.readmit
            members = tuple(move(m, control.from_ns) if m.source == control.source else m for m in members)
        return Roster({**self.streams, control.stream: members}, {**self.versions, control.stream: control.version})

    def encode(self) -> bytes:
        streams = {
            stream: [self.versions[stream], [[m.source, m.joined, m.left, m.excluded] for m in members]]
            for stream, members in self.streams.items()
        }
        return json.dumps(streams, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, piece: bytes) -> Roster:
        stored = json.loads(piece)
        streams = {
            stream: tuple(
                Member(source, joined, left, tuple((start, stop) for start, stop in excluded))
                for source, joined, left, excluded in members
            )
            for stream, (_, members) in stored.items()
        }
        return cls(streams, {stream: version for stream, (version, _) in stored.items()})


def _ruled(members: tuple[Member, ...], change: RosterChange) -> tuple[Member, ...]:
    ruled = []
    for member in members:
        stays = member.source in change.sources
        if member.left == FOREVER and not stays:
            ruled.append(replace(member, left=max(member.joined, change.from_ns)))
        else:
            ruled.append(member)
    present = {member.source for member in members if member.left == FOREVER}
    joining = [source for source in change.sources if source not in present]
    return (*ruled, *(Member(source, joined=change.from_ns) for source in joining))


@dataclass(frozen=True, slots=True)
class Changed:
    """From this granule on a source is listed (`joins`) or no longer listed."""

    source: str
    granule: int
    joins: bool


def changes(before: Roster, after: Roster, stream: str) -> Iterator[Changed]:
    """`after` is `before` with one more change of this stream."""
    then, now = before.streams.get(stream, ()), after.streams.get(stream, ())
    for old, new in zip(then, now, strict=False):
        if old.left != new.left:
            yield Changed(new.source, new.left, False)
    for new in now[len(then) :]:
        yield Changed(new.source, new.joined, True)
