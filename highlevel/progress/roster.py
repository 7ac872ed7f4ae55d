"""The sources whose promises are required: those that a stream is declared to have, each for a range of granules.

Granules are those of the stage's grid. A source is *free* in granules in which nobody waits for it: before it joined,
after it left, and while it is excluded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lowmark.wire.records.registration import Exclusion, Return, RosterChange
from lowmark.wire.rows.values import FOREVER, NEVER

__all__ = ["Member", "Roster"]


@dataclass(frozen=True, slots=True)
class Member:
    """A source of a stream. It is listed in the granules from `joined` up to `left`. Nobody waits for it in the
    half-open runs `excluded`, which are disjoint and ascending."""

    source: str
    joined: int = NEVER
    left: int = FOREVER
    excluded: tuple[tuple[int, int], ...] = ()

    def belongs(self, granule: int) -> bool:
        return self.joined <= granule < self.left

    def bound(self, promised: int) -> int:
        """Up to this granule the source does not block the frontier, if it has promised those below `promised`."""
        free = ((NEVER, self.joined), *self.excluded, (self.left, FOREVER))
        for start, stop in free:
            if start <= promised:
                promised = max(promised, stop)
        return promised

    def exclude(self, granule: int) -> Member:
        if self.excluded and self.excluded[-1][1] == FOREVER:
            return self
        start = max(granule, self.excluded[-1][1]) if self.excluded else granule
        return replace(self, excluded=(*self.excluded, (start, FOREVER)))

    def readmit(self, granule: int) -> Member:
        if not self.excluded or self.excluded[-1][1] != FOREVER:
            return self
        *before, (start, _) = self.excluded
        runs = (*before, (start, granule)) if granule > start else tuple(before)
        return replace(self, excluded=runs)


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

    def with_streams(self, sources: Mapping[str, tuple[str, ...]]) -> Roster:
        """Add these streams where they are missing."""
        missing = {stream: members for stream, members in sources.items() if stream not in self.streams}
        more = Roster.of(missing)
        return Roster({**self.streams, **more.streams}, {**self.versions, **more.versions}) if missing else self

    def members(self, streams: tuple[str, ...]) -> tuple[Member, ...]:
        return tuple(member for stream in streams for member in self.streams.get(stream, ()))

    def belongs(self, source: str, streams: tuple[str, ...], granule: int) -> bool:
        """Whether one of the streams lists the source in this granule."""
        return any(member.belongs(granule) for stream in streams for member in self._by_source(stream).get(source, ()))

    def runs(self, source: str, streams: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """The runs (from, up to) of granules in which one of the streams lists the source."""
        for stream in streams:
            yield from ((member.joined, member.left) for member in self._by_source(stream).get(source, ()))

    def lists(self, source: str, streams: tuple[str, ...]) -> bool:
        """Whether one of the streams ever listed the source."""
        return any(source in self._by_source(stream) for stream in streams)

    def _by_source(self, stream: str) -> Mapping[str, list[Member]]:
        """The members by source. Every record asks for them; a walk over all members would cost time per source."""
        return self._index.get(stream, {})

    @cached_property
    def _index(self) -> Mapping[str, Mapping[str, list[Member]]]:
        index: dict[str, dict[str, list[Member]]] = {}
        for stream, members in self.streams.items():
            for member in members:
                index.setdefault(stream, {}).setdefault(member.source, []).append(member)
        return index

    def changed(self, control: RosterChange | Exclusion | Return) -> Roster:
        """The roster after a control record. A roster change whose version was seen before changes nothing."""
        members = self.streams.get(control.stream, ())
        version = self.versions.get(control.stream, -1)
        if isinstance(control, RosterChange):
            if control.version <= version:
                return self
            version = control.version
            members = _ruled(members, control)
        else:
            move = Member.exclude if isinstance(control, Exclusion) else Member.readmit
            members = tuple(move(m, control.granule) if m.source == control.source else m for m in members)
        return Roster({**self.streams, control.stream: members}, {**self.versions, control.stream: version})

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
            ruled.append(replace(member, left=max(member.joined, change.granule)))
        else:
            ruled.append(member)
    present = {member.source for member in members if member.left == FOREVER}
    joining = [source for source in change.sources if source not in present]
    return (*ruled, *(Member(source, joined=change.granule) for source in joining))
